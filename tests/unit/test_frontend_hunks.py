"""Choosing hunk by hunk, at a real pseudo-terminal."""

from __future__ import annotations

import pytest
from frontend_person import END_OF_INPUT, person

from sandbox_agent.frontends.hunk_choice import ByHunk, choose_hunks
from sandbox_agent.frontends.review import Choice, choose
from sandbox_agent.types import JsonObject
from sandbox_agent.workspaces.hunks import hunks_of, pick, split
from sandbox_agent.workspaces.textdiff import Budget, Side, unified

BEFORE = "".join(f"{n}\n" for n in range(40)).encode()
AFTER = BEFORE.replace(b"3\n4\n5\n", b"three\n4\nfive\n").replace(b"\n30\n", b"\n30\nmore\n")
DIFF = unified("f", Side(BEFORE, "100644"), Side(AFTER, "100644"), Budget())
FIRST, SECOND = hunks_of(DIFF)
THREE, FIVE = split(FIRST)

FILE: JsonObject = {"path": "f", "kind": "modified", "entry": "file", "diff": DIFF, "danger": "a build runs it"}
GONE: JsonObject = {"path": "old.bin", "kind": "deleted", "entry": "file", "diff": None, "note": "binary"}
LINK: JsonObject = {"path": "l", "kind": "added", "entry": "link", "diff": None, "danger": "a link to /etc"}


@pytest.mark.parametrize(
    ("typed", "chosen"),
    [
        (["y", "y", "y"], ByHunk(("f", "old.bin"), {})),
        (["y", "n", "n"], ByHunk((), {"f": (FIRST.span,)})),
        (["n", "y", "y"], ByHunk(("old.bin",), {"f": (SECOND.span,)})),
        (["a", "n"], ByHunk(("f",), {})),
        (["n", "a", "n"], ByHunk((), {"f": (SECOND.span,)})),
        (["y", "d", "y"], ByHunk(("old.bin",), {"f": (FIRST.span,)})),
        (["d", "d"], ByHunk((), {})),
        (["y", "q"], ByHunk((), {"f": (FIRST.span,)})),
        (["s", "y", "n", "n", "n"], ByHunk((), {"f": (THREE.span,)})),
        (["s", "n", "y", "y", "n"], ByHunk((), {"f": (FIVE.span, SECOND.span)})),
        (["s", "y", "y", "y", "n"], ByHunk(("f",), {})),
        (["?", "what", "n", "s", "n", "n"], ByHunk((), {})),
        (["y", END_OF_INPUT], ByHunk((), {"f": (FIRST.span,)})),
    ],
)
async def test_the_letters_mean_what_git_means_by_them(typed: list[str], chosen: ByHunk) -> None:
    """All hunks of a file are the whole file; anything unclear is asked again; end of input leaves the rest."""
    with person(*typed) as (terminal, screen):
        assert await choose_hunks(terminal, [FILE, GONE]) == chosen

    assert screen.answers == []


async def test_each_hunk_is_shown_before_it_is_asked_about() -> None:
    """With the file's danger first, and nothing of the hunks that come later."""
    with person("q") as (terminal, screen):
        await choose_hunks(terminal, [FILE])

    shown = screen.getvalue()
    assert "! a build runs it\n@@ -1,9 +1,9 @@" in shown
    assert "+three" in shown
    assert "+more" not in shown
    assert "(1/2) Apply this hunk of f? [y,n,q,a,d,s,?] > " in shown


async def test_a_link_that_is_said_yes_to_is_named() -> None:
    """It was asked about by its own path."""
    with person("y") as (terminal, _):
        assert await choose_hunks(terminal, [LINK]) == ByHunk(("l",), {})


async def test_hunks_can_be_chosen_from_the_review() -> None:
    """h asks about all, h with a pattern about those; the choice leads to exactly that text."""
    with person("h f", "n", "y") as (terminal, _):
        choice = await choose(terminal, [GONE, FILE])
    assert choice == Choice((), {"f": (SECOND.span,)})
    assert pick(BEFORE, AFTER, choice.hunks["f"]) == BEFORE.replace(b"\n30\n", b"\n30\nmore\n")

    with person("h", "y", "d") as (terminal, _):
        assert await choose(terminal, [GONE, FILE]) == Choice(("old.bin",), {})


async def test_hostile_names_are_escaped_in_the_question() -> None:
    """A path cannot move the cursor, nor draw an answer."""
    with person("n") as (terminal, screen):
        await choose_hunks(terminal, [{**GONE, "path": "a\x1b[2J\n> y\r", "note": "\x1b[1m"}])

    assert not set(screen.getvalue()) & set("\x1b\r")


async def test_folders_and_patterns_leave_links_out() -> None:
    """They are named in a line, and go by their own path."""
    link = {**LINK, "path": "d/l"}
    with person("s d *", "n") as (terminal, screen):
        await choose(terminal, [link])
    assert "The link d/l goes only when its own path is named." in screen.getvalue()

    with person("s d/l") as (terminal, _):
        assert await choose(terminal, [link]) == Choice(("d/l",))


async def test_the_help_has_the_letters_that_are_offered() -> None:
    """Splitting is only in it where there is something to split."""
    with person("?", "n", "?", "q") as (terminal, screen):
        await choose_hunks(terminal, [FILE])

    first, second = screen.getvalue().split("(2/2) Apply this hunk", 1)
    assert ("s  split" in first, "s  split" in second) == (True, False)
    assert "d  leave this hunk" in second
