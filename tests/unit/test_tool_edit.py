"""Edit on a sandbox in memory: exact, unique, and not a byte changed outside the match."""

from __future__ import annotations

import errno
import os

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sandbox_agent.sandboxes.fake import FakeSandbox
from sandbox_agent.testing.tool_calls import call, context, refused, said
from sandbox_agent.tools.base import ToolContext
from sandbox_agent.tools.edit import TOOL as EDIT
from sandbox_agent.tools.read import TOOL as READ
from sandbox_agent.tools.splice import find, find_apart, splice

PATH = "/workspace/f.txt"


async def known(data: bytes, path: str = PATH) -> tuple[FakeSandbox, ToolContext]:
    """A file the model has read."""
    box = FakeSandbox({path: data})
    ctx = context(box)
    await call(READ, ctx, {"file_path": path, "limit": 100_000})
    assert path in ctx.known_files
    return box, ctx


@pytest.mark.parametrize(
    ("before", "old", "new", "after"),
    [
        (b"one\r\n\ttwo\r\nthree\r\n", "one\n\ttwo", "one\n\tTWO\n\textra", b"one\r\n\tTWO\r\n\textra\r\nthree\r\n"),
        (b"one\r\ntwo\r\n", "two", "two\nthree", b"one\r\ntwo\r\nthree\r\n"),
        (b"one\r\ntwo", "two", "two\nthree", b"one\r\ntwo\r\nthree"),
        (b"one\r\ntwo\r\n", "one\r\ntwo", "1\r\n2", b"1\r\n2\r\n"),
        (b"one\ntwo\n", "two", "two\r\nthree", b"one\ntwo\r\nthree\n"),
        (b"one\ntwo\n", "\ntwo\n", "\n", b"one\n"),
        (b"one\r\ntwo\r\n", "\ntwo\n", "\n", b"one\r\n"),
        (b"a\r\nb\nc\n", "b\nc", "b\nX\nc", b"a\r\nb\nX\nc\n"),
        (b"a\r\nb\nc\n", "a\nb\nc", "b\nc", b"b\nc\n"),
        (b"a\r\nb\nc\n", "a\nb\nc\n", "a\nX\nb\nc\n", b"a\r\nX\r\nb\nc\n"),
        (b"\xef\xbb\xbfhello\n\xe4\xb8\xad\n", "hello", "hello2", b"\xef\xbb\xbfhello2\n\xe4\xb8\xad\n"),
        (b"const x = 1;\n// caf\xe9 note\n", "const x = 1;", "const x = 2;", b"const x = 2;\n// caf\xe9 note\n"),
        (b"a\0b\rc\n" * 1 + b"\xff" * 3, "c", "d", b"a\0b\rd\n\xff\xff\xff"),
        (b"no newline", "no newline", "a\nb", b"a\nb"),
        ("\u4e2d\u6587".encode(), "\u4e2d", "\u6587", "\u6587\u6587".encode()),
        (b"x = 'a.b*c'\n", "a.b*c", r"\1\g<0>$&", rb"x = '\1\g<0>$&'" + b"\n"),
        (b"keep\ngone\n", "gone\n", "", b"keep\n"),
    ],
)
def test_every_other_byte_stays(before: bytes, old: str, new: str, after: bytes) -> None:
    """Line ends of the place, BOM, encodings, control bytes; the new text is literal."""
    spans = find(before, old.encode())
    assert len(spans) == 1
    assert splice(before, spans, old.encode(), new.encode()) == after


ENDS = st.sampled_from([b"\n", b"\r\n"])
LINES = st.lists(st.tuples(st.binary(max_size=6).filter(lambda raw: not {10, 13} & set(raw)), ENDS), max_size=8)
TEXT = st.text(alphabet="abM \t$\\\u00e9\n", min_size=1, max_size=12)


