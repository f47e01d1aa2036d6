"""What the hands in the container are asked for: walks, contents and restores, as values; every answer is checked.

The process at the other end runs as the tools do and may be killed or worse at any time: what does not fit is a
`HandsLostError`, and the next request starts a new one. It stays between checkpoints, since starting a Python costs as
much as a whole walk of 5,000 files.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass

import anyio

from sandbox_agent.engine.channel import Channel
from sandbox_agent.sandboxes.base import Sandbox, Stream
from sandbox_agent.workspaces import walked
from sandbox_agent.workspaces.base import Owner
from sandbox_agent.workspaces.content import LARGE_BYTES
from sandbox_agent.workspaces.inside import wire
from sandbox_agent.workspaces.manifest import RACY_NS
from sandbox_agent.workspaces.plan import Act, Plan
from sandbox_agent.workspaces.snapshot import LOST_TOO_LARGE, LOST_UNREADABLE, OWN, Node
from sandbox_agent.workspaces.store import Batch, Part, Put, Store

FILES_AT_ONCE = 2000
BYTES_AT_ONCE = 32 * 1024 * 1024
"""Of files that are asked for together, holes counted: what came of them is looked at before the next are."""
NAMES_AT_ONCE_BYTES = wire.CHUNK
WALK_S = 120.0
ANSWER_S = 300.0
HOLE_SHARE = 8
"""Zeros that stand for a hole are hashed and not read, which is so much quicker."""
IN_THREAD_BYTES = 4 * 1024 * 1024
"""Hashing so much holds up everything else for a few milliseconds; more is done in a thread."""

_LOST = {
    b"%d" % errno.EFBIG: LOST_TOO_LARGE,
    b"%d" % errno.EACCES: LOST_UNREADABLE,
    b"%d" % errno.EPERM: LOST_UNREADABLE,
    b"%d" % errno.EIO: LOST_UNREADABLE,
}


@dataclass(frozen=True, slots=True)
class Given:
    """What became of one file.

    `node` names its content and is as it was after reading; None when there is no such file any more, or its content
    could not be had, for which `lost` has the reason. `stable` is False when it changed while it was read, `racy` when
    it had changed just before: its times prove nothing yet. `added_bytes` is what is in the store and was not before.
    `cost_bytes` is what finding it out took, as if all of it had been data that is read: also where nothing came of it.
    """

    node: Node | None = None
    lost: str | None = None
    stable: bool = True
    racy: bool = False
    added_bytes: int = 0
    cost_bytes: int = 0


@dataclass(frozen=True, slots=True)
class Walked:
    """A walk as it came: records that are there, paths that are no more, and whether these are all there are."""

    fresh: bytes
    gone: bytes
    whole: bool


class Hands:
    """The requests. Not for concurrent use. All raise `HandsLostError` and `NoHandsError` as `Channel` does."""

    def __init__(self, sandbox: Sandbox, owner: Owner) -> None:
        """`owner` is who the tools run as."""
        self.sandbox = sandbox
        self._channel = Channel(sandbox)
        self._owner = owner

    async def aclose(self) -> None:
        """End the process; the next request starts another."""
        await self._channel.aclose()

    @property
    def stream(self) -> Stream | None:
        """The process that is there, to be spared by `Sandbox.end_all`."""
        return self._channel.stream

    async def ready(self) -> None:
        """Have the process wait already."""
        await self._channel.ready()

    async def walk(self, doubted: Collection[str], *, whole: bool) -> Walked:
        """What is in the workspace: what differs from the last walk, or everything where that is not known.

        Args:
            doubted: paths to be told in any case.
            whole: everything is wanted.

        Raises:
            MalformedWalkError: it holds too much.
        """
        return await self._walk(b"all" if whole else b"since", doubted)

    async def tell(self, paths: Collection[str]) -> Walked:
        """What some paths are now, as part of a walk; those that are gone are not in it."""
        return await self._walk(b"only", paths)

    async def _walk(self, how: bytes, paths: Collection[str]) -> Walked:
        names = [path.encode("utf-8", "surrogateescape") for path in paths]
        await self._channel.send(wire.WALK, b"\0".join([how, *names]))
        # Joined as they come: a frame of next to nothing takes many times its size where each is kept.
        parts = {wire.WALKED: bytearray(), wire.GONE: bytearray()}
        while (frame := await self._channel.receive(WALK_S)).letter in parts:
            if not frame.body:
                raise await self._channel.malformed()
            parts[frame.letter] += frame.body
            if sum(map(len, parts.values())) > walked.MAX_WALK_BYTES:
                await self.aclose()
                raise walked.MalformedWalkError("the names in the workspace are too many to be walked")
        if (frame.letter, frame.body) == (wire.END, b"many"):
            raise walked.TooManyEntriesError
        if frame.letter != wire.END or frame.body not in (b"all", b"since") or (how == b"all" and frame.body != how):
            raise await self._channel.malformed()
        return Walked(bytes(parts[wire.WALKED]), bytes(parts[wire.GONE]), frame.body == b"all")

    async def give(self, paths: Sequence[str], store: Store, limit_bytes: int, *, most_bytes: int) -> list[Given]:
        """The contents of files, put into the store.

        Args:
            paths: of regular files, as the walk has them; no more than `batches` makes.
            store: where to.
            limit_bytes: of data that all of them may add to the store.
            most_bytes: of data in one file that is read at all.
        """
        names = b"\0".join(path.encode("utf-8", "surrogateescape") for path in paths)
        await self._channel.send(wire.GIVE, wire.OFFSET.pack(most_bytes) + names)
        given: list[Given] = []
        with store.batch() as batch:
            for _ in paths:
                given.append(await self._one(batch, limit_bytes, most_bytes))
                limit_bytes -= given[-1].added_bytes
            if (await self._channel.receive(ANSWER_S)).letter != wire.END:
                raise await self._channel.malformed()
        return given

    async def _one(self, batch: Batch, limit_bytes: int, most_bytes: int) -> Given:
        frame = await self._channel.receive(ANSWER_S)
        if frame.letter == wire.WHOLE:
            return await self._small(frame.body, batch, limit_bytes, most_bytes)
        if frame.letter == wire.FAULT:
            return Given(lost=_LOST.get(frame.body))
        now, _, numbers = frame.body.partition(b" ")
        before = walked.file_node(numbers, self._owner)
        if frame.letter != wire.STATE or before is None or not _is_time(now):
            raise await self._channel.malformed()
        with batch.store.part() as part:
            part.limit_bytes = limit_bytes
            position = size = 0
            while (frame := await self._channel.receive(ANSWER_S)).letter == wire.DATA:
                if len(frame.body) <= wire.OFFSET.size:
                    raise await self._channel.malformed()
                offset, data = wire.OFFSET.unpack_from(frame.body)[0], frame.body[wire.OFFSET.size :]
                size += len(data)
                if offset < position or offset + len(data) > before.size_bytes or size > most_bytes:
                    raise await self._channel.malformed()
                part.write(data, offset)
                position = offset + len(data)
            cost_bytes = size + _hashed_holes(before.size_bytes, size) // HOLE_SHARE
            if frame.letter == wire.FAULT:
                return Given(lost=_LOST.get(frame.body), cost_bytes=size)
            after = walked.file_node(frame.body, self._owner)
            if frame.letter != wire.STATE_AFTER or after is None:
                raise await self._channel.malformed()
            sha256 = await _keep(part, before.size_bytes, size)
            if part.refused:
                return Given(lost=LOST_TOO_LARGE, cost_bytes=cost_bytes)
        return _given(int(now), before, after, Put(sha256, size if part.added else 0), cost_bytes)

    async def _small(self, body: bytes, batch: Batch, limit_bytes: int, most_bytes: int) -> Given:
        """A file that came in one frame."""
        now, *states, data = body.split(b"\0", 3) if body.count(b"\0") >= 3 else (b"", body)
        before, after = (walked.file_node(state, self._owner) for state in states) if len(states) == 2 else (None, None)
        fits = before is not None and len(data) == before.size_bytes <= min(most_bytes, wire.SMALL)
        if before is None or after is None or not _is_time(now) or not fits:
            raise await self._channel.malformed()
        put = batch.put(data, limit_bytes)
        if put is None:
            return Given(lost=LOST_TOO_LARGE, cost_bytes=len(data))
        return _given(int(now), before, after, put, len(data))

    async def put(self, made: Plan, names: Mapping[str, str], store: Store) -> list[str]:
        """Carry out a plan; returns what went wrong, as texts. Lost in the middle, it can be done again.

        Args:
            made: the plan.
            names: the contents of its files in the store; a file without one is empty.
            store: where they are.

        Raises:
            WorkspaceError: a content is missing or damaged.
        """
        for act in made.acts:
            await self._act(act, names, store)
        await self._channel.send(wire.FINISH, b"")
        frame = await self._channel.receive(ANSWER_S)
        faults = _faults(frame.body) if frame.letter == wire.DONE else None
        if faults is None:
            raise await self._channel.malformed()
        return faults

    async def _act(self, act: Act, names: Mapping[str, str], store: Store) -> None:
        path = act.path.encode("utf-8", "surrogateescape")
        if act.letter == wire.ATTRIBUTES:
            assert act.node is not None
            gid = self._owner.gid if act.node.gid == OWN else act.node.gid
            numbers = b"\0%o %d %d " % (act.node.mode, act.node.mtime_ns, gid)
            await self._channel.send(act.letter, path + numbers + act.node.attributes.encode())
            return
        if act.node is not None and act.node.size_bytes <= wire.SMALL:
            data = store.read(names[act.path], wire.SMALL) if act.path in names else b""
            await self._channel.send(wire.WHOLE, path + b"\0" + data.ljust(act.node.size_bytes, b"\0"))
            return
        await self._channel.send(act.letter, path + b"\0" + act.target.encode("utf-8", "surrogateescape"))
        if act.letter == wire.FILE:
            assert act.node is not None
            if act.path in names:
                await self._content(names[act.path], store)
            await self._channel.send(wire.FINISH_FILE, wire.OFFSET.pack(act.node.size_bytes))

    async def _content(self, sha256: str, store: Store) -> None:
        with store.open(sha256) as fd:
            for offset, size in _pieces(fd):
                data = os.pread(fd, size, offset)
                await self._channel.send(wire.DATA, wire.OFFSET.pack(offset) + data)


def _is_time(text: bytes) -> bool:
    return text.isdigit() and len(text) < 30  # Python refuses to make a number of thousands of digits


def _given(now_ns: int, before: Node, after: Node, put: Put, cost_bytes: int) -> Given:
    node = after._replace(sha256=put.sha256, size_bytes=before.size_bytes)
    racy = after.ctime_ns > now_ns - RACY_NS
    stable = walked.same_stamp(before, after)
    return Given(node, stable=stable, racy=racy, added_bytes=put.added_bytes, cost_bytes=cost_bytes)


def _hashed_holes(size_bytes: int, data_bytes: int) -> int:
    """Of larger files the digest is made of what is no hole alone."""
    return size_bytes - data_bytes if size_bytes < LARGE_BYTES else 0


async def _keep(part: Part, size_bytes: int, data_bytes: int) -> str:
    if max(data_bytes, min(size_bytes, 64 * data_bytes)) <= IN_THREAD_BYTES:
        return part.keep(size_bytes)
    return await anyio.to_thread.run_sync(part.keep, size_bytes)


def _pieces(fd: int) -> Iterator[tuple[int, int]]:
    """Offset and size of what lies in a file, holes left out."""
    position, size = 0, os.fstat(fd).st_size
    while position < size:
        try:
            start = os.lseek(fd, position, os.SEEK_DATA)
        except OSError as error:
            if error.errno == errno.ENXIO:
                return
            raise
        end = min(os.lseek(fd, start, os.SEEK_HOLE), size)
        for offset in range(start, end, wire.CHUNK):
            yield offset, min(wire.CHUNK, end - offset)
        position = end


def batches(files: Mapping[str, Node], bytes_at_once: int = BYTES_AT_ONCE) -> Iterator[list[str]]:
    """Paths in such numbers as `give` takes at once, together no larger than `bytes_at_once`, or one alone."""
    batch: list[str] = []
    names_bytes = content_bytes = 0
    for path, node in files.items():
        names_bytes += 4 * len(path) + 1
        content_bytes += node.size_bytes
        full = len(batch) == FILES_AT_ONCE or names_bytes > NAMES_AT_ONCE_BYTES or content_bytes > bytes_at_once
        if batch and full:
            yield batch
            batch, names_bytes, content_bytes = [], 4 * len(path) + 1, node.size_bytes
        batch.append(path)
    if batch:
        yield batch


def _faults(body: bytes) -> list[str] | None:
    *rows, rest = body.split(b"\0")
    found = []
    for number, _, path in (row.partition(b" ") for row in rows):
        if not number.isdigit() or len(number) > 4:
            return None
        found.append(f"{path.decode('utf-8', 'surrogateescape') or 'a file'}: {os.strerror(int(number))}")
    return None if rest else found
