"""Unified diffs on a terminal."""

from __future__ import annotations

from sandbox_agent.frontends import diffs

TRICKY = "--- a/x\n+++ b/x\n@@ -1,2 +1,2 @@\n--- not a head\n+++ not one either\n same\n\\ No newline at end of file\n"


def test_a_removed_line_that_looks_like_a_head_is_still_a_removed_line() -> None:
    """Hunk sizes decide what is a head, not what a line begins with."""
    assert [line.kind for line in diffs.parse(TRICKY)] == ["h", "h", "@", "-", "+", " ", "\\"]


def test_added_and_removed_lines_are_counted() -> None:
    """Heads do not count."""
    assert diffs.counts(TRICKY) == (1, 1)


def test_lines_are_sanitised_and_coloured() -> None:
    """A control sequence in a changed line is an escape; the line has its colour."""
    shown = diffs.render("@@ -1 +1 @@\n-a\x1b[2J\n+b\n")

    assert shown.plain == "@@ -1 +1 @@\n-a\\x1b[2J\n+b"
    assert [str(span.style) for span in shown.spans] == ["cyan", "red", "green"]


def test_a_long_diff_says_how_much_is_left_out() -> None:
    """The last line counts what is not shown."""
    diff = "@@ -0,0 +1,9 @@\n" + "".join(f"+{n}\n" for n in range(9))

    assert diffs.render(diff, max_lines=4).plain == "@@ -0,0 +1,9 @@\n+0\n+1\n... 7 more lines"
