"""What a call's command printed, as it is kept and, when it is too long, written to a file in the container.

Runs in the container (see the package).
"""

from __future__ import annotations

import os

from sandbox_agent.sandboxes.runner.kept import LIVE_MAX_BYTES, MARK_BYTES, KeptOutput, rest

SPILL_MAX_BYTES = 64 * 1024 * 1024
_OOM_FILES = ("/sys/fs/cgroup/memory.events", "/sys/fs/cgroup/memory/memory.oom_control")


class Capture:
    """One stream of a call: kept head and tail, and everything (bounded) in a spill file once it is too long; or, with
    `write_live`, in a file from the first byte."""

    def __init__(self, max_bytes: int, spill_path: bytes | None) -> None:
        self.kept = KeptOutput(max_bytes)
        self._spill_path = spill_path
        self._spill_fd: int | None = None
        self._spill_max_bytes = SPILL_MAX_BYTES
        self._live = False
        self.spilled = False
        self.spill_bytes = 0

    def write_live(self, path: bytes) -> None:
        """Write to this file what comes from now on, as it comes."""
        self._live = True
        self._spill_max_bytes = LIVE_MAX_BYTES
        self._begin_spill(path)

    def add(self, data: bytes) -> None:
        if self._spill_path is not None and self.kept.total_bytes + len(data) > self.kept.max_bytes:
            self._begin_spill(self._spill_path)
            self._spill_path = None
        if self._spill_fd is not None:
            self._spill(data)
        self.kept.add(data)

    def close(self) -> None:
        """No more comes."""
        if self._live and self._spill_fd is not None:
            self._spill_max_bytes = LIVE_MAX_BYTES + self.kept.max_bytes + MARK_BYTES
            self._spill(rest(self.kept, LIVE_MAX_BYTES))
        self._close_spill()

    def _close_spill(self) -> None:
        if self._spill_fd is not None:
            os.close(self._spill_fd)
            self._spill_fd = None

    def _begin_spill(self, path: bytes) -> None:
        """The file must be new, in a folder that is no link: nothing that a command put there leads elsewhere."""
        folder, name = os.path.split(path)
        try:
            os.makedirs(folder, mode=0o700, exist_ok=True)
            room = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
            try:
                flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
                self._spill_fd = os.open(name, flags, 0o600, dir_fd=room)
            finally:
                os.close(room)
        except OSError:
            return  # the caller sees that there is no spill file; the kept output stands
        self.spilled = True
        self._spill(self.kept.value())

    def _spill(self, data: bytes) -> None:
        view = memoryview(data)[: self._spill_max_bytes - self.spill_bytes]
        try:
            while view and self._spill_fd is not None:
                written = os.write(self._spill_fd, view)
                self.spill_bytes += written
                view = view[written:]
        except OSError:
            self._close_spill()  # the disk limit: `spill_bytes` tells how far it went


class OomCounter:
    """How many processes the container's memory limit has killed so far; 0 for ever where that cannot be read."""

    def __init__(self) -> None:
        self._fd: int | None = None
        for path in _OOM_FILES:
            try:
                self._fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
                break
            except OSError:
                continue

    def fileno(self) -> int:
        return -1 if self._fd is None else self._fd

    def count(self) -> int:
        if self._fd is None:
            return 0
        try:
            lines = os.pread(self._fd, 4096, 0).splitlines()
        except OSError:
            return 0
        return next((int(line.split()[1]) for line in lines if line.startswith(b"oom_kill ")), 0)
