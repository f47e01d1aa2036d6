"""Walking the tree: every folder is listed, every entry looked at, and only what differs from the last walk is told.

Most of the time goes into asking the kernel for each entry. So the folders known from the last walk are shared out
among as many processes as there are processors; each compares its own, and gives back only those that differ.
"""

from __future__ import annotations

import errno
import marshal
import os
import stat
from collections.abc import Callable, Iterator
from itertools import chain
from typing import Any, NamedTuple

from sandbox_agent.workspaces.inside.below import Below
from sandbox_agent.workspaces.inside.entry import facts_of, record, target_of

MAX_DEPTH = 200
"""Folders nested deeper are not walked."""

MAX_ENTRIES = 1_000_000
KEPT_ENTRIES = 700_000
"""As many are remembered from walk to walk (some 100 bytes each); a larger tree is told whole each time."""

SHARE_ENTRIES = 2_000
"""Looking at fewer takes no longer than starting another process for them."""

MAX_PROCESSES = 4

OPEN_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
GONE = (errno.ENOENT, errno.ENOTDIR, errno.ELOOP, errno.ESTALE)
CLOSED = (errno.EACCES, errno.EPERM)

Row = tuple[Any, ...]
"""An entry of a folder: its name, what `entry.Facts` has, and the target of a link or device."""

Listed = tuple[bytes, int, tuple[str, ...]]
"""A folder: its rows as `marshal` packs them (a tenth of the memory), their number, the folders in it to be walked."""

Tree = dict[str, Listed]
"""Folders by path, "" is the uppermost; each before what it holds."""


class TooManyError(Exception):
    """The tree has more than `MAX_ENTRIES`."""


class Seen(NamedTuple):
    """What became of some folders: how they are if not as before, which are gone, and which cannot be entered."""

    listed: Tree
    gone: list[str]
    closed: list[str]


class Told(NamedTuple):
    """How a walk differs from the last one: records with their targets, and paths that are no more.

    `whole` says that the records are all there are.
    """

    fresh: Iterator[bytes]
    gone: Iterator[bytes]
    whole: bool


class Walk:
    """The walks of one tree, one after the other."""

    def __init__(self, below: Below) -> None:
        self.below = below
        self.device = os.fstat(below.root).st_dev
        self.processors = min(MAX_PROCESSES, len(os.sched_getaffinity(0)))
        self.share_entries = SHARE_ENTRIES
        self.last: Tree = {}

    def take(self, whole: bool) -> Told:
        """Walk. Raises `TooManyError`."""
        told = self.below.attributes
        root = record(facts_of(os.fstat(self.below.root)), b"") + b"\0" + told(b"") + b"\0"
        found = self.look(self.last)
        last = {} if whole else self.last
        self.last = found if entries_of(found) <= KEPT_ENTRIES else {}
        changed = [path for path, listed in found.items() if listed != last.get(path)]
        less = [path for path in (*changed, *(last.keys() - found.keys())) if path in last]
        fresh = (text for path in changed for text in records(path, last.get(path), found[path], told))
        gone = (text for path in less for text in missed(path, last[path], found.get(path)))
        return Told(chain((root,), fresh), gone, not last)

    def look(self, last: Tree) -> Tree:
        """How the tree is now."""
        shares = shares_of(last, self.processors, self.share_entries)
        helpers = [(share, self.helper(share, last)) for share in shares[1:]]
        seen = self.share(shares[0], last)
        for share, helper in helpers:
            theirs = helper() or self.share(share, last)  # it may have been killed by anybody in here
            seen = Seen({**seen.listed, **theirs.listed}, seen.gone + theirs.gone, seen.closed + theirs.closed)
        found = {**last, **seen.listed}
        for path in seen.gone:
            found.pop(path, None)
        self.open_up(seen.closed, found)
        found = reached(found)
        if entries_of(found) > MAX_ENTRIES:
            raise TooManyError
        return found

    def helper(self, paths: list[str], last: Tree) -> Callable[[], Seen | None]:
        """Start a process for a share; returns what waits for its answer, which is None if it could not give one."""
        out, end = os.pipe()
        try:
            pid = os.fork()
        except OSError:  # the tools have taken up all processes
            os.close(out)
            os.close(end)
            return lambda: None
        if not pid:
            code = 1
            try:
                os.close(out)
                with os.fdopen(end, "wb") as pipe:
                    marshal.dump(tuple(self.share(paths, last)), pipe)
                code = 0
            finally:
                os._exit(code)
        os.close(end)

        def answer() -> Seen | None:
            with os.fdopen(out, "rb") as pipe:
                data = pipe.read()
            return Seen(*marshal.loads(data)) if os.waitpid(pid, 0)[1] == 0 else None

        return answer

    def share(self, paths: list[str], last: Tree) -> Seen:
        """Look at some folders, and at all below them that are new. Nobody's mode is changed."""
        seen = Seen({}, [], [])
        way = Way(self.below.root)
        pending, count = paths[::-1], 0
        while pending and count <= MAX_ENTRIES:
            path = pending.pop()
            try:
                listed = self.listed(path, way.to(path))
            except OSError as exc:
                if exc.errno not in GONE + CLOSED:
                    raise
                (seen.gone if exc.errno in GONE else seen.closed).append(path)
                continue
            count += listed[1]
            if listed != last.get(path):
                seen.listed[path] = listed
            pending += [one for one in inner(path, listed)[::-1] if one not in last]
        way.close()
        return seen

    def open_up(self, closed: list[str], found: Tree) -> None:
        """Walk folders that their owner, whom we run as, closed to itself; after all modes have been looked at."""
        pending, done = sorted(closed, reverse=True), set()
        while pending:
            path = pending.pop()
            if path in done:
                continue
            done.add(path)
            found.pop(path, None)
            try:
                through = self.below.folder(os.fsencode(path), 0o500)
                try:
                    fd = os.open(".", OPEN_FOLDER, dir_fd=through)
                finally:
                    os.close(through)
                try:
                    found[path] = self.listed(path, fd)
                finally:
                    os.close(fd)
            except OSError as exc:
                if exc.errno in (errno.EMFILE, errno.ENFILE, errno.ENOMEM):
                    raise
                continue  # it is somebody else's, or gone
            pending += inner(path, found[path])[::-1]
        self.below.revoke()

    def listed(self, path: str, fd: int) -> Listed:
        """An opened folder."""
        rows: list[Row] = []
        folders = []
        look, deeper = os.lstat, path.count("/") + bool(path) < MAX_DEPTH - 1
        for name in os.listdir(fd):
            try:
                info = look(name, dir_fd=fd)
                row: Row = (name, info[:7], info.st_mtime_ns, info.st_ctime_ns)
                kind = stat.S_IFMT(info.st_mode)
                if kind == stat.S_IFDIR:
                    if deeper and info.st_dev == self.device:
                        folders.append(name)
                elif kind != stat.S_IFREG:
                    row += (target_of(info, name, fd),)
            except OSError as exc:
                if exc.errno in (*GONE, errno.EINVAL):  # it went away, or is no link any more
                    continue
                raise
            rows.append(row)
        return marshal.dumps(rows, 2), len(rows), tuple(folders)  # later versions write equal values in several ways


