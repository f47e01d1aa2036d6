"""A chat's terminal without one: keys come through a pipe, what is drawn and printed can be read and waited for."""

from __future__ import annotations

import io
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
from prompt_toolkit.application import create_app_session
from prompt_toolkit.completion import Completer, DummyCompleter
from prompt_toolkit.input import PipeInput, create_pipe_input
from prompt_toolkit.output import DummyOutput

from sandbox_agent.frontends.chat_history import ChatHistory
from sandbox_agent.frontends.chat_screen import ChatScreen, Quiet

ENTER, ALT_ENTER, ESC, TAB, CTRL_C, CTRL_D, UP = "\r", "\x1b\r", "\x1b", "\t", "\x03", "\x04", "\x1b[A"
QUIET = Quiet(0.05, 1.0)


def pasted(text: str) -> str:
    """What a terminal sends for a paste."""
    return f"\x1b[200~{text}\x1b[201~"


class Glass(DummyOutput):
    """What is drawn on; as the terminal of a chat it is not asked how much room there is."""

    def get_rows_below_cursor_position(self) -> int:
        raise NotImplementedError


class Paper(io.StringIO):
    """A terminal's paper: what was printed."""

    def isatty(self) -> bool:
        return True


class Noted:
    """A `Person` that notes what the keys meant. `busy` says whether there is something to interrupt."""

    def __init__(self) -> None:
        self.said: list[str] = []
        self.busy = False
        self.left: list[bool] = []
        self.stopped = 0
        self.lines: Sequence[str] = ()

    def submit(self, text: str) -> None:
        self.said.append(text)

    def interrupt(self) -> bool:
        self.stopped += self.busy
        return self.busy

    def leave(self, *, interrupted: bool = False) -> None:
        self.left.append(interrupted)

    def status(self) -> str:
        return "status line"

    def notes(self) -> Sequence[str]:
        return self.lines


class Desk:
    """The screen, and the test's side of it."""

    def __init__(self, screen: ChatScreen, paper: Paper, keys: PipeInput, history: ChatHistory) -> None:
        self.screen = screen
        self.history = history
        self.paper = paper
        self._keys = keys
        self._drawn = anyio.Event()

    def type(self, keys: str) -> None:
        self._keys.send_text(keys)

    def hang_up(self) -> None:
        self._keys.close()

    def drawn(self) -> str:
        """The rows below the printed text, as they were drawn last."""
        app = self.screen._app
        drawn = app.renderer.last_rendered_screen if app is not None else None
        if drawn is None:
            return ""
        cells = (drawn.data_buffer[y] for y in range(drawn.height))
        rows = ("".join(row[x].char for x in range(max(row, default=-1) + 1)) for row in cells)
        return "\n".join(row.rstrip() for row in rows)

    async def until(self, holds: Callable[[], bool]) -> None:
        """Wait, from one drawing to the next, until something holds."""
        with anyio.fail_after(10):
            while not holds():
                self._drawn = anyio.Event()
                self.screen.refresh()
                await self._drawn.wait()

    async def shows(self, text: str) -> None:
        """Wait until it is drawn."""
        await self.until(lambda: text in self.drawn())

    async def printed(self, text: str) -> None:
        """Wait until it was printed."""
        await self.until(lambda: text in self.paper.getvalue())

    async def settle(self) -> None:
        """Wait until it was drawn anew and nobody has anything to do (loading the history among it)."""
        self._drawn = anyio.Event()
        self.screen.refresh()
        await self._drawn.wait()
        await anyio.wait_all_tasks_blocked()

    def note_drawing(self, _: object) -> None:
        self._drawn.set()


@asynccontextmanager
async def at_desk(folder: Path, quiet: Quiet = QUIET) -> AsyncIterator[Desk]:
    """A screen that is not drawn yet."""
    paper = Paper()
    with create_pipe_input() as keys, create_app_session(input=keys, output=Glass()):
        history = ChatHistory(folder / "history")
        screen = ChatScreen(paper, -1, history=history, quiet=quiet, input=keys, output=Glass())
        yield Desk(screen, paper, keys, history)


@asynccontextmanager
async def drawing(desk: Desk, person: Noted, completer: Completer | None = None) -> AsyncIterator[Desk]:
    """The screen is drawn in here."""
    async with anyio.create_task_group() as group:
        await group.start(desk.screen.run, person, completer or DummyCompleter())
        watch(desk)
        await desk.until(lambda: True)
        try:
            yield desk
        finally:
            desk.screen.close()


def watch(desk: Desk) -> None:
    """Have `until` hear of drawings; once the screen runs."""
    app = desk.screen._app
    assert app is not None
    app.after_render += desk.note_drawing
