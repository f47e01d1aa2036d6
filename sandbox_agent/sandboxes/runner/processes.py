"""Finding and ending every process below one, whatever it did to get away: new sessions, double forks, fork bombs.

Runs in the container (see the package). It works because a supervisor is a subreaper: what loses its parent below it
becomes its own child instead of the init's.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import time

_PR_SET_DUMPABLE = 4
_PR_SET_NAME = 15
_PR_SET_CHILD_SUBREAPER = 36
_STOP_ROUNDS = 50
_CLEAR_ROUNDS = 1000
_CLEAR_PAUSE_S = 0.001


def _prctl(option: int, argument: object) -> None:
    if ctypes.CDLL(None, use_errno=True).prctl(option, argument, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), f"prctl {option}")


def become_subreaper() -> None:
    """Orphans below this process come to it. Not inherited by fork: every supervisor asks for itself."""
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)


def protect_self() -> None:
    """No process of the same uid may look into this one's memory and descriptors; forks inherit it.

    The unreadable interpreter of our images gives this from the first instruction on; another image's does not.
    """
    _prctl(_PR_SET_DUMPABLE, 0)
    _prctl(_PR_SET_NAME, b"sandbox-runner")


def _living() -> dict[int, list[int]]:
    """The children of every process, zombies as parents only."""
    children: dict[int, list[int]] = {}
    for name in os.listdir("/proc"):
        if not name.isdigit():
            continue
        try:
            with open(f"/proc/{name}/stat", "rb", buffering=0) as file:
                # The name in parentheses may hold anything, so count from the last closing one.
                fields = file.read(4096).rpartition(b")")[2].split()
        except (FileNotFoundError, ProcessLookupError):
            continue
        if fields[0] not in (b"Z", b"X"):
            children.setdefault(int(fields[1]), []).append(int(name))
    return children


def children_of(pid: int) -> set[int]:
    return set(_living().get(pid, []))


def descendants(root: int) -> list[int]:
    """All living processes below `root`. What is below a zombie belongs to its subreaper already."""
    children = _living()
    found: list[int] = []
    todo = [root]
    while todo:
        below = children.get(todo.pop(), [])
        found += below
        todo += below
    return found


def signal_all(pids: list[int], number: int) -> None:
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)


def terminate_all(root: int) -> None:
    """Ask everything below `root` to end; a stopped process must be let go on to notice."""
    pids = descendants(root)
    signal_all(pids, signal.SIGTERM)
    signal_all(pids, signal.SIGCONT)


def kill_others(spared: int | None) -> bool:
    """Kill every process of our uid but ourselves, and the spared one with all below it; False when some outlive it.

    All are stopped first, see `kill_all`; killed is only when a look finds no new one, or after many looks.
    """
    keep = {os.getpid()} if spared is None else {os.getpid(), spared, *descendants(spared)}
    stopped: set[int] = set()
    for _ in range(_STOP_ROUNDS):
        new = _others(keep) - stopped
        if not new:
            break
        signal_all(sorted(new), signal.SIGSTOP)
        stopped |= new
    for _ in range(_CLEAR_ROUNDS):
        others = _others(keep)
        if not others:
            return True
        signal_all(sorted(others), signal.SIGKILL)
        time.sleep(_CLEAR_PAUSE_S)
    return False


def _others(keep: set[int]) -> set[int]:
    return {pid for pids in _living().values() for pid in pids if pid not in keep and _may_signal(pid)}


def _may_signal(pid: int) -> bool:
    """Whether it is of our uid; who owns its files in /proc does not tell that."""
    try:
        os.kill(pid, 0)
    except (ProcessLookupError, PermissionError):
        return False
    return True


def kill_all(root: int) -> set[int]:
    """Kill everything below `root` and return the pids.

    All are stopped first, until a look finds no new one: a stopped process cannot fork, and keeps its place under
    the process limit, so that a fork bomb runs out of room instead of outrunning us.
    """
    stopped: set[int] = set()
    for _ in range(_STOP_ROUNDS):
        new = [pid for pid in descendants(root) if pid not in stopped]
        if not new:
            break
        signal_all(new, signal.SIGSTOP)
        stopped.update(new)
    signal_all(sorted(stopped), signal.SIGKILL)
    return stopped
