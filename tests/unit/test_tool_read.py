"""Read on a sandbox in memory: pages, caps, refusals, pictures, documents, notebooks."""

from __future__ import annotations

import base64
import hashlib
import json
import random
import struct

import pytest

from sandbox_agent.sandboxes.fake import FakeSandbox
from sandbox_agent.sandboxes.fake_shell import ProgramCall, ProgramOutput
from sandbox_agent.testing.tool_calls import HOST_FOLDER, call, context, refused, said
from sandbox_agent.tools.read import TOOL as READ
from sandbox_agent.tools.read import WHOLE_BYTES

PNG = b"\x89PNG\r\n\x1a\n" + struct.pack(">I4sII", 13, b"IHDR", 2, 3) + b"\x08\x06\x00\x00\x00" + bytes(40)
GIF = b"GIF89a" + struct.pack("<HH", 4, 5) + bytes(20)
JPEG = (
    b"\xff\xd8\xff\xe0" + struct.pack(">H", 16) + bytes(14) + b"\xff\xc0" + struct.pack(">HBHH", 17, 8, 7, 9) + bytes(9)
)
WEBP = b"RIFF" + bytes(4) + b"WEBPVP8X" + bytes(8) + (9).to_bytes(3, "little") + (8).to_bytes(3, "little") + bytes(9)


def sandbox(data: bytes, path: str = "/workspace/a.txt") -> FakeSandbox:
    return FakeSandbox({path: data})


@pytest.mark.parametrize(
    ("data", "shown"),
    [
        (b"one\ntwo\n", "1\tone\n2\ttwo"),
        (b"one\ntwo", "1\tone\n2\ttwo"),
        (b"one\r\n\ttwo\r\n", "1\tone\n2\t\ttwo"),
        (b"\xef\xbb\xbfhello\n\xe4\xb8\xad\n", "1\thello\n2\t\u4e2d"),
        (b"\n\n", "1\t\n2\t"),
        (b" two spaces  \n", "1\t two spaces  "),
    ],
)
async def test_lines_come_numbered(data: bytes, shown: str) -> None:
    """`N<TAB>text`; line ends and BOM stay out of sight, everything else is as it is."""
    assert await said(READ, context(sandbox(data)), file_path="a.txt") == shown


@pytest.mark.parametrize("spelling", ["a.txt", "./a.txt", "/workspace/a.txt", f"{HOST_FOLDER}/a.txt", "sub/../a.txt"])
async def test_every_spelling_of_a_path_is_understood(spelling: str) -> None:
    """Relative, absolute, and the host's own path of the workspace."""
    assert await said(READ, context(sandbox(b"x\n")), file_path=spelling) == "1\tx"


async def test_reading_is_remembered_by_content() -> None:
    """Edit and Write compare with what was seen here, under the resolved path."""
    ctx = context(sandbox(b"x\n", "/workspace/real.txt"))
    ctx.sandbox.files.symlink("/workspace/link.txt", "real.txt")  # type: ignore[attr-defined]
    await said(READ, ctx, file_path="link.txt")
    assert ctx.known_files == {"/workspace/real.txt": hashlib.sha256(b"x\n").hexdigest()}


@pytest.mark.parametrize(
    ("fields", "shown"),
    [
        ({"offset": 3, "limit": 2}, "3\t3\n4\t4\n\n[Lines 3-4 of 6. Go on with offset 5.]"),
        ({"offset": 5}, "5\t5\n6\t6"),
        ({"offset": 0, "limit": 1}, "1\t1\n\n[Lines 1-1 of 6. Go on with offset 2.]"),
        ({"offset": 7}, "[/workspace/a.txt has 6 lines; offset 7 is past its end.]"),
        ({"limit": 600}, "1\t1\n2\t2\n3\t3\n4\t4\n5\t5\n6\t6"),
    ],
)
async def test_offset_and_limit_page_through_a_file(fields: dict[str, int], shown: str) -> None:
    """A page names the total and where to go on; past the end is a notice, not an error."""
    ctx = context(sandbox(b"1\n2\n3\n4\n5\n6\n"))
    assert await said(READ, ctx, file_path="a.txt", **fields) == shown


@pytest.mark.parametrize("data", [b"", b"\xef\xbb\xbf"])
async def test_an_empty_file_is_a_notice(data: bytes) -> None:
    """Nothing is shown, and that is said."""
    assert "is empty" in await said(READ, context(sandbox(data)), file_path="a.txt")


async def test_two_thousand_lines_are_the_most_by_default() -> None:
    """More is a page with its total."""
    text = await said(READ, context(sandbox(b"x\n" * 5321)), file_path="a.txt")
    assert text.endswith("2000\tx\n\n[Lines 1-2000 of 5,321. Go on with offset 2001.]")


async def test_fifty_thousand_characters_are_the_most() -> None:
    """A page of long lines ends early, at a whole line, and says why."""
    text = await said(
        READ,
        context(sandbox(b"y" * 1000 + b"\n" + b"x" * 999 + b"\n" * 1 + (b"z" * 999 + b"\n") * 98)),
        file_path="a.txt",
    )
    assert "[Lines 1-49 of 100 (50,000 characters are the most at once). Go on with offset 50.]" in text
    assert len(text) < 51_000


