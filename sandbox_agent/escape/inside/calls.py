"""What a probe in Python has at hand. Runs in the container, before the probe's own text and in its namespace.

A probe says one of three things and ends: `breach` (it worked, which it must not), `closed` (it was refused), `unknown`
(it could not be tried). A probe that ends without saying anything has no verdict either.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import os
import platform
import signal
import socket
import struct
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any, NoReturn

NUMBERS = {
    "x86_64": {
        "open": 2, "fork": 57, "chmod": 90, "fchmod": 91, "ptrace": 101, "syslog": 103, "capset": 126, "uselib": 134,
        "personality": 135, "ustat": 136, "sysfs": 139, "modify_ldt": 154, "pivot_root": 155, "adjtimex": 159,
        "chroot": 161, "acct": 163, "settimeofday": 164, "mount": 165, "umount2": 166, "swapon": 167, "swapoff": 168,
        "reboot": 169, "sethostname": 170, "setdomainname": 171, "iopl": 172, "ioperm": 173, "init_module": 175,
        "delete_module": 176, "quotactl": 179, "io_setup": 206, "lookup_dcookie": 212, "clock_settime": 227,
        "mbind": 237, "set_mempolicy": 238, "get_mempolicy": 239, "kexec_load": 246, "add_key": 248,
        "request_key": 249, "keyctl": 250, "ioprio_set": 251, "migrate_pages": 256, "openat": 257, "mknodat": 259,
        "fchmodat": 268, "unshare": 272, "vmsplice": 278, "move_pages": 279, "perf_event_open": 298,
        "fanotify_init": 300, "prlimit64": 302, "name_to_handle_at": 303, "open_by_handle_at": 304,
        "clock_adjtime": 305, "setns": 308, "process_vm_readv": 310, "process_vm_writev": 311, "kcmp": 312,
        "finit_module": 313, "sched_setattr": 314, "memfd_create": 319, "kexec_file_load": 320, "bpf": 321,
        "execveat": 322, "userfaultfd": 323, "clone": 56,
    },
    "aarch64": {
        "io_setup": 0, "lookup_dcookie": 18, "ioprio_set": 30, "mknodat": 33, "umount2": 39, "mount": 40,
        "pivot_root": 41, "chroot": 51, "fchmod": 52, "fchmodat": 53, "openat": 56, "quotactl": 60, "vmsplice": 75,
        "acct": 89, "capset": 91, "personality": 92, "unshare": 97, "kexec_load": 104, "init_module": 105,
        "delete_module": 106, "clock_settime": 112, "syslog": 116, "ptrace": 117, "reboot": 142, "sethostname": 161,
        "setdomainname": 162, "settimeofday": 170, "adjtimex": 171, "add_key": 217, "request_key": 218, "keyctl": 219,
        "clone": 220, "swapon": 224, "swapoff": 225, "mbind": 235, "get_mempolicy": 236, "set_mempolicy": 237,
        "migrate_pages": 238, "move_pages": 239, "perf_event_open": 241, "prlimit64": 261, "fanotify_init": 262,
        "name_to_handle_at": 264, "open_by_handle_at": 265, "clock_adjtime": 266, "setns": 268,
        "process_vm_readv": 270, "process_vm_writev": 271, "kcmp": 272, "finit_module": 273, "sched_setattr": 274,
        "memfd_create": 279, "bpf": 280, "execveat": 281, "userfaultfd": 282, "kexec_file_load": 294,
    },
}  # fmt: skip
SAME_EVERYWHERE = {
    "pidfd_send_signal": 424, "io_uring_setup": 425, "io_uring_enter": 426, "io_uring_register": 427, "open_tree": 428,
    "move_mount": 429, "fsopen": 430, "fsconfig": 431, "fsmount": 432, "fspick": 433, "pidfd_open": 434, "clone3": 435,
    "openat2": 437, "pidfd_getfd": 438, "process_madvise": 440, "mount_setattr": 442, "quotactl_fd": 443,
    "memfd_secret": 447, "process_mrelease": 448, "cachestat": 451, "fchmodat2": 452, "statmount": 457,
    "listmount": 458, "lsm_list_modules": 461, "setxattrat": 463, "open_tree_attr": 467,
}  # fmt: skip

REFUSALS = (errno.EPERM, errno.EACCES, errno.ENOSYS)
NAMESPACES = {
    "cgroup": 0x02000000, "uts": 0x04000000, "ipc": 0x08000000, "user": 0x10000000, "pid": 0x20000000,
    "net": 0x40000000, "mnt": 0x00020000, "time": 0x00000080,
}  # fmt: skip

ABOVE = os.getppid()
"""Of the process that reads this: where several probes are run from one, of that one."""

libc = ctypes.CDLL(None, use_errno=True)
libc.syscall.restype = ctypes.c_long


def _say(word: str, text: object) -> NoReturn:
    sys.stdout.write(f"{word} {' '.join(str(text).split())}\n")
    sys.stdout.flush()
    os._exit(0)


def breach(text: object = "") -> NoReturn:
    """It worked."""
    _say("OPEN", text)


def closed(text: object = "") -> NoReturn:
    """It was refused, or what it needs is not there."""
    _say("BLOCKED", text)


def unknown(text: object = "") -> NoReturn:
    """It could not be tried."""
    _say("UNKNOWN", text)


def name_of(number: int) -> str:
    return errno.errorcode.get(number, str(number))


def limit(name: str) -> int:
    """A number that the host passed on: LIMIT_MEMORY and its like."""
    return int(os.environ[name])


def invoke(name: str, *arguments: Any) -> tuple[int, int]:
    """A system call by its number, whatever the C library thinks of it: result and errno."""
    number = SAME_EVERYWHERE.get(name, NUMBERS.get(platform.machine(), {}).get(name))
    if number is None:
        closed(f"{platform.machine()} has no {name}")
    return raw(number, *arguments)


def raw(number: int, *arguments: Any) -> tuple[int, int]:
    ctypes.set_errno(0)
    given = [ctypes.c_long(one) if isinstance(one, int) else one for one in arguments]
    return libc.syscall(ctypes.c_long(number), *given), ctypes.get_errno()


def refused(name: str, *arguments: Any, also: tuple[int, ...] = ()) -> NoReturn:
    """A breach if the call gets so far that it succeeds, or complains of anything but the right to make it."""
    result, number = invoke(name, *arguments)
    if result >= 0 or number not in (*REFUSALS, *also):
        breach(f"{name}: {result if result >= 0 else name_of(number)}")
    closed(f"{name}: {name_of(number)}")


def attempt(act: Callable[..., Any], *arguments: Any, **options: Any) -> NoReturn:
    """A breach if this does not raise OSError."""
    try:
        result = act(*arguments, **options)
    except OSError as exc:
        closed(exc)
    breach(result)


def none_of(tries: dict[str, Callable[[], Any]]) -> NoReturn:
    """A breach if any of these does not raise OSError; names those that worked."""
    worked = []
    for name, act in tries.items():
        with contextlib.suppress(OSError):
            act()
            worked.append(name)
    if worked:
        breach(", ".join(worked))
    closed(f"{len(tries)} refused")


def any_opens(paths: list[str], flags: int = os.O_RDONLY) -> NoReturn:
    """A breach if one of the paths can be opened; nothing is read or written."""

    def opening(path: str) -> Callable[[], None]:
        return lambda: os.close(os.open(path, flags | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC))

    none_of({path: opening(path) for path in paths})


def any_speaks(paths: list[str]) -> NoReturn:
    """A breach if one of the files yields a byte, or one of the folders a name."""

    def has_content(path: str) -> bool:
        try:
            if os.path.isdir(path):
                return bool(os.listdir(path))
            with open(path, "rb", buffering=0) as file:
                return bool(file.read(1))
        except OSError:
            return False

    telling = [path for path in paths if has_content(path)]
    if telling:
        breach(", ".join(telling[:8]))
    closed(f"{len(paths)} say nothing")


def in_child(act: Callable[[], int], seconds: float = 8.0) -> int:
    """Run this in a child; its exit code, or minus the signal that ended it. What hangs is killed."""
    child = os.fork()
    if child == 0:
        os._exit(act() & 0x7F)
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.005)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return -signal.SIGALRM


def sleeper() -> int:
    """The process ID of a child that waits, at the same uid."""
    child = os.fork()
    if child == 0:
        signal.alarm(20)
        signal.pause()
        os._exit(0)
    return child


def processes() -> Iterator[int]:
    return (int(name) for name in os.listdir("/proc") if name.isdigit())


def ancestors() -> list[int]:
    """The process IDs above the call's own, as far as they are seen: supervisor and runner."""
    found, pid = [], ABOVE
    while pid > 0 and pid not in found:
        found.append(pid)
        with open(f"/proc/{pid}/status", encoding="ascii", errors="replace") as file:
            pid = next(int(line.split()[1]) for line in file if line.startswith("PPid:"))
    return found


