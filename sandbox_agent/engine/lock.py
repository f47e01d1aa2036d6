"""Who uses a session: a file lock in its folder, which the kernel gives back whatever ends the process."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

from sandbox_agent.errors import ConfigError

_LOCK_FILE = "in-use"


class SessionLock:
    """Held from the opening of a session to its end."""

    def __init__(self, folder: Path) -> None:
        """Take the lock of the session in `folder`.

        Raises:
            ConfigError: another process has it.
        """
        self._fd = _open(folder)
        try:
            fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(self._fd)
            text = f"session {folder.name} is in use by another process; wait for its end, or stop it"
            raise ConfigError(text) from None

    def release(self) -> None:
        """Give it back. Safe to call twice."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


def in_use(folder: Path) -> bool:
    """Whether a living process has the session open."""
    if not (folder / _LOCK_FILE).exists():
        return False
    fd = _open(folder)
    try:
        # Shared, so that two processes that only look do not take each other for the owner.
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(fd)
    return False


def _open(folder: Path) -> int:
    return os.open(folder / _LOCK_FILE, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
