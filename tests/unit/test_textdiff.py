"""Unified diffs: exact, in git's form, and bounded."""

from __future__ import annotations

import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sandbox_agent.workspaces.textdiff import Budget, Side, quote, unified

LINES = st.lists(st.sampled_from([b"a", b"b", b"c", b"", b"-- x", b"@@ -1 +1 @@", b"\\ No"]), max_size=40)


def side(data: bytes) -> Side:
    return Side(data, "100644")


def replay(before: bytes, diff: str) -> bytes:
    """Apply a diff strictly: every context and removed line must be where the hunk says."""
    old = before.split(b"\n")
    tail = old.pop()
    lines = [line + b"\n" for line in old] + ([tail] if tail else [])
    out: list[bytes] = []
    position = 0
    rows = diff.split("\n")
    index = next((n for n, row in enumerate(rows) if row.startswith("+++ ")), len(rows)) + 1
    while index < len(rows) and rows[index].startswith("@@ "):
        spans = [span[1:].split(",") for span in rows[index].split(" ")[1:3]]
        (old_start, old_count), (_, new_count) = [(int(s[0]), int(s[1]) if len(s) > 1 else 1) for s in spans]
        start = old_start - (1 if old_count else 0)
        out += lines[position:start]
        position = start
        index += 1
        while old_count or new_count or rows[index].startswith("\\"):
            row = rows[index]
            index += 1
            if row.startswith("\\"):
                continue
            text = row[1:].encode() + (b"" if rows[index].startswith("\\") else b"\n")
            if row[0] in " -":
                assert lines[position] == text
                position += 1
                old_count -= 1
            if row[0] in " +":
                out.append(text)
                new_count -= 1
    return b"".join(out + lines[position:])


@settings(derandomize=True, deadline=None)
@given(LINES, LINES, st.booleans(), st.booleans())
def test_a_diff_leads_from_one_text_to_the_other(a: list[bytes], b: list[bytes], a_end: bool, b_end: bool) -> None:
    """Whatever the lines are, with or without a last newline."""
    before = b"\n".join(a) + (b"\n" if a_end and a else b"")
    after = b"\n".join(b) + (b"\n" if b_end and b else b"")

    assert replay(before, unified("f", side(before), side(after), Budget())) == after


@settings(derandomize=True, deadline=None)
@given(LINES, LINES)
def test_the_coarse_diff_is_right_too(a: list[bytes], b: list[bytes]) -> None:
    """Without any budget for comparing, the middle is replaced as a whole."""
    before, after = b"\n".join(a), b"\n".join(b)

    assert replay(before, unified("f", side(before), side(after), Budget(pairs=-1))) == after


def test_hunks_have_three_lines_of_context() -> None:
    """Two far changes make two hunks."""
    before = [b"%d" % n for n in range(30)]
    after = [*before[:5], b"five", *before[6:25], *before[26:]]
    diff = unified("f", side(b"\n".join(before) + b"\n"), side(b"\n".join(after) + b"\n"), Budget())

    assert [line for line in diff.split("\n") if line and line[0] in "@+-"] == [
        "--- a/f",
        "+++ b/f",
        "@@ -3,7 +3,7 @@",
        "-5",
        "+five",
        "@@ -23,7 +23,6 @@",
        "-25",
    ]


def test_hostile_text_takes_no_time() -> None:
    """A quarter megabyte of repeated lines on both sides would keep difflib busy for minutes."""
    before = b"".join(b"%d\n" % (n * 7919 % 400) for n in range(60_000))
    after = b"".join(b"%d\n" % (n * 104729 % 400) for n in range(60_000))
    start = time.process_time()
    unified("f", side(before), side(after), Budget())

    assert time.process_time() - start < 5


@pytest.mark.parametrize(
    ("path", "shown"),
    [
        ("src/a.py", "src/a.py"),
        ("with space", "with space"),
        ("a\nb", '"a\\nb"'),
        ('q"\\', '"q\\"\\\\"'),
        ("\x1b[31m", '"\\033[31m"'),
        ("ünï", "ünï"),
        ("\u202ex", '"\\342\\200\\256x"'),
        ("\udcff", '"\\377"'),
    ],
)
def test_names_cannot_break_the_header(path: str, shown: str) -> None:
    """Names with anything but printable characters are quoted and escaped as git does."""
    assert quote(path) == shown


def test_bytes_that_are_no_text_are_shown_replaced() -> None:
    """A stray byte does not hide the rest of the file."""
    assert "+caf\ufffd\n" in unified("f", None, side(b"caf\xe9\n"), Budget())
