"""The three standard streams, where whoever started us closed some of them (`>&-`, a service without a terminal)."""

from __future__ import annotations

import os
import sys
from typing import TextIO, cast


def fill_closed() -> None:
    """Put the null device in the place of every closed one.

    The next file that is opened would get its number otherwise: a record, and a child's words in it.
    """
    while (fd := os.open(os.devnull, os.O_RDWR)) <= 2:
        os.set_inheritable(fd, True)
    os.close(fd)
    sys.stdin = sys.stdin or _stream(0, "r")
    sys.stdout = sys.stdout or _stream(1, "w")
    sys.stderr = sys.stderr or _stream(2, "w")


def _stream(number: int, mode: str) -> TextIO:
    return cast(TextIO, open(number, mode, encoding="utf-8", closefd=False))
