"""Starting a call's program: where it is found, what it inherits, and why it could not start.

Runs in the container (see the package).
"""

from __future__ import annotations

import contextlib
import errno
import os
import signal
from collections.abc import Sequence

NICENESS = 10
"""Of every program: where hundreds of processes are at work, whoever is to end them still gets the processor."""

NOT_FOUND = 127
NOT_EXECUTABLE = 126

_FAULTS = {signal.SIGSEGV, signal.SIGBUS, signal.SIGFPE, signal.SIGILL, signal.SIGABRT}
SHIELDED_SIGNALS = sorted(signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP, signal.SIGCHLD} - _FAULTS)
"""What the runner ignores, so that a `pkill python` or `kill -- -1` of a command does not end the session's runner."""


class CannotStartError(Exception):
    """The program did not start. `exit_code` is what a shell would give."""

    def __init__(self, exit_code: int, text: str) -> None:
        super().__init__(text)
        self.exit_code = exit_code


def shield() -> None:
    """Ignore every signal that can be ignored."""
    for number in SHIELDED_SIGNALS:
        signal.signal(number, signal.SIG_IGN)


def encode(text: str) -> bytes:
    return text.encode("utf-8", "surrogateescape")


def start(argv: Sequence[str], env: dict[str, str], stdin: int, stdout: int, stderr: int) -> int:
    """Start a program in the current folder, in a process group of its own, with default signals; returns its pid.

    Raises:
        CannotStartError: see there.
    """
    environment = {encode(name): encode(value) for name, value in env.items()}
    failure = CannotStartError(NOT_FOUND, f"{argv[0]}: command not found")
    for path in _candidates(argv[0], env.get("PATH", "")):
        try:
            pid = os.posix_spawn(
                path,
                [encode(argument) for argument in argv],
                environment,
                file_actions=_three(stdin, stdout, stderr),
                setpgroup=0,
                setsigdef=SHIELDED_SIGNALS,
                setsigmask=(),
            )
            with contextlib.suppress(OSError):  # it may have ended already
                os.setpriority(os.PRIO_PGRP, pid, NICENESS)
            return pid
        except (FileNotFoundError, NotADirectoryError):
            if "/" in argv[0] and os.path.exists(path):
                failure = CannotStartError(NOT_FOUND, f"{argv[0]}: the interpreter it names does not exist")
            elif "/" in argv[0]:
                failure = CannotStartError(NOT_FOUND, f"{argv[0]}: {os.strerror(errno.ENOENT)}")
        except PermissionError:
            text = os.strerror(errno.EISDIR if os.path.isdir(path) else errno.EACCES)
            failure = CannotStartError(NOT_EXECUTABLE, f"{argv[0]}: {text}")
        except OSError as exc:
            text = exc.strerror or str(exc)
            if exc.errno == errno.EAGAIN:
                text += " (the process limit of the sandbox is reached)"
            raise CannotStartError(NOT_EXECUTABLE, f"{argv[0]}: {text}") from exc
    raise failure


def _candidates(program: str, search_path: str) -> list[bytes]:
    """Where to look: the name itself if it has a slash, else every folder of the PATH that has such a name."""
    if "/" in program:
        return [encode(program)]
    places = [encode(os.path.join(folder or ".", program)) for folder in search_path.split(":")]
    return [place for place in places if os.path.exists(place) and not os.path.isdir(place)]


def _three(stdin: int, stdout: int, stderr: int) -> list[tuple[int, int, int]]:
    return [(os.POSIX_SPAWN_DUP2, stdin, 0), (os.POSIX_SPAWN_DUP2, stdout, 1), (os.POSIX_SPAWN_DUP2, stderr, 2)]
