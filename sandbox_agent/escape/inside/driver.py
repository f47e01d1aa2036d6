"""Runs several probes in one call, each in a process of its own. Runs in the container; standard library only.

Starting Python costs more than a probe does: the helpers are read once, and each probe's process is forked from there.
Reads a JSON list of [id, program, seconds] from its input; writes one JSON line for each probe that has ended.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import sys
import time
from typing import Any, NoReturn

_MAX_BYTES = 16 * 1024
_LOOK_MS = 20


def main(helpers: str) -> None:
    """Every probe, one after the other."""
    space: dict[str, Any] = {"__name__": "probe"}
    exec(compile(helpers, "<helpers>", "exec"), space)
    for name, program, seconds in json.loads(sys.stdin.buffer.read()):
        started_s = time.monotonic()
        reader, writer = os.pipe()
        child = os.fork()
        if child == 0:
            _become(writer, program, space)
        os.close(writer)
        said, status = _until_ended(child, reader, started_s + seconds)
        os.close(reader)
        code = 137 if status is None else os.waitstatus_to_exitcode(status)
        fields = {
            "id": name,
            "code": code if code >= 0 else 128 - code,
            "said": said.decode("utf-8", "replace"),
            "timed_out": status is None,
            "duration_s": time.monotonic() - started_s,
        }
        sys.stdout.write(json.dumps(fields) + "\n")
        sys.stdout.flush()


def _become(writer: int, program: str, space: dict[str, Any]) -> NoReturn:
    """In the child: a session of its own, its output to us, no other descriptor."""
    try:
        os.setsid()
        null = os.open(os.devnull, os.O_RDWR)
        for fd, source in ((0, null), (1, writer), (2, writer)):
            os.dup2(source, fd)
        os.closerange(3, 256)
        exec(compile(program, "<probe>", "exec"), space)
    except BaseException as exc:  # noqa: BLE001
        # Whatever it is: the parent must hear of it, and nothing of the parent's program may run on from here.
        os.write(2, f"{type(exc).__name__}: {exc}\n".encode())
    finally:
        os._exit(1)


def _until_ended(child: int, reader: int, until_s: float) -> tuple[bytes, int | None]:
    """What the child says, and its status; None where it had to be killed. What it started goes with it."""
    os.set_blocking(reader, False)
    poll = select.poll()
    poll.register(reader, select.POLLIN)
    kept, ended, status = b"", False, 0
    while not ended and time.monotonic() < until_s:
        poll.poll(_LOOK_MS)
        done, status = os.waitpid(child, os.WNOHANG)
        ended = done != 0
        with contextlib.suppress(BlockingIOError):
            while data := os.read(reader, 65536):
                kept = (kept + data)[-_MAX_BYTES:]
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(child, signal.SIGKILL)
    if not ended:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
    return kept, status if ended else None