@given(head=LINES, tail=LINES, old=TEXT, new=TEXT, end=ENDS)
def test_bytes_outside_the_match_never_change(
    head: list[tuple[bytes, bytes]], tail: list[tuple[bytes, bytes]], old: str, new: str, end: bytes
) -> None:
    """Whatever surrounds a match, and whatever replaces it: head and tail are the same bytes afterwards."""
    left, right = (b"".join(text + ending for text, ending in lines) for lines in (head, tail))
    there = old.encode().replace(b"\n", end)
    data = left + there + right
    for span in find(data, old.encode()):
        after = splice(data, [span], old.encode(), new.encode())
        assert after.startswith(data[: span.start])
        assert after.endswith(data[span.end :])
        middle = after[span.start : len(after) - (len(data) - span.end)]
        assert middle.replace(b"\r\n", b"\n") == new.encode()
    assert any(data[span.start : span.end] == there for span in find(data, old.encode()))


@given(data=st.binary(max_size=60), old=TEXT, new=TEXT)
def test_replacing_all_leaves_no_gap_and_no_overlap(data: bytes, old: str, new: str) -> None:
    """The pieces between the matches are all there, in order."""
    spans = find_apart(data, old.encode(), at_most=100)
    after = splice(data, spans, old.encode(), new.encode())
    position = 0
    for start, end in zip(
        [0, *(span.end for span in spans)], [*(span.start for span in spans), len(data)], strict=True
    ):
        found = after.find(data[start:end], position)
        assert found >= position
        position = found + (end - start)


@pytest.mark.parametrize("replace_all", [False, True])
async def test_the_new_text_is_literal(replace_all: bool) -> None:
    """Nothing in it is expanded."""
    box, ctx = await known(b'log("done");\n')
    new = 'log("$& $$ $1 \\1 \\g<0> \\n ok");'
    await said(EDIT, ctx, file_path=PATH, old_string='log("done");', new_string=new, replace_all=replace_all)
    assert box.files.data(PATH) == new.encode() + b"\n"


async def test_an_edit_says_where_and_shows_its_diff() -> None:
    """The line for the model, the diff for the person; the next edit builds on it."""
    _, ctx = await known(b"a\nb\nc\n")
    result = await call(EDIT, ctx, {"file_path": PATH, "old_string": "b", "new_string": "B"})
    assert result.content == f"Updated {PATH}: replaced 1 occurrence, in line 2."
    assert result.meta == {
        "diff": f"--- {PATH}\n+++ {PATH}\n@@ -1,3 +1,3 @@\n a\n-b\n+B\n c\n",
        "changed": [PATH],
        "replaced": 1,
    }
    await said(EDIT, ctx, file_path=PATH, old_string="B\nc", new_string="d")


async def test_replace_all_replaces_every_occurrence() -> None:
    """And says how many and where."""
    box, ctx = await known(b"x = 1\ny\nx = 1\n")
    text = await said(EDIT, ctx, file_path=PATH, old_string="x = 1", new_string="z", replace_all=True)
    assert text.endswith("replaced 2 occurrences, in lines 1, 3.")
    assert box.files.data(PATH) == b"z\ny\nz\n"


async def test_replace_all_means_all_however_many() -> None:
    """Not the first few thousand."""
    box, ctx = await known(b"ab\n" * 30_000)
    text = await said(EDIT, ctx, file_path=PATH, old_string="a", new_string="xy", replace_all=True)
    assert "replaced 30000 occurrences" in text
    assert box.files.data(PATH) == b"xyb\n" * 30_000


async def test_too_many_matches_to_replace_at_once_change_nothing() -> None:
    """Part of them would be worse."""
    box, ctx = await known(b"a" * 300_000)
    text = await refused(EDIT, ctx, file_path=PATH, old_string="a", new_string="b", replace_all=True)
    assert "more than 200,000 times" in text
    assert box.files.data(PATH) == b"a" * 300_000
    text = await refused(EDIT, ctx, file_path=PATH, old_string="a", new_string="b")
    assert "occurs at least 10,000 times" in text