async def test_a_long_line_is_cut_with_a_mark() -> None:
    """5 MB in one line: its start, its size and how to see the rest."""
    text = await said(READ, context(sandbox(b'{"a": "' + b"x" * 5_000_000 + b'"}')), file_path="a.txt")
    assert text.startswith('1\t{"a": "xxx')
    assert "[... line cut: 5,000,009 bytes in all]" in text
    assert "cut -c" in text
    assert len(text) < 2500


async def test_bytes_that_are_not_utf8_are_replaced_and_said() -> None:
    """The text is shown as far as it goes."""
    text = await said(READ, context(sandbox(b"const x = 1;\n// caf\xe9 note\n")), file_path="a.txt")
    assert text.startswith("1\tconst x = 1;\n2\t// caf\ufffd note\n")
    assert "not valid UTF-8" in text


@pytest.mark.parametrize(
    ("data", "kind"),
    [
        (random.Random(7).randbytes(300_000), "300,000 bytes"),
        (b"\x7fELF\x02\x01\x01" + bytes(100), "ELF"),
        (b"PK\x03\x04" + bytes(100), "ZIP"),
        ("text".encode("utf-16"), "UTF-16"),
        (b"\xff\xd8\xff" + random.Random(7).randbytes(300_000), "damaged"),
        (b"\x89PNG\r\n\x1a\n", "damaged"),
    ],
)
async def test_a_binary_file_is_refused_with_size_and_kind(data: bytes, kind: str) -> None:
    """No garbage as text, no picture that the API would refuse, and nothing counts as seen."""
    ctx = context(sandbox(data))
    text = await refused(READ, ctx, file_path="a.txt")
    assert "binary file" in text
    assert kind in text
    assert ctx.known_files == {}


@pytest.mark.parametrize(
    ("data", "media_type"), [(PNG, "image/png"), (GIF, "image/gif"), (JPEG, "image/jpeg"), (WEBP, "image/webp")]
)
async def test_a_picture_comes_as_an_image_block(data: bytes, media_type: str) -> None:
    """By its first bytes, whatever its name is."""
    result = await call(READ, context(sandbox(data)), {"file_path": "a.txt"})
    source = {"type": "base64", "media_type": media_type, "data": base64.b64encode(data).decode()}
    assert result.content == ({"type": "image", "source": source},)


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (PNG + bytes(5 * 1024 * 1024), "Make it smaller"),
        (PNG[:16] + struct.pack(">II", 9000, 10) + PNG[24:], "9000 x 10"),
    ],
)
async def test_a_picture_the_api_would_refuse_is_refused_here(data: bytes, why: str) -> None:
    """A request with it would fail again and again."""
    assert why in await refused(READ, context(sandbox(data)), file_path="a.txt")


async def test_a_pdf_comes_as_a_document_block() -> None:
    """Whole, when no pages are asked for; an empty range is none."""
    data = b"%PDF-1.4\n\0rest"
    result = await call(READ, context(sandbox(data)), {"file_path": "a.txt", "pages": ""})
    source = {"type": "base64", "media_type": "application/pdf", "data": base64.b64encode(data).decode()}
    assert result.content == ({"type": "document", "source": source},)


@pytest.mark.parametrize(
    ("pages", "why"), [("1-25", "at most 20"), ("x", "expected one page"), ("5-2", "not a range"), ("2", "qpdf")]
)
async def test_pages_that_cannot_be_had_are_refused(pages: str, why: str) -> None:
    """A wrong range, and an image without the program that cuts."""
    assert why in await refused(READ, context(sandbox(b"%PDF-1.4")), file_path="a.txt", pages=pages)


async def test_pages_are_cut_in_the_container() -> None:
    """The document is what the container's own program gave."""

    def qpdf(asked: ProgramCall) -> ProgramOutput:
        return ProgramOutput(b"%PDF-cut " + asked.argv[4].encode())

    box = FakeSandbox({"/workspace/a.pdf": b"%PDF-1.4"}, {"qpdf": qpdf})
    result = await call(READ, context(box), {"file_path": "a.pdf", "pages": "2-4"})
    assert base64.b64decode(result.content[0]["source"]["data"]) == b"%PDF-cut 2-4"  # type: ignore[index]


async def test_pages_of_a_text_are_refused() -> None:
    """The text says what to use instead."""
    assert "offset and limit" in await refused(READ, context(sandbox(b"x")), file_path="a.txt", pages="1")


NOTEBOOK = {
    "cells": [
        {"cell_type": "markdown", "id": "m1", "source": ["# Title\n", "text"]},
        {
            "cell_type": "code",
            "id": "c1",
            "execution_count": 3,
            "source": "print(1)",
            "outputs": [
                {"output_type": "stream", "name": "stdout", "text": ["1\n"]},
                {"output_type": "display_data", "data": {"image/png": "iVBORw0=", "text/plain": "<Figure>"}},
                {"output_type": "error", "ename": "E", "evalue": "bad", "traceback": []},
            ],
        },
    ]
}


