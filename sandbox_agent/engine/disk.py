"""The policy's limit for what a session may write: how it is kept, and what is told when it is hit.

Where the session has a disk of its own the kernel refuses what does not fit, and the call that ran into it is told the
figures. Elsewhere what was written is measured again and again while calls run, and the one that takes too much is
stopped: later than a file system would do it, which is said at the start.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import anyio
import anyio.to_thread

from sandbox_agent.engine.metering import Meter, metered
from sandbox_agent.errors import SandboxError
from sandbox_agent.prompts import prompt
from sandbox_agent.sandboxes.base import MIB, Sandbox
from sandbox_agent.types import WORKSPACE_MOUNT, ToolResult, VolumeMount
from sandbox_agent.workspaces.base import Workspace
from sandbox_agent.workspaces.disk import Fullness, files_for, fullness_of, has_disk, why_no_disk
from sandbox_agent.workspaces.manifest import Manifest
from sandbox_agent.workspaces.measuring import measured
from sandbox_agent.workspaces.overlay import UPPER
from sandbox_agent.workspaces.record import COPY_NAME, MANIFEST_NAME, OVERLAY_NAME

LOOK_EVERY_S = 0.5
LOOK_OFTEN_S = 0.05
"""While more is used than may be."""

SHARE = 10
"""Looking may take a tenth of the time at most."""

GROWTH_BYTES = 8 * MIB
"""Past the limit a call may still write so much: removing things takes a little room, too."""

GROWTH_FILES = 1_000

_DU_S = 60.0
_DU = f"du -sxk {WORKSPACE_MOUNT}; find {WORKSPACE_MOUNT} -xdev 2>/dev/null | wc -l"
_BLOCK_BYTES = 4096
_SAYS_FULL = ("No space left on device", "Disk quota exceeded", "ENOSPC")


@dataclass(slots=True, eq=False)
class _Guarded:
    """A call that runs; `at_start` is what was used when it was first looked at."""

    scope: anyio.CancelScope = field(default_factory=anyio.CancelScope)
    at_start: Fullness | None = None
    told: str | None = None


class DiskLimit:
    """The limit of one session."""

    def __init__(self, workspace: Workspace, sandbox: Sandbox, state_dir: Path, limit_bytes: int) -> None:
        self._workspace = workspace
        self._sandbox = sandbox
        self._state_dir = state_dir
        self._limit_bytes = limit_bytes
        self._place = state_dir.resolve() / (OVERLAY_NAME if workspace.mode == "overlay" else COPY_NAME)
        self._remote = isinstance(workspace.mount, VolumeMount)
        self._own_disk = has_disk(state_dir)
        self._guarded: list[_Guarded] = []
        self._wanted = anyio.Event()
        self._there: tuple[int, int] | None = None

    @property
    def watched(self) -> bool:
        """Whether `watch` has to run."""
        return not self._own_disk and self._workspace.mode != "bind"

    @property
    def warning(self) -> str | None:
        """What the person has to know at the start: that the limit is not kept by a file system."""
        size = _size(self._limit_bytes)
        if self._workspace.mode == "bind":
            return (
                f"sandbox.disk ({size}) does not hold for a folder that is bound: what is written there is not limited"
            )
        if self._own_disk:
            return None
        why = getattr(self._workspace, "no_disk", None) or why_no_disk()
        if self._remote:
            why = "the copy is in a volume of the engine"
        why = why or "the engine does not see a disk that is mounted for one session"
        return f"sandbox.disk ({size}) is watched: a call that takes more is stopped a moment later ({why})"

    @contextlib.contextmanager
    def guarding(self) -> Iterator[_Guarded]:
        """A call that may write. Look at `told` afterwards: why it was stopped, None if it was not."""
        guarded = _Guarded()
        if not self.watched:
            yield guarded
            return
        self._guarded.append(guarded)
        self._wanted.set()
        try:
            with guarded.scope:
                yield guarded
        finally:
            self._guarded.remove(guarded)

    async def watch(self) -> None:
        """Measure while calls run, and stop those that take too much; ends with its task group."""
        while True:
            if not self._guarded:
                await self._wanted.wait()
            self._wanted = anyio.Event()
            began = anyio.current_time()
            now = await self._measure()
            over = now is not None and _over(now)
            if now is not None:
                for guarded in tuple(self._guarded):
                    _judge(guarded, now)
            took_s = anyio.current_time() - began
            with anyio.move_on_after(max(LOOK_OFTEN_S if over else LOOK_EVERY_S, took_s * SHARE)):
                await self._wanted.wait()  # a call that begins is looked at then

    async def _measure(self) -> Fullness | None:
        """None where nobody can tell at the moment."""
        if self._remote:
            return await self._measure_inside()
        try:
            used_bytes, files = await anyio.to_thread.run_sync(measured, self._folders())
        except OSError:
            return None
        return self._beside_start(used_bytes, files)

    def _folders(self) -> tuple[Path, ...]:
        return (self._place / UPPER,) if self._workspace.mode == "overlay" else (self._place,)

    async def _measure_inside(self) -> Fullness | None:
        with metered(Meter()):  # it is no program of the call that runs now
            try:
                ended = await self._sandbox.exec(["sh", "-c", _DU], cwd="/", timeout_s=_DU_S)
            except (OSError, SandboxError):
                return None  # a command got at it, or all is over, which somebody else will notice
        words = ended.stdout.split()
        if len(words) != 3 or not words[0].isdigit() or not words[2].isdigit():
            return None
        return self._beside_start(int(words[0]) * 1024, int(words[2]))

    def _beside_start(self, used_bytes: int, files: int) -> Fullness:
        """Without what a copy held at the start, which is not the session's."""
        if self._workspace.mode == "copy" and self._there is None:
            path = self._state_dir / MANIFEST_NAME
            entries = Manifest.load(path).entries.values() if path.exists() else ()
            blocks = (-(-(entry.size_bytes or 0) // _BLOCK_BYTES) + 1 for entry in entries)
            self._there = (sum(blocks) * _BLOCK_BYTES, len(entries))
        there_bytes, there_files = self._there or (0, 0)
        used = (max(used_bytes - there_bytes, 0), max(files - there_files, 0))
        return Fullness(*used, self._limit_bytes, files_for(self._limit_bytes))

    async def note_on(self, result: ToolResult) -> str | None:
        """The figures, for a call that ran into the limit of a disk."""
        if not self._own_disk:
            return None
        try:
            now = await anyio.to_thread.run_sync(fullness_of, self._place)
        except OSError:
            return None
        said = result.is_error and _says_full(result)
        if not now.full and not said:
            return None
        return prompt("engine/disk_full" if now.full else "engine/disk_figures").format(
            **_figures(now, self._limit_bytes)
        )


def _over(now: Fullness) -> bool:
    return now.used_bytes > now.limit_bytes or now.files > now.limit_files


def _judge(guarded: _Guarded, now: Fullness) -> None:
    """What was there when a call began is not its doing: it may well be about to remove it."""
    if guarded.at_start is None:
        guarded.at_start = now
    before = guarded.at_start
    grew = now.used_bytes > before.used_bytes + GROWTH_BYTES or now.files > before.files + GROWTH_FILES
    if _over(now) and grew:
        guarded.told = prompt("engine/disk_stopped").format(**_figures(now, now.limit_bytes))
        guarded.scope.cancel()


def _figures(now: Fullness, policy_bytes: int) -> dict[str, str]:
    return {
        "policy": _size(policy_bytes),
        "limit": _size(now.limit_bytes),
        "used": _size(now.used_bytes),
        "files": f"{now.files:,}",
        "limit_files": f"{now.limit_files:,}",
    }


def _size(size_bytes: int) -> str:
    for unit, name in ((1024 * MIB, "GiB"), (MIB, "MiB"), (1024, "KiB")):
        if size_bytes >= unit:
            return f"{size_bytes / unit:.4g} {name}"
    return f"{size_bytes} bytes"


def _says_full(result: ToolResult) -> bool:
    blocks = [{"text": result.content}] if isinstance(result.content, str) else result.content
    return any(words in str(block.get("text", "")) for block in blocks for words in _SAYS_FULL)