async def test_a_miss_shows_the_nearest_line_with_visible_space() -> None:
    """No fuzzy write; the difference can be seen."""
    box, ctx = await known(b"def f():\n   beta_line\n\tgamma\n")
    text = await refused(EDIT, ctx, file_path=PATH, old_string="    beta_line", new_string="x")
    assert "2 ···beta_line" in text
    assert "····beta_line\n" in text + "\n"
    tabs = await refused(EDIT, ctx, file_path=PATH, old_string="  gamma", new_string="x")
    assert "3 →gamma" in tabs
    assert box.files.data(PATH) == b"def f():\n   beta_line\n\tgamma\n"


async def test_a_miss_of_many_lines_shows_where_they_part() -> None:
    """Lines that agree are left out but for the last."""
    lines = [f"line number {n}" for n in range(40)]
    _, ctx = await known("\n".join(lines).encode())
    old = "\n".join([*lines[5:25], "line number 25 is other", *lines[26:30]])
    text = await refused(EDIT, ctx, file_path=PATH, old_string=old, new_string="x")
    assert "25 line·number·24\n  26 line·number·25\n" in text
    assert "line·number·25·is·other" in text
    assert "number·10" not in text


async def test_a_miss_without_anything_alike_says_so() -> None:
    """No line is made up."""
    _, ctx = await known(b"alpha\nbeta\n")
    assert "No line of the file is like it" in await refused(
        EDIT, ctx, file_path=PATH, old_string="0123456789", new_string="x"
    )


@pytest.mark.parametrize(
    ("data", "old", "numbers"),
    [(b"x = 1\ny\nx = 1\n", "x = 1", "2 times in {} in lines 1, 3"), (b"aaa\n", "aa", "2 times in {} in lines 1, 1")],
)
async def test_an_ambiguous_text_names_its_lines(data: bytes, old: str, numbers: str) -> None:
    """Overlapping matches are ambiguous, too."""
    box, ctx = await known(data)
    text = await refused(EDIT, ctx, file_path=PATH, old_string=old, new_string="z")
    assert numbers.replace(" in {} in", f" in {PATH}, in") in text
    assert "replace_all" in text
    assert box.files.data(PATH) == data


async def test_an_unread_file_is_not_edited() -> None:
    """Reading comes first, and then the same call works."""
    box = FakeSandbox({PATH: b"a\n"})
    ctx = context(box)
    assert "Read it first" in await refused(EDIT, ctx, file_path=PATH, old_string="a", new_string="b")
    await said(READ, ctx, file_path=PATH)
    await said(EDIT, ctx, file_path=PATH, old_string="a", new_string="b")


async def test_a_stale_file_shows_its_lines_and_the_same_call_again_is_told_so() -> None:
    """First the current text, then a distinct answer; after Read a right edit goes through."""
    box, ctx = await known(b"def f(a,b):\n    return a+b\n")
    box.files.put(PATH, b"# formatted\ndef f(a, b):\n    return a + b\n")
    edit = {"file_path": PATH, "old_string": "return a+b", "new_string": "return a-b"}
    first = await refused(EDIT, ctx, **edit)
    assert "has changed since" in first
    assert "3\t    return a + b" in first
    assert "already failed" not in first
    assert "already failed (2 times now)" in await refused(EDIT, ctx, **edit)
    assert "already failed (3 times now)" in await refused(EDIT, ctx, **edit)
    await said(READ, ctx, file_path=PATH)
    await said(EDIT, ctx, file_path=PATH, old_string="return a + b", new_string="return a - b")
    assert box.files.data(PATH) == b"# formatted\ndef f(a, b):\n    return a - b\n"


async def test_a_stale_file_is_not_edited_even_where_the_text_is_still_there() -> None:
    """What else changed the model has not seen."""
    box, ctx = await known(b"a\nb\n")
    box.files.put(PATH, b"a\nB\n")
    assert "has changed since" in await refused(EDIT, ctx, file_path=PATH, old_string="a", new_string="x")


