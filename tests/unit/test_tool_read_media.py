"""Read on a sandbox in memory: pictures, documents, notebooks."""

from __future__ import annotations

import base64
import json
import struct

import pytest

from sandbox_agent.sandboxes.fake import FakeSandbox
from sandbox_agent.sandboxes.fake_shell import ProgramCall, ProgramOutput
from sandbox_agent.testing.tool_calls import call, context, refused, said
from sandbox_agent.tools.read import TOOL as READ

PNG = b"\x89PNG\r\n\x1a\n" + struct.pack(">I4sII", 13, b"IHDR", 2, 3) + b"\x08\x06\x00\x00\x00" + bytes(40)
GIF = b"GIF89a" + struct.pack("<HH", 4, 5) + bytes(20)
JPEG = (
    b"\xff\xd8\xff\xe0" + struct.pack(">H", 16) + bytes(14) + b"\xff\xc0" + struct.pack(">HBHH", 17, 8, 7, 9) + bytes(9)
)
WEBP = b"RIFF" + bytes(4) + b"WEBPVP8X" + bytes(8) + (9).to_bytes(3, "little") + (8).to_bytes(3, "little") + bytes(9)


def sandbox(data: bytes, path: str = "/workspace/a.txt") -> FakeSandbox:
    return FakeSandbox({path: data})


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
