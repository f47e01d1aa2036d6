"""Read on a sandbox in memory: pages of lines, caps, refusals, and what cannot be read."""

from __future__ import annotations

import hashlib
import random

import pytest

from sandbox_agent.sandboxes.fake import FakeSandbox
from sandbox_agent.sandboxes.fake_shell import ProgramCall, ProgramOutput
from sandbox_agent.testing.tool_calls import HOST_FOLDER, context, refused, said
from sandbox_agent.tools.read import TOOL as READ
from sandbox_agent.tools.read import WHOLE_BYTES


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
