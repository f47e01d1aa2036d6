"""The host's side of the hands in the container: walks, contents and restores as values, every answer checked.

The process at the other end runs as the tools do and may be killed or worse at any time: what does not fit is a
`HandsLostError`, and the next call starts a new one. It stays between checkpoints, since starting a Python costs more
than a whole walk of 5,000 files.
"""

from __future__ import annotations

import errno
import json
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import anyio

from sandbox_agent.sandboxes.base import Sandbox, Stream
from sandbox_agent.sandboxes.program import INTERPRETERS, bundled
from sandbox_agent.types import WORKSPACE_MOUNT
from sandbox_agent.workspaces import walked
from sandbox_agent.workspaces.inside import wire
from sandbox_agent.workspaces.plan import Act, Plan
from sandbox_agent.workspaces.snapshot import LOST_TOO_LARGE, LOST_UNREADABLE, Node
from sandbox_agent.workspaces.store import Part, Store

PACKAGE = "sandbox_agent.workspaces.inside"
MODULES = ("wire", "below", "look", "put", "main")
MAX_FRAME_BYTES = 2 * wire.CHUNK
GIVE_AT_ONCE = 500
GIVE_NAMES_BYTES = wire.CHUNK
START_S = 20.0
WALK_S = 120.0
GIVE_S = 600.0
_FIND = ["find", WORKSPACE_MOUNT, "-xdev", "-maxdepth", str(walked.MAX_DEPTH), "-printf", walked.FORMAT]


class HandsLostError(Exception):
    """The process in the container was killed, or said what it never says."""


class NoHandsError(Exception):
    """The image has no Python for it; the text says so."""


class Frame(NamedTuple):
    letter: bytes
    body: bytes


@dataclass(frozen=True, slots=True)
class Given:
    """What became of one file. `node` has its content's name and is as it was after reading; None when it is gone or no
    file any more. `stable` is False when it changed while it was read, `racy` when it had changed just before."""

    node: Node | None
    stable: bool = True
    racy: bool = False
    data_bytes: int = 0


