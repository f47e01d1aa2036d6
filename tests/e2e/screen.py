"""A pseudo-terminal with the program at one end and the test at the other."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager

from program import Program


class Screen:
    """The other side of the terminal a run has."""

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self.text = ""

    def wait_for(self, words: str) -> str:
        """Read until the words are on the screen; returns all since the last wait."""
        seen = ""
        while words not in seen:
            try:
                data = os.read(self._fd, 65536)
            except OSError:
                data = b""
            assert data, f"{words!r} never came after:\n{self.text}{seen}"
            seen += data.decode(errors="replace").replace("\r\n", "\n")
        self.text += seen
        return seen

    def type(self, keys: str) -> None:
        """Press keys."""
        os.write(self._fd, keys.encode())

    def rest(self) -> str:
        """All until the program closed the terminal."""
        seen = ""
        while True:
            try:
                data = os.read(self._fd, 65536)
            except OSError:
                return seen
            if not data:
                return seen
            seen += data.decode(errors="replace").replace("\r\n", "\n")


@contextmanager
def at_terminal(
    program: Program, *arguments: str, term: str = "dumb"
) -> Iterator[tuple[Screen, subprocess.Popen[bytes]]]:
    """A run whose controlling terminal is a pseudo-terminal."""
    ours, theirs = os.openpty()
    process = program.start_at_terminal(theirs, *arguments, term=term)
    os.close(theirs)
    try:
        yield Screen(ours), process
    finally:
        process.kill()
        process.wait()
        os.close(ours)
