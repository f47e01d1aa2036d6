"""What a server answered, as content that the API takes: every kind of part, damaged ones, hostile ones, none."""

from __future__ import annotations

import base64
from typing import Any

import mcp_types
import pytest

from sandbox_agent.mcp.results import MAX_BLOCKS, MAX_PICTURES, clean, contents_of, result_of
from sandbox_agent.testing.api_rules import check_request
from sandbox_agent.types import ToolResult

PNG = base64.b64encode(
    bytes.fromhex("89504e470d0a1a0a0000000d494844520000000100000001080200000090 7753de".replace(" ", ""))
    + bytes.fromhex("0000000c49444154789c63f8cfc00000030101 00c9fe92ef".replace(" ", ""))
    + bytes.fromhex("0000000049454e44ae426082")
).decode()


def text(words: str) -> mcp_types.TextContent:
    return mcp_types.TextContent(text=words)


def picture(data: str = PNG, kind: str = "image/png") -> mcp_types.ImageContent:
    return mcp_types.ImageContent(data=data, mime_type=kind)


def blob(data: bytes, kind: str) -> mcp_types.EmbeddedResource:
    encoded = base64.b64encode(data).decode()
    return mcp_types.EmbeddedResource(
        resource=mcp_types.BlobResourceContents(uri="x://1", blob=encoded, mime_type=kind)
    )


def made(*blocks: Any, **more: Any) -> ToolResult:
    """The result, which the API would take."""
    result = result_of(mcp_types.CallToolResult(content=list(blocks), **more))
    content = result.content if isinstance(result.content, str) else list(result.content)
    asked = {"role": "assistant", "content": [{"type": "tool_use", "id": "toolu_1", "name": "t", "input": {}}]}
    answer = {"type": "tool_result", "tool_use_id": "toolu_1", "content": content, "is_error": result.is_error}
    messages = [{"role": "user", "content": "go"}, asked, {"role": "user", "content": [answer]}]
    tools = [{"name": "t", "description": "d", "input_schema": {"type": "object"}}]
    check_request({"model": "m", "max_tokens": 1, "messages": messages, "tools": tools})
    return result


@pytest.mark.parametrize(
    ("blocks", "content"),
    [
        ([], "(the tool gave nothing)"),
        ([text("")], "(the tool gave nothing)"),
        ([text(" \n"), text("a"), text(""), text("b")], "a\nb"),
        ([text("\x1b[31mred\x00\x9b1m\x7f")], "\ufffd[31mred\ufffd\ufffd1m\ufffd"),
        ([text("tab\tline\r\nnext")], "tab\tline\r\nnext"),
        ([picture("%%%")], "(a picture, image/png, 2 bytes; it is damaged)"),
        ([picture("AAAA")], "(a picture, image/png, 3 bytes; it cannot be shown)"),
        ([picture("A" * 7_000_000)], "(a picture, image/png, 5,250,000 bytes; it is too large to be shown)"),
        (
            [mcp_types.AudioContent(data="AAAA", mime_type="audio/wav")],
            "(audio, audio/wav, 3 bytes; it cannot be shown)",
        ),
        ([mcp_types.ResourceLink(name="n\x1b", uri="x://1")], "(resource n\ufffd: x://1)"),
        (
            [mcp_types.EmbeddedResource(resource=mcp_types.TextResourceContents(uri="x://1", text="held"))],
            "held",
        ),
        (
            [mcp_types.EmbeddedResource(resource=mcp_types.BlobResourceContents(uri="x://1", blob="AAAA"))],
            "(x://1: of no stated kind, 3 bytes; it cannot be shown)",
        ),
        ([blob(b"a\x1b\n", "text/plain")], "a\ufffd\n"),
        ([blob(b'{"a": 1}', "application/json; charset=utf-8")], '{"a": 1}'),
        ([blob(b"\xff", "text/plain")], "(x://1: text/plain, 3 bytes; it is damaged, or not UTF-8)"),
        ([blob(b"PDF", "image/png")], "(x://1: image/png, 3 bytes; it cannot be shown)"),
    ],
)
def test_every_kind_of_part_is_something_to_read(blocks: list[Any], content: str) -> None:
    """Shown, or named where it cannot be."""
    assert made(*blocks).content == content


def test_a_picture_is_what_is_in_it_and_not_what_it_is_said_to_be() -> None:
    """The API refuses a request in which the two differ."""
    result = made(text("see"), picture(kind="image/jpeg"), text("that"))

    assert [block["type"] for block in result.content if isinstance(block, dict)] == ["text", "image", "text"]
    assert isinstance(result.content, tuple)
    assert result.content[1]["source"]["media_type"] == "image/png"


def test_a_picture_that_a_resource_holds_is_shown() -> None:
    """As one of a result is, beside its texts."""
    held = [
        mcp_types.TextResourceContents(uri="x://1", text="see"),
        mcp_types.BlobResourceContents(uri="x://2", blob=PNG, mime_type="image/png"),
    ]

    content = contents_of(held).content

    assert [block["type"] for block in content if isinstance(block, dict)] == ["text", "image"]
    assert contents_of(held[:1]).content == "see"


def test_parts_and_pictures_are_bounded() -> None:
    """The rest is said to be left out."""
    many = made(*[text("x")] * (MAX_BLOCKS + 50))
    pictures = made(*[picture()] * (MAX_PICTURES + 2))

    assert str(many.content).count("x\n") == MAX_BLOCKS
    assert "the rest is left out" in str(many.content)
    assert str(pictures.content).count("'image'") == MAX_PICTURES
    assert "further picture" in str(pictures.content)


def test_structured_content_is_shown_where_there_is_no_other_and_kept_where_it_is_small() -> None:
    """As JSON, without halves of surrogate pairs; a large one is not kept twice."""
    assert made(structured_content={"a": "\ud800\x1b"}).content == '{\n "a": "?\\u001b"\n}'
    assert made(text("a"), structured_content={"b": 1}).content == "a"
    assert made(text("a"), structured_content={"b": 1}).meta == {"structured": {"b": 1}}
    assert made(text("a"), structured_content={"b": "x" * 200_000}).meta == {}


def test_an_error_says_something_and_is_one() -> None:
    """Also where the server says nothing."""
    assert made(is_error=True) == ToolResult("(the tool gave nothing)", is_error=True)
    assert made(text("no"), is_error=True).is_error
    assert made(text("no"), picture(), is_error=True).content == "no\n(a picture, which an error cannot have)"


def test_halves_of_surrogate_pairs_are_taken_out() -> None:
    """They cannot be written anywhere."""
    assert clean("a\ud83d b") == "a? b"
    assert contents_of([]).content == "(the resource is empty)"
