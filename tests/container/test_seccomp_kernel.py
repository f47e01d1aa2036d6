"""The kernel does as the seccomp profile says, for commands of the runner and of an exec; tracing under `debug`."""

from __future__ import annotations

import json
import platform
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from sandbox_rig import Rig, rig

pytestmark = pytest.mark.docker

PROGRAM = Path(__file__).with_name("seccomp_program.py").read_text("utf-8")

CALLS = [
    # label, how, number on x86-64, arguments, what the kernel must say
    ("ptrace (TRACEME)", "call", 101, [0, 0, 0, 0], "EPERM"),
    ("process_vm_readv", "call", 310, [1, 0, 0, 0, 0, 0], "EPERM"),
    ("bpf", "call", 321, [0, 0, 0], "EPERM"),
    ("perf_event_open", "call", 298, [0, 0, -1, -1, 0], "EPERM"),
    ("userfaultfd", "call", 323, [1], "EPERM"),
    ("add_key", "call", 248, ["user", "a", "b", 1, -3], "EPERM"),
    ("keyctl", "call", 250, [0, -3, 0], "EPERM"),
    ("modify_ldt", "call", 154, [0, 0, 0], "EPERM"),
    ("unshare (files)", "call", 272, [0x400], "EPERM"),
    ("mount", "call", 165, ["a", "/tmp", "tmpfs", 0, 0], "EPERM"),
    ("open_by_handle_at", "call", 304, [-100, 0, 0], "EPERM"),
    ("name_to_handle_at", "call", 303, [-100, "/", 0, 0, 0], "EPERM"),
    ("vmsplice", "call", 278, [0, 0, 0, 0], "EPERM"),
    ("personality (no randomisation)", "call", 135, [0x40000], "EPERM"),
    ("personality (ask)", "call", 135, [0xFFFFFFFF], "ok"),
    ("prlimit64 (another's)", "call", 302, [1, 7, 0, 0], "EPERM"),
    ("prlimit64 (own)", "call", 302, [0, 7, 0, 0], "ok"),
    ("clone (new user namespace)", "call", 56, [0x10000011, 0, 0, 0, 0], "EPERM"),
    ("ioctl (TIOCSTI)", "call", 16, [0, 0x5412, "x"], "EPERM"),
    ("ioctl (TIOCSTI with more bits)", "call", 16, [0, 0x1_0000_5412, "x"], "EPERM"),
    ("ioctl (TCGETS)", "call", 16, [0, 0x5401, 0], "ENOTTY"),
    ("socket (vsock)", "call", 41, [40, 1, 0], "EPERM"),
    ("socket (alg)", "call", 41, [38, 5, 0], "EPERM"),
    ("socket (packet)", "call", 41, [17, 3, 0], "EPERM"),
    ("socket (raw)", "call", 41, [2, 3, 1], "EPERM"),
    ("socket (sctp)", "call", 41, [2, 1, 132], "EPERM"),
    ("socket (netfilter)", "call", 41, [16, 3, 12], "EPERM"),
    ("socket (routes)", "call", 41, [16, 3, 0], "ok"),
    ("socket (tcp)", "call", 41, [2, 0o2000001, 6], "ok"),
    ("creat (set-user-ID)", "call", 85, ["/workspace/c", 0o4755], "EPERM"),
    ("openat (temporary, set-group-ID)", "call", 257, [-100, "/workspace", 0o20200002, 0o2755], "EPERM"),
    ("fchmodat2 (set-user-ID)", "call", 452, [-100, "/workspace", 0o4755, 0], "EPERM or ENOSYS"),
    ("mknod (device)", "call", 133, ["/workspace/d", 0o020666, 0x103], "EPERM"),
    ("mknod (FIFO)", "call", 133, ["/workspace/f", 0o010644, 0], "ok"),
    ("clone3", "call", 435, [0, 0], "ENOSYS"),
    ("openat2", "call", 437, [-100, "/", 0, 24], "ENOSYS"),
    ("io_uring_setup", "call", 425, [4, 0], "ENOSYS"),
    ("one that no kernel has yet", "call", 900, [], "ENOSYS"),
    ("a 32-bit call", "32", 0, [], "SIGSYS"),
    ("an x32 call", "child", 0x40000000 + 39, [], "SIGSYS"),
]


@pytest.fixture(scope="module")
async def box(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Rig]:
    async with rig(tmp_path_factory.mktemp("seccomp")) as made:
        yield made


@pytest.fixture(scope="module")
async def answers(box: Rig) -> dict[str, str]:
    """What the kernel said to each call."""
    assert platform.machine() == "x86_64", "the numbers of CALLS are those of x86-64"
    asked = json.dumps([call[:4] for call in CALLS]).encode()
    result = await box.sandbox.exec(["python3", "-c", PROGRAM], stdin=asked)
    assert result.exit_code == 0, result.stderr
    return dict(json.loads(result.stdout))


@pytest.mark.parametrize(("label", "wanted"), [(call[0], call[4]) for call in CALLS])
async def test_the_kernel_says_to_a_call(answers: dict[str, str], label: str, wanted: str) -> None:
    """What the profile says; a runtime that does not know a new call by name says that it is absent."""
    assert answers[label] in wanted.split(" or ")


async def test_what_is_started_past_the_runner_is_filtered_too(box: Rig) -> None:
    """Every exec of the engine gets the container's filter."""
    code, said = await box.outside(["python3", "-c", "import os; os.chmod('/workspace', 0o2755)"])

    assert (code, b"Operation not permitted" in said) == (1, True)


async def test_under_debug_a_process_may_be_traced_and_the_runner_may_not(tmp_path: Path) -> None:
    """The profile is named at the start; all else stays closed."""
    attach = """
import ctypes, os, subprocess, sys
L = ctypes.CDLL(None, use_errno=True)
child = subprocess.Popen(["sleep", "30"])
print(L.ptrace(16, child.pid, 0, 0), L.ptrace(16, int(sys.argv[1]), 0, 0), L.syscall(56, 0x10000011, 0, 0, 0, 0))
"""
    async with rig(tmp_path, seccomp="debug") as box:
        result = await box.sandbox.exec(["bash", "-c", 'python3 -c "$0" $PPID', attach])

    assert (result.stdout, result.stderr) == (b"0 -1 -1\n", b"")
    assert "seccomp debug" in box.info.isolation
