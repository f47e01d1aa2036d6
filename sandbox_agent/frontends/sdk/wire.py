"""The two streams between us and the program: frames in, lines out, and questions that wait for their answer.

Nothing here ever blocks: a program that reads slowly, or not at all, must not keep us from ending on a signal.
"""

from __future__ import annotations

import contextlib
import json
import os
import stat
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from itertools import count

import anyio

from sandbox_agent.frontends.stream_json import dump
from sandbox_agent.types import JsonObject

MAX_LINE_CHARS = 1_000_000
"""The program gives up at 1,048,576 characters in one line."""

MAX_FRAME_BYTES = 64 * 1024 * 1024
PIECE_BYTES = 4096
"""A pipe that says it can be written to takes so much without blocking."""

_READ_BYTES = 65_536
_CUTS = (100_000, 10_000, 1_000, 100)


class NoAnswerError(Exception):
    """The program did not, or cannot, answer a question; the text says why."""


class FrameError(Exception):
    """The program sent what is no frame; the text says what is wrong."""


@dataclass(slots=True)
class _Open:
    """A question that has no answer yet."""

    answered: anyio.Event = field(default_factory=anyio.Event)
    response: JsonObject | None = None
    error: str | None = None


class Wire:
    """One connection. `write` must run as long as anything is to be sent; `gone` is set once nobody reads any more."""

    def __init__(self, read_fd: int, write_fd: int) -> None:
        self._read_fd = read_fd
        self._write_fd = write_fd
        self._lines: deque[bytes] = deque()
        self._more = anyio.Event()
        self._written = anyio.Event()
        self._written.set()
        self._open: dict[str, _Open] = {}
        self._numbers = count(1)
        self.closed = False
        """No more input comes."""
        self.gone = anyio.Event()

    def send(self, line: JsonObject) -> None:
        """Have a line written, shortened where it is longer than the program takes. Never waits."""
        self._put(dump(fitting(line)))

    def _put(self, text: str) -> None:
        self._lines.append(text.encode("ascii") + b"\n")
        self._written = anyio.Event()
        self._more.set()

    async def write(self) -> None:
        """Write what is to be sent, until cancelled or until nobody reads any more."""
        try:
            while True:
                while self._lines:
                    await self._write(self._lines[0])
                    self._lines.popleft()
                self._written.set()
                self._more = anyio.Event()
                await self._more.wait()
        except (BrokenPipeError, ConnectionResetError):
            self._lost()

    async def watch(self) -> None:
        """Notice that the reader of a pipe is gone (a program that was killed), also while nothing is to be written."""
        if stat.S_ISFIFO(os.fstat(self._write_fd).st_mode):
            # Its writing end has nothing to read, ever: what wakes us is the other end's closing.
            await anyio.wait_readable(self._write_fd)
            self._lost()

    def _lost(self) -> None:
        self._lines.clear()
        self.gone.set()
        self._written.set()

    async def _write(self, data: bytes) -> None:
        place = 0
        while place < len(data):
            await _until(anyio.wait_writable, self._write_fd)
            place += os.write(self._write_fd, data[place : place + PIECE_BYTES])

    async def written(self) -> None:
        """Wait until all that was sent is out, or nobody reads any more."""
        await self._written.wait()

    async def frames(self) -> AsyncIterator[JsonObject]:
        """What the program sends, to the end of its input; answers to questions go to who asked.

        Raises:
            FrameError: a line is no JSON object, or too long.
        """
        try:
            async for line in self._input():
                frame = _frame(line)
                if frame is None:
                    continue
                if frame.get("type") == "control_response":
                    self._answered(frame.get("response"))
                else:
                    yield frame
        finally:
            self.closed = True
            for one in self._open.values():
                one.error = "the program has closed its side"
                one.answered.set()

    async def _input(self) -> AsyncIterator[bytes]:
        rest = b""
        while True:
            await _until(anyio.wait_readable, self._read_fd)
            data = os.read(self._read_fd, _READ_BYTES)
            if not data:
                break
            *lines, rest = (rest + data).split(b"\n")
            for line in lines:
                yield line
            if len(rest) > MAX_FRAME_BYTES:
                raise FrameError(f"a line of the input is longer than {MAX_FRAME_BYTES:,} bytes")
        if rest.strip():
            yield rest

    async def ask(self, request: JsonObject, timeout_s: float | None = None) -> JsonObject:
        """Ask the program something and wait for its answer. Cancelling withdraws the question.

        Args:
            request: with its subtype.
            timeout_s: None waits as long as it takes.

        Raises:
            NoAnswerError: it has closed its side, says that it failed, took too long, or cannot be asked about so much.
        """
        if self.closed:
            raise NoAnswerError("the program has closed its side")
        request_id = f"sandbox-agent-{next(self._numbers)}"
        text = dump({"type": "control_request", "request_id": request_id, "request": request})
        if len(text) > MAX_LINE_CHARS:
            # Never shortened: whoever answers must have seen exactly what runs.
            raise NoAnswerError(
                f"the question is longer than {MAX_LINE_CHARS:,} characters, which the program can read"
            )
        one = self._open[request_id] = _Open()
        self._put(text)
        try:
            with anyio.fail_after(timeout_s):
                await one.answered.wait()
        except TimeoutError:
            self._withdraw(request_id)
            raise NoAnswerError(f"the program did not answer within {timeout_s:g} s") from None
        except anyio.get_cancelled_exc_class():
            self._withdraw(request_id)
            raise
        finally:
            del self._open[request_id]
        if one.error is not None or one.response is None:
            raise NoAnswerError(one.error or "the program gave no answer")
        return one.response

    def _withdraw(self, request_id: str) -> None:
        self.send({"type": "control_cancel_request", "request_id": request_id})

    def _answered(self, response: object) -> None:
        if not isinstance(response, dict):
            return
        one = self._open.get(str(response.get("request_id")))
        if one is None:
            return
        given = response.get("response")
        if response.get("subtype") == "success":
            one.response = given if isinstance(given, dict) else {}
        else:
            one.error = str(response.get("error") or "the program failed to answer")
        one.answered.set()

    def reply(self, request_id: object, response: JsonObject | None = None, error: str | None = None) -> None:
        """Answer a control request of the program."""
        said: JsonObject = {"subtype": "success" if error is None else "error", "request_id": request_id}
        said |= {"response": response or {}} if error is None else {"error": error}
        self.send({"type": "control_response", "response": said})


