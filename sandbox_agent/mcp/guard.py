"""Stands over the program of an MCP server on this machine: nothing of it outlives the engine, however that ends.

guard.py DESCRIPTOR MARK PROGRAM [ARGUMENT]...

The descriptor is the reading end of a pipe whose other end only the engine has: it ends when the engine closes it, or
is killed. Then, and when the program has ended by itself, all that is left of it is killed: its process group, and what
left that and still carries the mark in its environment. Standard library only; it is run by its path.
"""

import contextlib
import os
import select
import signal
import sys
import threading

NO_SUCH_PROGRAM = 127
CANNOT_RUN = 126


def main() -> None:
    """Start the program and wait for its end, or the engine's."""
    life, mark, words = int(sys.argv[1]), sys.argv[2], sys.argv[3:]
    pid = os.fork()
    if not pid:
        _become(words, life)
    nothing = os.open(os.devnull, os.O_RDWR)
    for descriptor in (0, 1, 2):  # the program's alone, so that its end is seen at once
        os.dup2(nothing, descriptor)
    watching = threading.Thread(target=_end_with_the_engine, args=(life, pid, mark), daemon=True)
    watching.start()
    _, status = os.waitpid(pid, 0)
    _kill_all(pid, mark)
    code = os.waitstatus_to_exitcode(status)
    os._exit(code if code >= 0 else 128 - code)


def _become(words: list[str], life: int) -> None:
    try:
        os.close(life)
        os.setsid()
        for ours in (signal.SIGPIPE, signal.SIGXFSZ):  # which Python does not obey, and hands on so
            signal.signal(ours, signal.SIG_DFL)
        os.execvp(words[0], words)
    except FileNotFoundError:
        os._exit(NO_SUCH_PROGRAM)
    except BaseException:  # noqa: BLE001 - whatever it is, nothing of the guard may run on here
        os._exit(CANNOT_RUN)


def _end_with_the_engine(life: int, pid: int, mark: str) -> None:
    while os.read(life, 4096):
        pass
    _kill_all(pid, mark)


def _kill_all(pid: int, mark: str) -> None:
    with contextlib.suppress(OSError):
        os.killpg(pid, signal.SIGKILL)
    carried = f"SANDBOX_AGENT_MCP={mark}".encode()
    for name in os.listdir("/proc"):
        if name.isdigit() and int(name) != os.getpid():
            _kill_if_marked(int(name), carried)


def _kill_if_marked(pid: int, carried: bytes) -> None:
    """By a descriptor, so that what is killed is what was looked at."""
    try:
        process = os.pidfd_open(pid)
    except OSError:
        return
    try:
        with open(f"/proc/{pid}/environ", "rb") as file:
            if carried in file.read().split(b"\0"):
                signal.pidfd_send_signal(process, signal.SIGKILL)
                select.select([process], [], [], 1)
    except OSError:
        pass
    finally:
        os.close(process)


if __name__ == "__main__":
    main()