def mounts() -> list[tuple[str, str, str, str, str, str]]:
    """Of each mount: root, mount point, options, kind, source, and the options of the file system."""
    found = []
    with open("/proc/self/mountinfo", encoding="utf-8", errors="surrogateescape") as file:
        for line in file:
            front, _, back = line.partition(" - ")
            one, other = front.split(), back.split(" ")
            found.append((one[3], one[4], one[5], other[0], other[1], other[2].strip()))
    return found


def scratch(name: str) -> str:
    """A path in the workspace that is not there."""
    path = f"/workspace/.escape-test-{os.getpid()}-{name}"
    with contextlib.suppress(FileNotFoundError):
        os.unlink(path)
    return path


def route_to(address: str, family: int = socket.AF_INET) -> bool:
    """Whether the kernel would send there. Nothing is sent: connecting a datagram socket only looks for a way."""
    with socket.socket(family, socket.SOCK_DGRAM) as channel:
        try:
            channel.connect((address, 53))
        except OSError:
            return False
    return True


def no_route(addresses: list[str]) -> NoReturn:
    """A breach if there is a way to one of them."""
    reached = [one for one in addresses if route_to(one, socket.AF_INET6 if ":" in one else socket.AF_INET)]
    if reached:
        breach(f"a route to {', '.join(reached)}")
    closed("no route")