Answering = Callable[[JsonObject], Awaitable[JsonObject]]


def fitting(line: JsonObject) -> JsonObject:
    """The line, with long texts in it cut where it would be too long; pictures are named then. The model has had it
    all."""
    if len(dump(line)) <= MAX_LINE_CHARS:
        return line
    for most_chars in _CUTS:
        cut = {key: _cut(value, most_chars) for key, value in line.items()}
        if len(dump(cut)) <= MAX_LINE_CHARS:
            return cut
    kept = ("type", "subtype", "session_id", "uuid", "parent_tool_use_id")
    return {key: line[key] for key in kept if key in line} | {"too_long": True}


def _cut(value: object, most_chars: int) -> object:
    if isinstance(value, str) and len(value) > most_chars:
        return f"{value[:most_chars]} [cut; {len(value):,} characters in all]"
    if isinstance(value, dict):
        if value.get("type") in ("image", "document") and "source" in value:
            return {"type": "text", "text": f"({value['type']}, left out of this line)"}
        return {key: _cut(one, most_chars) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [_cut(one, most_chars) for one in value]
    return value


def _frame(line: bytes) -> JsonObject | None:
    if not line.strip():
        return None
    try:
        frame = json.loads(line)
    except (ValueError, RecursionError) as exc:
        raise FrameError(f"a line of the input is not JSON ({exc})") from exc
    if not isinstance(frame, dict):
        raise FrameError("a line of the input is not a JSON object")
    return frame


async def _until(ready: Callable[[int], Awaitable[None]], fd: int) -> None:
    """Wait for a stream that can be waited for. Files and devices such as /dev/null cannot, and never block."""
    if not stat.S_ISREG(os.fstat(fd).st_mode):
        with contextlib.suppress(PermissionError):
            await ready(fd)
