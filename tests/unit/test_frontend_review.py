"""The review at the end, at a real pseudo-terminal."""

from __future__ import annotations

import pytest
from frontend_person import END_OF_INPUT, person

from sandbox_agent.frontends.review import NOTHING, Choice, choose, select, show
from sandbox_agent.types import JsonObject


def change(path: str, kind: str = "modified", diff: str | None = None, **fields: object) -> JsonObject:
    """One entry of ReviewReady."""
    return {"path": path, "kind": kind, "entry": "file", "diff": diff, "danger": None, "note": None, **fields}


CHANGES = [
    change("src/a.py", diff="--- a/src/a.py\n+++ b/src/a.py\n@@ -1 +1 @@\n-1\n+2\n"),
    change(
        "run.sh",
        "added",
        "--- /dev/null\n+++ b/run.sh\n@@ -0,0 +1 @@\n+ls\n",
        danger="new executable",
        mode_after="0755",
    ),
    change("old.bin", "deleted", note="binary", size_before=2048),
    change("link", "link", entry="link"),
]

SHOWN = """\
4 paths changed:
    1  M src/a.py  +1 -1
    2  A run.sh  +1 -0  ! new executable
    3  D old.bin  (binary, was 2.0 KiB)
    4  * link  link

--- a/src/a.py
+++ b/src/a.py
@@ -1 +1 @@
-1
+2

--- /dev/null
+++ b/run.sh
@@ -0,0 +1 @@
+ls

Look at these before they reach your folder:
  ! run.sh: new executable
"""


def test_changes_are_listed_then_shown_and_what_is_dangerous_comes_last() -> None:
    """The whole screen."""
    with person() as (terminal, screen):
        show(terminal.printer, CHANGES)

    assert screen.getvalue() == SHOWN


def test_what_has_no_diff_has_its_sizes_and_what_others_changed_is_said() -> None:
    """Before and after; a link has none. Where the person changed the same path it stands beside it."""
    changes = [
        change("new.png", "added", note="binary", size_after=1),
        change("huge", note="larger than 256 KiB: only sizes are shown", size_before=999, size_after=5 * 1024**3),
        change("l", "link", entry="link", size_after=4),
        change("pipe", "other", entry="other", note="a FIFO, was a file"),
    ]
    with person() as (terminal, screen):
        show(terminal.printer, changes, drifted={"huge": "modified", "elsewhere": "deleted"})

    assert screen.getvalue().splitlines()[1:5] == [
        "    1  A new.png  (binary, 1 byte)",
        "    2  M huge  (larger than 256 KiB: only sizes are shown, 999 bytes -> 5.0 GiB)"
        "  ! changed in your folder too (modified)",
        "    3  * l  link",
        "    4  * pipe  (a FIFO, was a file)",
    ]


def test_hostile_names_and_contents_are_escaped() -> None:
    """A file name cannot move the cursor."""
    with person() as (terminal, screen):
        bad = "a\x1b[2J\r\u202e"
        show(terminal.printer, [change(bad, diff=f"@@ -1 +1 @@\n-{bad}\n+{bad}\n", danger=bad, note=bad, entry=bad)])

    assert not set(screen.getvalue()) & set("\x1b\r\u202e")


@pytest.mark.parametrize(
    ("typed", "choice"),
    [
        (["a"], Choice(None)),
        (["n"], NOTHING),
        ([END_OF_INPUT], NOTHING),
        (["s 1 3-4"], Choice(("src/a.py", "old.bin", "link"))),
        (["s", "src"], Choice(("src/a.py",))),
        (["s", "*.sh, link"], Choice(("run.sh", "link"))),
        (["s 1 nothing", "s 1"], Choice(("src/a.py",))),
        (["s 0", "s 5", "s", "", "a now", "", "n"], NOTHING),
        (["d 2", "a"], Choice(None)),
    ],
)
async def test_the_choice_is_what_was_typed(typed: list[str], choice: Choice) -> None:
    """All, none, or some by number, range, folder or pattern; anything unclear is asked again."""
    with person(*typed) as (terminal, screen):
        assert await choose(terminal, CHANGES) == choice

    assert screen.answers == []


async def test_a_word_that_fits_no_change_is_named() -> None:
    """Half of what was meant is never applied."""
    with person("s 1 nothing", "n") as (terminal, screen):
        await choose(terminal, CHANGES)

    assert "No change fits nothing." in screen.getvalue()


async def test_the_whole_diff_can_be_asked_for() -> None:
    """d N shows what the list cut."""
    long = change("long", diff="@@ -0,0 +1,300 @@\n" + "".join(f"+{n}\n" for n in range(300)))
    with person("d 1", "n") as (terminal, screen):
        show(terminal.printer, [long])
        assert "+299\n" not in screen.getvalue()
        await choose(terminal, [long])

    assert "+299\n" in screen.getvalue()


def test_a_file_named_like_a_number_is_meant_by_its_name() -> None:
    """The path wins over the position."""
    assert select([change("a"), change("1")], "1") == (("1",), ())
