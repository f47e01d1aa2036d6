"""The terminal of a chat: what keys mean, output above the input line, and questions that no typed text answers."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
import pytest
from chat_rig import (
    ALT_ENTER,
    CTRL_C,
    CTRL_D,
    ENTER,
    ESC,
    QUIET,
    UP,
    Desk,
    Noted,
    at_desk,
    drawing,
    pasted,
)

from sandbox_agent.frontends.chat_screen import Quiet


@asynccontextmanager
async def drawn(folder: Path, person: Noted, quiet: Quiet = QUIET) -> AsyncIterator[Desk]:
    async with at_desk(folder, quiet) as desk, drawing(desk, person):
        yield desk


async def test_enter_sends_and_a_message_can_have_several_lines(tmp_path: Path) -> None:
    """By Alt-Enter, by a backslash at the end of a line, and by a paste; only Enter sends."""
    person = Noted()
    async with drawn(tmp_path, person) as desk:
        desk.type(f"one{ALT_ENTER}two\\{ENTER}three " + pasted("four\nfive") + ENTER)
        await desk.until(lambda: bool(person.said))

    assert person.said == ["one\ntwo\nthree four\nfive"]


async def test_a_blank_line_sends_nothing_and_up_brings_back_what_was_sent(tmp_path: Path) -> None:
    """Blanks are no message; the arrow finds the last one."""
    person = Noted()
    async with drawn(tmp_path, person) as desk:
        desk.type(f"  {ENTER}first{ENTER}")
        await desk.until(lambda: bool(person.said))
        await desk.settle()
        desk.type(UP)
        await desk.shows("> first")
        desk.type(f"!{ENTER}")
        await desk.until(lambda: len(person.said) == 2)

    assert person.said == ["first", "first!"]


async def test_output_goes_above_whole_line_by_whole_line(tmp_path: Path) -> None:
    """A line that still grows is drawn above the input; at the end nothing of it is lost."""
    person = Noted()
    async with drawn(tmp_path, person) as desk:
        desk.type("half a message")
        await desk.shows("> half a message")
        desk.screen.printer.stream("grows")
        await desk.shows("grows\n> half a message\nstatus line")
        assert desk.paper.getvalue() == ""
        desk.screen.printer.stream(" on\nand ")
        await desk.until(lambda: desk.paper.getvalue() == "grows on\n")
        await desk.shows("and\n> half a message")

    assert desk.paper.getvalue() == "grows on\nand "


async def test_of_a_very_long_line_the_end_is_drawn(tmp_path: Path) -> None:
    """All of it is printed once it ends."""
    async with drawn(tmp_path, Noted()) as desk:
        desk.screen.printer.stream("x" * 100_000)
        desk.screen.printer.stream("the end", "bold")
        await desk.shows("the end\n>")
        assert len(desk.drawn()) < 3000
        desk.screen.printer.break_line()
        await desk.until(lambda: len(desk.paper.getvalue()) > 100_000)


async def test_what_was_pasted_is_shown_harmless_and_sent_as_it_is(tmp_path: Path) -> None:
    """Escapes and characters that reorder text."""
    person = Noted()
    evil = "a\x1b[2Jb\u202ec"
    async with drawn(tmp_path, person) as desk:
        desk.type(pasted(evil))
        await desk.shows("> a\\x1b[2Jb\\u202ec")
        desk.type(ENTER)
        await desk.until(lambda: bool(person.said))

    assert person.said == [evil]


async def test_a_question_takes_over_the_line_and_gives_it_back(tmp_path: Path) -> None:
    """What was half written is there again after the answer, and the log has the question with its answer."""
    person = Noted()
    async with drawn(tmp_path, person) as desk:
        desk.type("draft")
        await desk.shows("> draft")
        async with anyio.create_task_group() as group:

            async def ask() -> None:
                await desk.screen.attention()
                assert await desk.screen.ask("[y/n] > ") == "y"

            group.start_soon(ask)
            await desk.shows("[y/n] >")
            assert "draft" not in desk.drawn()
            desk.type(f" y {ENTER}")
        await desk.shows("> draft")

    assert person.said == []
    assert desk.paper.getvalue() == "[y/n] >  y \n"


async def test_a_question_waits_until_nobody_types(tmp_path: Path) -> None:
    """A line that is entered while it waits is a message; it takes over only a while after the last key."""
    person = Noted()
    async with drawn(tmp_path, person) as desk, anyio.create_task_group() as group:
        ready_s: list[float] = []

        async def ask() -> None:
            await desk.screen.attention()
            ready_s.append(anyio.current_time())

        desk.type("yes, and")
        await desk.shows("> yes, and")
        group.start_soon(ask)
        await desk.shows("a question comes up")
        desk.type(f" more{ENTER}n")
        await desk.until(lambda: bool(person.said))
        typed_s = anyio.current_time()
        await desk.until(lambda: bool(ready_s))

        assert person.said == ["yes, and more"]
        assert ready_s[0] - typed_s >= QUIET.draft_s - 0.05
        await desk.shows("> n")


async def test_a_letter_entered_while_a_question_comes_up_is_nothing(tmp_path: Path) -> None:
    """It may have been meant for a question before: it is neither sent nor kept for this one."""
    person = Noted()
    async with drawn(tmp_path, person, Quiet(1.0, 1.0)) as desk, anyio.create_task_group() as group:
        group.start_soon(desk.screen.attention)
        await desk.shows("a question comes up")
        desk.type(f"y{ENTER}")
        await desk.shows("status line")

        assert person.said == []
        assert desk.drawn().startswith(">\n")


@pytest.mark.parametrize("key", [CTRL_D, ESC, CTRL_C])
async def test_a_question_can_be_left_open(tmp_path: Path, key: str) -> None:
    """At the end of input, and where nothing runs that could be stopped, there is no answer."""
    async with drawn(tmp_path, Noted()) as desk, anyio.create_task_group() as group:

        async def ask() -> None:
            assert await desk.screen.ask("[y/n] > ") is None

        group.start_soon(ask)
        await desk.shows("[y/n] >")
        desk.type(key)


async def test_esc_and_ctrl_c_stop_what_runs_and_keep_what_is_written(tmp_path: Path) -> None:
    """The second Ctrl-C within a moment leaves, and says that it did."""
    person = Noted()
    person.busy = True
    async with drawn(tmp_path, person) as desk:
        desk.type("draft")
        desk.type(ESC)
        await desk.until(lambda: person.stopped == 1)
        desk.type(CTRL_C)
        await desk.shows("> draft\nCtrl-C once more leaves")
        assert (person.stopped, person.left) == (2, [])
        desk.type(CTRL_C)
        await desk.until(lambda: bool(person.left))

    assert person.left[0] is True


async def test_ctrl_c_at_rest_forgets_the_line_and_ctrl_d_leaves_from_an_empty_one(tmp_path: Path) -> None:
    """Within a line Ctrl-D removes a character, as in a shell."""
    person = Noted()
    async with drawn(tmp_path, person) as desk:
        desk.type("draft")
        await desk.shows("> draft")
        desk.type(CTRL_C)
        await desk.shows(">\n")
        desk.type("ab\x01" + CTRL_D + ENTER)
        await desk.until(lambda: bool(person.said))
        assert (person.said, person.left) == (["b"], [])
        desk.type(CTRL_D)
        await desk.until(lambda: bool(person.left))

    assert person.left == [False]


async def test_a_terminal_that_is_hung_up_is_the_end(tmp_path: Path) -> None:
    """Whoever waits for an answer gets none."""
    person = Noted()
    with anyio.fail_after(10):
        async with drawn(tmp_path, person) as desk, anyio.create_task_group() as group:

            async def ask() -> None:
                assert await desk.screen.ask("[y/n] > ") is None

            group.start_soon(ask)
            await desk.shows("[y/n] >")
            desk.hang_up()

    assert person.left == [False]