def netlink(kind: int, body: bytes) -> int:
    """Ask the routing socket for a change; the errno of the answer, 0 if it was done."""
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 0) as channel:
        channel.bind((0, 0))
        channel.sendto(struct.pack("=IHHII", 16 + len(body), kind, 0x0005, 1, 0) + body, (0, 0))
        channel.settimeout(2)
        answer = channel.recv(4096)
    code: int = struct.unpack("=i", answer[16:20])[0]
    return -code


def fill(folder: str, most_bytes: int) -> NoReturn:
    """A breach if a folder takes a sixteenth more than this. Room is reserved, not written, where that can be done."""
    wanted, step, taken = most_bytes + most_bytes // 16 + (16 << 20), 256 << 20, 0
    names: list[str] = []
    why = ""
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    try:
        while taken < wanted and not why:
            path = f"{folder}/.escape-test-{os.getpid()}-{len(names)}"
            fd = os.open(path, os.O_CREAT | os.O_WRONLY, 0o600)
            names.append(path)
            size = min(step, wanted - taken)
            try:
                os.posix_fallocate(fd, 0, size)
            except OSError as exc:
                why = exc.strerror or "refused"
            taken += os.fstat(fd).st_blocks * 512
            os.close(fd)
    except OSError as exc:
        why = exc.strerror or "refused"
    finally:
        for path in names:
            os.unlink(path)
    if taken >= wanted:
        breach(f"{taken >> 20} MiB")
    closed(f"{why or 'refused'} after {taken >> 20} MiB")
