"""A session's workspace, its sandbox and its checkpoints; and what its tree is, told by other means than theirs."""

from __future__ import annotations

import json
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

from workspace_places import Place, opened, running

from sandbox_agent.engine.checkpoints import Checkpoints
from sandbox_agent.engine.taking import Limits
from sandbox_agent.events import CheckpointTaken, Event, Notice
from sandbox_agent.workspaces.opening import reopen

Tree = dict[str, list[object]]
"""Path to mode, content, time, owner, extended attributes and names of the same file."""

OWNER = os.getuid() or 1234

_LOOK = r"""
import hashlib, json, os, stat
tree, names = {}, {}

def attributes(place):
    names = [name for name in os.listxattr(place) if name.startswith(("user.", "system."))]
    return {name: os.getxattr(place, name).hex() for name in names}

def look(path, place):
    info = os.lstat(place)
    content = ""
    closed = not stat.S_ISLNK(info.st_mode) and info.st_mode & 0o700 != 0o700 and info.st_uid == os.getuid()
    if closed:
        os.chmod(place, 0o700)
    if stat.S_ISLNK(info.st_mode):
        content = os.readlink(place).hex()
    elif stat.S_ISREG(info.st_mode):
        with open(place, "rb") as file:
            content = hashlib.file_digest(file, "sha256").hexdigest()
        names.setdefault((info.st_dev, info.st_ino), []).append(path.hex())
    elif stat.S_ISDIR(info.st_mode):
        os.chdir(place)
        for name in os.listdir(b"."):
            look(os.path.join(path, name), name)
        os.chdir("..")
    worn = attributes(place) if stat.S_ISREG(info.st_mode) or stat.S_ISDIR(info.st_mode) else {}
    if closed:
        os.chmod(place, stat.S_IMODE(info.st_mode))
    who = [info.st_uid, info.st_gid]
    tree[path.hex()] = [info.st_mode, content, info.st_mtime_ns, who, worn, names.get((info.st_dev, info.st_ino), [])]

look(b"", b"/workspace")
print(json.dumps({path: [*rest, sorted(same)] for path, (*rest, same) in tree.items()}))
"""


async def look(place: Place) -> Tree:
    """Everything in a /workspace, whatever its modes; not by the code under test."""
    looked = await place.sandbox.exec(["python3", "-c", _LOOK], cwd="/", max_output_bytes=100_000_000)
    assert looked.exit_code == 0, looked.stderr
    tree: Tree = json.loads(looked.stdout)
    return tree


@dataclass(slots=True)
class CheckpointRig:
    """`events` is all that was told."""

    place: Place
    checkpoints: Checkpoints
    events: list[Event] = field(default_factory=list)

    async def change(self, script: str, call_id: str = "call") -> CheckpointTaken | None:
        """Run a script as a call would, and take its checkpoint: the event, None if nothing had changed."""
        await self.place.bash(script)
        return await self.take(call_id)

    async def take(self, call_id: str = "call") -> CheckpointTaken | None:
        """Take a checkpoint."""
        before = len(self.steps)
        await self.checkpoints.take([call_id], self.checkpoints.expect())
        return self.steps[-1] if len(self.steps) > before else None

    @property
    def steps(self) -> list[CheckpointTaken]:
        return [event for event in self.events if isinstance(event, CheckpointTaken)]

    @property
    def warnings(self) -> list[str]:
        return [event.text for event in self.events if isinstance(event, Notice)]

    async def tree(self) -> Tree:
        """Everything in /workspace, whatever its modes; not by the code under test."""
        return await look(self.place)


@asynccontextmanager
async def checkpointed(place: Place, *, limits: Limits | None = None) -> AsyncIterator[CheckpointRig]:
    """Checkpoints of a running session, begun."""
    events: list[Event] = []
    checkpoints = Checkpoints(
        place.sandbox, place.workspace, place.state, emit=events.append, last_seq=lambda: len(events), limits=limits
    )
    try:
        await checkpoints.begin()
        yield CheckpointRig(place, checkpoints, events)
    finally:
        await checkpoints.aclose()


@asynccontextmanager
async def session(mode: str, host: Path, state: Path, *, limits: Limits | None = None) -> AsyncIterator[CheckpointRig]:
    """A new session on a folder, all traces of it removed at the end."""
    async with opened(mode, host, state) as place, checkpointed(place, limits=limits) as made:
        yield made


@asynccontextmanager
async def resumed(state: Path) -> AsyncIterator[CheckpointRig]:
    """The session that an earlier process left."""
    async with running(reopen(state), state) as place, checkpointed(place) as made:
        yield made
