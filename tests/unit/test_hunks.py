"""Choosing hunks: any subset gives exactly the text with those hunks."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sandbox_agent.workspaces.hunks import Span, hunks_of, pick, split
from sandbox_agent.workspaces.textdiff import Budget, Side, lines_of, unified

LINES = st.lists(
    st.sampled_from([b"a", b"b", b"c", b"", b"-- x", b"+", b"@@ -1 +1 @@", b"\\ No", b"\xff"]), max_size=50
)


def text(lines: list[bytes], ended: bool) -> bytes:
    return b"\n".join(lines) + (b"\n" if ended and lines else b"")


TEXTS = st.builds(text, LINES, st.booleans())


def diff(before: bytes, after: bytes) -> str:
    return unified("f", Side(before, "100644"), Side(after, "100644"), Budget())


def numbered(count: int, **changed: str) -> bytes:
    """Lines "0" to "count", some replaced; an empty replacement removes the line."""
    rows = [changed.get(f"n{n}", str(n)) for n in range(count)]
    return "".join(f"{row}\n" for row in rows if row).encode()


@settings(derandomize=True, deadline=None)
@given(TEXTS, TEXTS, st.randoms(use_true_random=False))
def test_any_choice_of_hunks_is_that_choice(before: bytes, after: bytes, random: object) -> None:
    """All give the new text, none the old, and some the text in which exactly those lines changed."""
    hunks = hunks_of(diff(before, after))
    chosen = [hunk for hunk in hunks if random.random() < 0.5]  # type: ignore[attr-defined]
    rest = [hunk for hunk in hunks if hunk not in chosen]

    assert pick(before, after, [hunk.span for hunk in hunks]) == after
    assert pick(before, after, []) == before
    partly = pick(before, after, [hunk.span for hunk in chosen])
    shift = 0
    for hunk in hunks:  # every hunk's place in the result holds its new lines if it was chosen, else its old ones
        side = after if hunk in chosen else before
        low, high = hunk.span[2:] if hunk in chosen else hunk.span[:2]
        start = hunk.span.old_start + shift
        shown = [line.rstrip(b"\n") for line in lines_of(partly)[start : start + high - low]]
        assert shown == [line.rstrip(b"\n") for line in lines_of(side)[low:high]]
        if hunk in chosen:
            shift += (hunk.span.new_end - hunk.span.new_start) - (hunk.span.old_end - hunk.span.old_start)
    again = hunks_of(diff(partly, after))
    assert bool(again) == bool(rest) or partly == after
    assert pick(partly, after, [hunk.span for hunk in again]) == after


@settings(derandomize=True, deadline=None)
@given(TEXTS, TEXTS, st.randoms(use_true_random=False))
def test_parts_of_a_hunk_can_be_chosen_too(before: bytes, after: bytes, random: object) -> None:
    """Split hunks cover what the whole one did, and any of them goes alone."""
    parts = [part for hunk in hunks_of(diff(before, after)) for part in split(hunk)]
    chosen = [part for part in parts if random.random() < 0.5]  # type: ignore[attr-defined]

    assert pick(before, after, [part.span for part in parts]) == after
    partly = pick(before, after, [part.span for part in chosen])
    rest = hunks_of(diff(partly, after))
    assert pick(partly, after, [hunk.span for hunk in rest]) == after


def test_a_hunk_is_shown_as_it_was_in_the_diff() -> None:
    """The hunks, joined, are the diff without its head."""
    shown = diff(numbered(40), numbered(40, n3="three", n20="", n22="x"))
    hunks = hunks_of(shown)

    assert len(hunks) == 2
    assert shown.endswith("+++ b/f\n" + "\n".join(hunk.text for hunk in hunks) + "\n")


def test_splitting_separates_what_unchanged_lines_separate() -> None:
    """Two changes with a line between are two parts; one change is itself."""
    [hunk] = hunks_of(diff(numbered(9), numbered(9, n3="three", n5="")))
    parts = split(hunk)

    assert [part.text for part in parts] == [
        "@@ -1,4 +1,4 @@\n 0\n 1\n 2\n-3\n+three",
        "@@ -5,5 +5,4 @@\n 4\n-5\n 6\n 7\n 8",
    ]
    assert [split(part) for part in parts] == [(part,) for part in parts]


def test_a_line_without_a_newline_gets_one_when_lines_follow() -> None:
    """The last line of the old text, kept, before lines of the new one."""
    before, after = b"a\nlast", b"a\nlast\nmore\n"

    assert pick(before, after, [Span(2, 2, 2, 3)]) == b"a\nlast\nmore\n"


@pytest.mark.parametrize("spans", [[(0, 2, 0, 1), (1, 2, 0, 1)], [(0, 9, 0, 1)], [(0, 1, 0, 9)], [(-1, 0, 0, 0)]])
def test_ranges_that_are_no_hunks_are_refused(spans: list[tuple[int, int, int, int]]) -> None:
    """Overlapping, or beyond the text."""
    with pytest.raises(ValueError, match="no hunk"):
        pick(b"a\nb\n", b"c\n", [Span(*span) for span in spans])


def test_text_that_differs_in_stray_bytes_only_has_a_hunk() -> None:
    """Bytes that show alike are still told apart."""
    before, after = b"\xff\n", b"\xfe\n"

    assert pick(before, after, [hunk.span for hunk in hunks_of(diff(before, after))]) == after