async def test_a_touched_file_is_edited() -> None:
    """Staleness goes by content, not by time."""
    box, ctx = await known(b"a\n")
    box.files.put(PATH, b"a\n")
    await said(EDIT, ctx, file_path=PATH, old_string="a", new_string="b")


async def test_a_change_between_look_and_write_is_not_overwritten() -> None:
    """Compare and swap: the write is refused, and not tried again."""

    class Racing(FakeSandbox):
        async def read_file(self, path: str, **options: object):  # type: ignore[no-untyped-def, override]
            content = await super().read_file(path, **options)  # type: ignore[arg-type]
            self.files.put(path, b"other\n")
            return content

    box = Racing({PATH: b"a\n"})
    ctx = context(box)
    await said(READ, ctx, file_path=PATH)
    box.files.put(PATH, b"a\n")
    text = await refused(EDIT, ctx, file_path=PATH, old_string="a", new_string="b")
    assert "by something else meanwhile" in text
    assert box.files.data(PATH) == b"other\n"


@pytest.mark.parametrize(
    ("old", "new", "why"),
    [
        ("const", "caf\u00e9", "not UTF-8 (byte 10)"),
        ("caf\ufffd", "cafe", "stands for other bytes"),
        ("x", "x", "are the same"),
    ],
)
async def test_what_cannot_be_done_exactly_is_refused(old: str, new: str, why: str) -> None:
    """No UTF-8 in a file of another encoding; no replacement character as if it were text."""
    data = b"const /caf\xe9 x\n"
    box, ctx = await known(data)
    assert why in await refused(EDIT, ctx, file_path=PATH, old_string=old, new_string=new)
    assert box.files.data(PATH) == data


async def test_an_empty_old_text_creates_a_file_but_replaces_none() -> None:
    """Only where nothing is."""
    box = FakeSandbox({PATH: b""})
    ctx = context(box)
    await said(EDIT, ctx, file_path="new/file.txt", old_string="", new_string="x\n")
    assert box.files.data("/workspace/new/file.txt") == b"x\n"
    assert "already there" in await refused(EDIT, ctx, file_path=PATH, old_string="", new_string="x")
    await said(EDIT, ctx, file_path="new/file.txt", old_string="x", new_string="y")


async def test_a_missing_file_is_an_error() -> None:
    """With a text to replace there must be a file."""
    text = await refused(EDIT, context(FakeSandbox()), file_path="nosuch.txt", old_string="a", new_string="b")
    assert "does not exist" in text


async def test_a_notebook_is_pointed_out() -> None:
    """Read shows cells, Edit works on the JSON."""
    _, ctx = await known(b'{"cells": [{"source": ["a\\n"]}]}', "/workspace/n.ipynb")
    assert "raw JSON" in await refused(EDIT, ctx, file_path="n.ipynb", old_string="cell 0", new_string="b")


async def test_a_full_disk_is_said_and_nothing_is_lost() -> None:
    """The file stays as it was, and known: once there is room the same call works."""

    class Full(FakeSandbox):
        room = False

        async def replace_file(self, path: str, data: bytes, **options: object):  # type: ignore[no-untyped-def, override]
            if not self.room:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), path)
            return await super().replace_file(path, data, **options)  # type: ignore[arg-type]

    box = Full({PATH: b"a\n"})
    ctx = context(box)
    await said(READ, ctx, file_path=PATH)
    assert "disk limit" in await refused(EDIT, ctx, file_path=PATH, old_string="a", new_string="b")
    assert box.files.data(PATH) == b"a\n"
    box.room = True
    await said(EDIT, ctx, file_path=PATH, old_string="a", new_string="b")


async def test_a_large_file_with_many_like_lines_answers_soon() -> None:
    """A miss in 100,000 lines takes well under the patience of a person."""
    data = b"".join(b"value_%d = compute(%d)\n" % (n, n) for n in range(100_000))
    _, ctx = await known(data)
    text = await refused(EDIT, ctx, file_path=PATH, old_string="value_77777 =  compute(77777)", new_string="x")
    assert "77778 value_77777·=·compute(77777)" in text