class Way:
    """The folders down to the one that was asked for last, held open: the next one is mostly near."""

    def __init__(self, root: int) -> None:
        self.root = root
        self.names: list[str] = []
        self.fds: list[int] = []

    def to(self, path: str) -> int:
        """A descriptor of a folder, good until the next call; never through a link. Raises OSError."""
        names = path.split("/") if path else []
        same = 0
        while same < min(len(names), len(self.names)) and names[same] == self.names[same]:
            same += 1
        self.close(same)
        if not self.fds:
            self.fds.append(os.open(".", OPEN_FOLDER, dir_fd=self.root))
        for name in names[same:]:
            self.fds.append(os.open(name, OPEN_FOLDER, dir_fd=self.fds[-1]))
            self.names.append(name)
        return self.fds[-1]

    def close(self, kept: int = -1) -> None:
        """Let go of the folders below the first few; of all of them by default."""
        for fd in self.fds[kept + 1 :]:
            os.close(fd)
        del self.fds[kept + 1 :], self.names[max(kept, 0) :]


def inner(path: str, listed: Listed) -> list[str]:
    """The folders in a folder, by path."""
    return [f"{path}/{name}" if path else name for name in listed[2]]


def entries_of(tree: Tree) -> int:
    return sum(count for _, count, _ in tree.values())


def shares_of(last: Tree, processors: int, least: int) -> list[list[str]]:
    """The folders that are known, neighbours together, in parts that take about the same time.

    There is one for each processor, but none with fewer than `least` entries.
    """
    paths = list(last)
    total = entries_of(last) + len(paths)
    number = min(processors, total // least)
    if number < 2:
        return [paths or [""]]
    shares: list[list[str]] = [[] for _ in range(number)]
    before = 0
    for path in paths:
        shares[before * number // total].append(path)
        before += last[path][1] + 1
    return shares


def reached(found: Tree) -> Tree:
    """The folders that hang together: one that was moved while we looked may be there twice, under its old path too."""
    tree: Tree = {}
    pending = [""]
    while pending:
        path = pending.pop()
        if path in found:
            tree[path] = found[path]
            pending += inner(path, found[path])[::-1]
    return tree


def records(path: str, old: Listed | None, new: Listed, attributes: Callable[[bytes], bytes]) -> Iterator[bytes]:
    """What is new or different in a folder, each record with its target, of files and folders their attributes."""
    before = {row[0]: row for row in marshal.loads(old[0])} if old is not None else {}
    for row in marshal.loads(new[0]):
        if before.get(row[0]) != row:
            entry = os.fsencode(f"{path}/{row[0]}" if path else row[0])
            target = row[4] if len(row) > 4 else attributes(entry)
            yield b"%b\0%b\0" % (record(row[1:4], entry), target)


def missed(path: str, old: Listed, new: Listed | None) -> Iterator[bytes]:
    """The paths that are no more in a folder, or in one that is no more."""
    there = {row[0] for row in marshal.loads(new[0])} if new is not None else set()
    for row in marshal.loads(old[0]):
        if row[0] not in there:
            yield os.fsencode(f"{path}/{row[0]}" if path else row[0]) + b"\0"