async def test_a_notebook_comes_as_cells_with_outputs() -> None:
    """Sources, printed output, errors as text; pictures as pictures."""
    box = sandbox(json.dumps(NOTEBOOK).encode(), "/workspace/n.ipynb")
    result = await call(READ, context(box), {"file_path": "n.ipynb"})
    kinds = [block["type"] for block in result.content]  # type: ignore[index]
    texts = "\n".join(block.get("text", "") for block in result.content)  # type: ignore[union-attr]
    assert kinds == ["text", "image", "text"]
    for part in (
        "cell 0 id=m1 (markdown)",
        "# Title\ntext",
        "run as [3]",
        "print(1)",
        "[stdout]\n1",
        "<Figure>",
        "E: bad",
    ):
        assert part in texts


@pytest.mark.parametrize("fields", [{"offset": 1, "limit": 5}, {"offset": 2}])
async def test_a_notebook_with_a_range_comes_as_its_text(fields: dict[str, int]) -> None:
    """What Edit works on can be seen."""
    box = sandbox(json.dumps(NOTEBOOK, indent=1).encode(), "/workspace/n.ipynb")
    assert '"cells": [' in await said(READ, context(box), file_path="n.ipynb", **fields)


@pytest.mark.parametrize(
    "data", [b"{}", b"not json", b'{"cells": 1}', b"[" * 100_000, b'{"cells": [1, {"outputs": 3}]}']
)
async def test_what_only_looks_like_a_notebook_does_not_break(data: bytes) -> None:
    """Text is shown as text."""
    assert not (await call(READ, context(sandbox(data, "/workspace/n.ipynb")), {"file_path": "n.ipynb"})).is_error


async def test_what_is_no_regular_file_is_refused() -> None:
    """A directory and a FIFO, each by its name."""
    box = sandbox(b"x")
    box.files.fifo("/workspace/pipe")
    box.files.mkdir("/workspace/folder")
    assert "is a directory" in await refused(READ, context(box), file_path="folder")
    assert "FIFO" in await refused(READ, context(box), file_path="pipe")


async def test_an_unreadable_file_is_refused() -> None:
    """Permissions are the container's."""
    box = sandbox(b"x")
    box.files.chmod("/workspace/a.txt", 0)
    assert "permission denied" in await refused(READ, context(box), file_path="a.txt")


async def test_a_missing_file_names_its_neighbours() -> None:
    """Names like it in the same folder, and the working directory."""

    def find(asked: ProgramCall) -> ProgramOutput:
        assert asked.argv[1] == "/workspace/src"
        return ProgramOutput(b"config.py\0main.py\0weird\xff\0")

    text = await refused(READ, context(FakeSandbox(programs={"find": find})), file_path="src/confg.py")
    assert "does not exist" in text
    assert "Did you mean /workspace/src/config.py" in text
    assert "/workspace." in text


async def test_a_missing_file_in_a_folder_that_cannot_be_listed_is_just_missing() -> None:
    """Help that fails does not replace the answer."""
    text = await refused(READ, context(FakeSandbox()), file_path="nosuch/a.txt")
    assert text.startswith("/workspace/nosuch/a.txt does not exist.")


async def test_a_masked_file_names_the_rule() -> None:
    """Also when it does not exist in this copy of the workspace, and also through a link."""
    box = sandbox(b"secret", "/workspace/.env")
    box.files.symlink("/workspace/link", ".env")
    ctx = context(box)
    ctx.masked = lambda path: ".env" if path.endswith("/.env") else None
    for name in (".env", "link", "nosuch/.env"):
        assert "masked by rule .env" in await refused(READ, ctx, file_path=name)
    assert [made.verb for made in box.calls if made.verb == "read_file"] == []


async def test_a_path_that_moved_since_it_was_judged_is_not_read() -> None:
    """What was allowed is what is opened."""
    box = sandbox(b"x")
    box.files.symlink("/workspace/link", "a.txt")
    ctx = context(box)
    ctx.resolved = {"/workspace/link": "/workspace/other.txt"}
    assert "another place" in await refused(READ, ctx, file_path="link")


async def test_a_very_large_file_is_paged_in_the_container() -> None:
    """Only the lines asked for are fetched, by the container's own programs."""
    box = sandbox(b"x" * (WHOLE_BYTES + 1))
    asked: list[tuple[str, ...]] = []

    def bash(made: ProgramCall) -> ProgramOutput:
        asked.append(made.argv[4:])
        return ProgramOutput(b"90000\nline a\nline b\n")

    box.programs["bash"] = bash
    text = await said(READ, context(box), file_path="a.txt", offset=70000, limit=2)
    assert text == "70000\tline a\n70001\tline b\n\n[Lines 70000-70001 of 90,000. Go on with offset 70002.]"
    assert asked == [("/workspace/a.txt", "70000", "2", str(WHOLE_BYTES // 4))]
