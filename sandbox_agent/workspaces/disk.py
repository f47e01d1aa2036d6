"""A disk of its own for what a session writes: a file of a fixed size with a file system in it, mounted where layers or
copy are. The kernel holds the limits then, for bytes and for files, and says ENOSPC.

It takes root and loop devices. The file is sparse, lies in the session's state folder and outlives a reboot; it is
mounted while somebody works with it. `mount` takes a loop device that is still bound to the file rather than a second
one, and the device goes with the last mount.
"""

from __future__ import annotations

import contextlib
import functools
import os
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from sandbox_agent.workspaces.mounting import detach, is_mounted

DISK_NAME = "disk.img"
"""In the session's state folder."""

BYTES_A_FILE = 8192
"""A disk has room for a file for each so many bytes: 4 GiB take 524,288."""

MIN_FILES = 4096
_INODE_BYTES = 256
_SPARE_BYTES = 512 * 1024
_GROUP_BYTES = 128 * 1024 * 1024
_GROUP_OVERHEAD_BYTES = 12 * 1024
_MOST_RESERVED_BYTES = 16 * 1024 * 1024
"""What ext4 keeps for itself: at the beginning, of each group of blocks, and in case its own books need more."""

_COMMAND_S = 60.0
_SYSTEM_PATH = "/usr/sbin:/sbin:/usr/bin:/bin"

# lazy: what is not written yet is holes, which read as zeros. No reserve, for nobody inside is root.
_MKFS = (
    *("mke2fs", "-q", "-F", "-t", "ext4", "-b", "4096", "-I", str(_INODE_BYTES), "-m", "0"),
    *("-O", "^resize_inode"),
    *("-E", "lazy_itable_init=1,lazy_journal_init=1,nodiscard"),
)
_OPTIONS = "loop,nosuid,nodev,noatime,discard,noinit_itable"


@dataclass(frozen=True, slots=True)
class Fullness:
    """What is used of a limit; `files` counts files, folders and links."""

    used_bytes: int
    files: int
    limit_bytes: int
    limit_files: int

    @property
    def full(self) -> bool:
        """Whether next to nothing more can be written."""
        left = min(1024 * 1024, self.limit_bytes // 100)
        return self.used_bytes > self.limit_bytes - left or self.files >= self.limit_files


def files_for(limit_bytes: int) -> int:
    """How many files may be made within a limit of bytes."""
    return max(limit_bytes // BYTES_A_FILE, MIN_FILES)


@functools.cache
def why_no_disk() -> str | None:
    """Why this machine cannot have such disks, as far as it shows without trying; None if nothing is against it."""
    if os.geteuid() != 0:
        return "that takes root"
    if not os.path.exists("/dev/loop-control"):
        return "there are no loop devices"
    missing = [name for name in ("mke2fs", "mount") if shutil.which(name, path=_SYSTEM_PATH) is None]
    return f"{' and '.join(missing)} not found" if missing else None


def make_disk(state_dir: Path, place: Path, limit_bytes: int, *, there_bytes: int = 0, there_files: int = 0) -> None:
    """Make a session's disk and mount it.

    Args:
        state_dir: the session's.
        place: an empty folder of ours in it.
        limit_bytes: what the session may take.
        there_bytes: what is put there before the session begins, which does not count.
        there_files: the same in files.

    Raises:
        OSError: it cannot be had; nothing is left of it.
    """
    files = files_for(limit_bytes) + there_files
    journal_mib = _journal_mib(limit_bytes)
    size = limit_bytes + there_bytes + files * _INODE_BYTES + journal_mib * 2**20 + _SPARE_BYTES
    size += _GROUP_OVERHEAD_BYTES * (size // _GROUP_BYTES) + min(size // 50, _MOST_RESERVED_BYTES)
    path = state_dir / DISK_NAME
    try:
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        try:
            os.ftruncate(fd, size)
        finally:
            os.close(fd)
        journal = ("-J", f"size={journal_mib}") if journal_mib else ("-O", "^has_journal")
        _run([*_MKFS, *journal, "-N", str(files), str(path)])
        mount_disk(state_dir, place)
        os.rmdir(place / "lost+found")
        os.chmod(place, 0o700)
    except OSError:
        remove_disk(state_dir, place)
        raise


def mount_disk(state_dir: Path, place: Path) -> bool:
    """Mount a session's disk where there is one and it is not mounted; whether it was mounted now.

    Raises:
        OSError: it cannot be mounted.
    """
    path = state_dir / DISK_NAME
    if not path.exists() or is_mounted(place):
        return False
    _run(["mount", "-t", "ext4", "-o", _OPTIONS, str(path), str(place)])
    return True


@contextlib.contextmanager
def mounted(state_dir: Path, place: Path) -> Iterator[None]:
    """For as long as it takes; left mounted where it was.

    Raises:
        OSError: it cannot be mounted, or not be unmounted again.
    """
    ours = mount_disk(state_dir, place)
    try:
        yield
    finally:
        if ours:
            detach(place)


def remove_disk(state_dir: Path, place: Path) -> None:
    """Unmount and remove a session's disk, if it has one. Safe to call twice. Raises OSError: it cannot be."""
    path = state_dir / DISK_NAME
    if path.exists() or is_mounted(place):
        detach(place)
        path.unlink(missing_ok=True)


def has_disk(state_dir: Path) -> bool:
    """Whether a session's writes go to a disk of its own."""
    return (state_dir / DISK_NAME).exists()


def fullness_of(place: Path) -> Fullness:
    """Of a mounted disk; what was there before the session counts on both sides. Raises OSError."""
    info = os.statvfs(place)
    used, left = (count * info.f_frsize for count in (info.f_blocks - info.f_bfree, info.f_bavail))
    return Fullness(used, info.f_files - info.f_ffree, used + left, info.f_files)


def _journal_mib(limit_bytes: int) -> int:
    """Of the smallest that mke2fs takes; a disk that is smaller than eight of them has none."""
    return min(16, limit_bytes // (8 * 2**20) // 4 * 4)


def _run(command: list[str]) -> None:
    try:
        done = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=_COMMAND_S,
            check=False,
            env={"PATH": _SYSTEM_PATH, "LC_ALL": "C"},
        )
    except subprocess.TimeoutExpired as error:
        raise OSError(f"{command[0]} did not end within {_COMMAND_S:g} s") from error
    if done.returncode != 0:
        said = " ".join(done.stderr.decode("utf-8", "replace").split())[-200:]
        raise OSError(f"{command[0]}: {said or f'exit code {done.returncode}'}")
