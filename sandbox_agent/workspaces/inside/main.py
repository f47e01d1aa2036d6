"""The loop: frames of the host come in, answers go out, until the host hangs up."""

from __future__ import annotations

import gc
import signal
import sys

from sandbox_agent.workspaces.inside import wire
from sandbox_agent.workspaces.inside.below import Below
from sandbox_agent.workspaces.inside.look import Look
from sandbox_agent.workspaces.inside.put import Put

_IGNORED = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2, signal.SIGALRM)
"""A command's `pkill python` is not meant for this."""


def main() -> None:
    for number in _IGNORED:
        signal.signal(number, signal.SIG_IGN)
    below = Below(sys.argv[1])
    gc.disable()  # nothing here makes cycles, and looking for them among 100,000 records takes time
    out = wire.Out()
    look, put = Look(below, out), Put(below, out)
    out.send(wire.HELLO)
    while True:
        size, kind = wire.HEADER.unpack(wire.take(wire.HEADER.size))
        body = wire.take(size)
        if kind == wire.WALK:
            look.walk(body)
        elif kind == wire.GIVE:
            look.give_all(body)
        elif kind == wire.DATA:
            put.write(body)
        elif kind == wire.FINISH_FILE:
            put.finish_file(body)
        elif kind == wire.FINISH:
            put.finish()
        else:
            put.act(kind, body)