class Hands:
    """One process in the container, started when it is needed. Not for concurrent use."""

    def __init__(self, sandbox: Sandbox) -> None:
        self._sandbox = sandbox
        self._stream: Stream | None = None
        self._buffer = bytearray()

    async def aclose(self) -> None:
        stream, self._stream = self._stream, None
        self._buffer.clear()
        if stream is not None:
            await stream.aclose()

    async def ready(self) -> None:
        """Have a process that answers.

        Raises:
            NoHandsError: the image cannot run it.
            HandsLostError: it was killed as it started.
        """
        if self._stream is not None:
            return
        text = bundled(PACKAGE, MODULES)
        for interpreter in INTERPRETERS:
            argv = [interpreter, "-I", "-S", "-c", text, WORKSPACE_MOUNT]
            self._stream = await self._sandbox.open(argv, cwd="/")
            try:
                if (await self._frame(START_S)).letter == wire.HELLO:
                    return
            except HandsLostError:
                code = await self._stream.exit_code()
                await self.aclose()
                if code not in (126, 127):
                    raise
        raise NoHandsError("the image has no python3, which checkpoints need")

    async def walk(self, uid: int) -> bytes:
        """Everything below the workspace, in the form of `walked.FORMAT`; folders that their owner `uid` closed, too.

        Raises:
            HandsLostError, NoHandsError: see there.
            MalformedWalkError: see there.
        """
        data = await self._find()
        if data is None:
            root = await self._collect(b"")
            return b"d 700 0 0 1 0 0 0.0 0.0 \0\0" + root
        closed = await anyio.to_thread.run_sync(lambda: walked.closed_folders(walked.parse(data), uid))
        for path in closed:
            data += await self._collect(path)
        return data

    async def _find(self) -> bytes | None:
        """The walk by `find`, which is the quickest; None where the image's does not know how."""
        stream = await self._sandbox.open(_FIND, cwd="/")
        parts: list[bytes] = []
        size = 0
        try:
            with anyio.fail_after(WALK_S):
                while chunk := await stream.receive():
                    parts.append(chunk)
                    size += len(chunk)
                    if size > walked.MAX_WALK_BYTES:
                        raise walked.MalformedWalkError("the names in the workspace are too many to be walked")
                # 1 is also said when a file went away meanwhile, or a folder is closed.
                whole = await stream.exit_code() in (0, 1)
        except TimeoutError:
            raise HandsLostError(f"the walk of the workspace took longer than {WALK_S:g} s") from None
        finally:
            await stream.aclose()
        if not parts:
            return None
        if not whole:
            raise HandsLostError("the walk of the workspace was killed")
        return b"".join(parts)

    async def _collect(self, path: bytes) -> bytes:
        await self._send(wire.WALK, path)
        data = bytearray()
        while (frame := await self._frame(WALK_S)).letter == wire.WALKED:
            data += frame.body
            if len(data) > walked.MAX_WALK_BYTES:
                raise walked.MalformedWalkError("the names in the workspace are too many to be walked")
        if frame.letter != wire.END:
            raise await self._malformed()
        return bytes(data)

    async def give(self, paths: Sequence[str], store: Store, limit_bytes: Callable[[], int]) -> AsyncIterator[Given]:
        """The files' contents, put into the store, in order.

        Args:
            paths: of regular files, as the walk has them.
            store: where to.
            limit_bytes: how much may still be kept; asked before each request.
        """
        for batch in _batches([path.encode("utf-8", "surrogateescape") for path in paths]):
            limit = max(0, limit_bytes())
            await self._send(wire.GIVE, wire.OFFSET.pack(limit) + b"\0".join(batch))
            for _ in batch:
                yield await self._one(store, limit)
            if (await self._frame(GIVE_S)).letter != wire.END:
                raise await self._malformed()

    async def _one(self, store: Store, limit: int) -> Given:
        frame = await self._frame(GIVE_S)
        if frame.letter == wire.FAULT:
            return _failed(frame, None)
        now, _, numbers = frame.body.partition(b" ")
        before = walked.file_node(numbers)
        if frame.letter != wire.STATE or before is None or not now.isdigit():
            raise await self._malformed()
        with store.part() as part:
            size, frame = await self._data(part, before, limit)
            if frame.letter == wire.FAULT:
                return _failed(frame, before)
            after = walked.file_node(frame.body)
            if frame.letter != wire.STATE_AFTER or after is None:
                raise await self._malformed()
            sha256 = await _kept(part, before.size_bytes, size)
        stable = walked.same_stamp(before, after)
        racy = after.ctime_ns > int(now) - RACY_NS
        return Given(after._replace(sha256=sha256, size_bytes=before.size_bytes), stable, racy, size)

    async def _data(self, part: Part, state: Node, limit: int) -> tuple[int, Frame]:
        """Take the pieces of one file; returns how many bytes came, and the frame after them."""
        position = size = 0
        while (frame := await self._frame(GIVE_S)).letter == wire.DATA:
            if len(frame.body) <= wire.OFFSET.size:
                raise await self._malformed()
            offset, data = wire.OFFSET.unpack_from(frame.body)[0], frame.body[wire.OFFSET.size :]
            size += len(data)
            if offset < position or offset + len(data) > state.size_bytes or size > limit:
                raise await self._malformed()
            part.write(data, offset)
            position = offset + len(data)
        return size, frame

    async def put(self, made: Plan, names: dict[str, str], store: Store) -> list[str]:
        """Carry out a plan; returns what went wrong, by path and reason.

        Args:
            made: the plan.
            names: the contents of its files in the store; a file without one is empty.
            store: where they are.

        Raises:
            HandsLostError: killed in the middle; it can be done again.
            WorkspaceError: a content is damaged.
        """
        for act in made.acts:
            await self._act(act, names, store)
        await self._send(wire.FINISH, b"")
        frame = await self._frame(GIVE_S)
        if frame.letter != wire.DONE:
            raise await self._malformed()
        return _faults(frame.body)

    async def _act(self, act: Act, names: dict[str, str], store: Store) -> None:
        path = act.path.encode("utf-8", "surrogateescape")
        if act.letter == wire.ATTRIBUTES:
            assert act.node is not None
            await self._send(act.letter, path + b"\0%o %d" % (act.node.mode, act.node.mtime_ns))
        elif act.letter == wire.FILE:
            assert act.node is not None
            await self._send(act.letter, path)
            await self._content(names.get(act.path), act.node.size_bytes, store)
        else:
            await self._send(act.letter, path + b"\0" + act.target.encode("utf-8", "surrogateescape"))
