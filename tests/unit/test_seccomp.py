"""The seccomp profiles: made from the list, each call in one place, and which arguments get through."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sandbox_agent.sandboxes.seccomp.generate import ENOSYS, EPERM, FOLDER, made, profile_json
from sandbox_agent.sandboxes.seccomp.profile import PROFILES, profile_text

SOURCE = (FOLDER / "calls.toml").read_text("utf-8")
GROUPS = tomllib.loads(SOURCE)
TIOCSTI = 0x5412


def outcome(profile: Mapping[str, Any], call: str, *given: int) -> int:
    """0 when the call may be made, else the error; as the kernel's filter decides, arguments as 64 bits."""
    arguments = [number & 0xFFFF_FFFF_FFFF_FFFF for number in (*given, 0, 0, 0, 0, 0, 0)]
    for rule in profile["syscalls"]:
        if call in rule["names"] and all(_holds(test, arguments) for test in rule.get("args", ())):
            return int(rule.get("errnoRet", 0))
    return int(profile["defaultErrnoRet"])


def _holds(test: Mapping[str, Any], arguments: list[int]) -> bool:
    if test["op"] == "SCMP_CMP_MASKED_EQ":
        return bool(arguments[test["index"]] & test["value"] == test["valueTwo"])
    assert test["op"] == "SCMP_CMP_EQ"
    return bool(arguments[test["index"]] == test["value"])


@pytest.fixture(scope="module")
def default() -> dict[str, Any]:
    """The profile that a session has unless its policy says otherwise."""
    return dict(json.loads(profile_text("default")))


@pytest.mark.parametrize("name", PROFILES)
def test_the_profile_is_what_the_list_says(name: str) -> None:
    """`python -m sandbox_agent.sandboxes.seccomp.generate` was run after the last change."""
    assert (FOLDER / f"{name}.json").read_text("utf-8") == made(SOURCE)[f"{name}.json"]


def test_every_group_has_a_reason_and_every_call_one_group() -> None:
    """A call that stands twice is an error of the generator's, too."""
    groups = [group for kind in ("allow", "refuse", "absent") for group in GROUPS[kind]]
    assert all(group["group"] and group["reason"].strip() for group in groups)

    again = {**GROUPS, "refuse": [*GROUPS["refuse"], {"group": "again", "reason": "none", "calls": "read"}]}
    with pytest.raises(ValueError, match="in more than one group: read"):
        profile_json("default", again)


def test_two_conditions_on_one_argument_are_refused() -> None:
    """The runtime would take them as alternatives, which lets more through than was meant."""
    bad = {"group": "g", "reason": "r", "calls": "x", "when": [[{"arg": 0, "clear": 1}, {"arg": 0, "clear": 2}]]}
    with pytest.raises(ValueError, match="two conditions on one argument"):
        profile_json("default", {**GROUPS, "allow": [bad]})


@pytest.mark.parametrize("name", PROFILES)
def test_only_the_machines_own_calling_convention_is_open(name: str) -> None:
    """No 32-bit and no x32 calls; x86-64 and arm64 from one file."""
    profile = json.loads(profile_text(name))
    assert profile["archMap"] == [
        {"architecture": "SCMP_ARCH_X86_64", "subArchitectures": []},
        {"architecture": "SCMP_ARCH_AARCH64", "subArchitectures": []},
    ]
    assert (profile["defaultAction"], profile["defaultErrnoRet"]) == ("SCMP_ACT_ERRNO", EPERM)


CREATE, TMPFILE = 0o100, 0o20200000
ARGUMENTS = [
    ("open", (0, 0, 0o6777), 0),  # without O_CREAT the mode is whatever lies there
    ("open", (0, CREATE, 0o4755), EPERM),
    ("open", (0, TMPFILE, 0o2755), EPERM),
    ("open", (0, CREATE, 0o1777), 0),
    ("openat", (-100, 0, CREATE, 0o4755), EPERM),
    ("openat", (-100, 0, TMPFILE, 0o6755), EPERM),
    ("openat", (-100, 0, CREATE, 0o666), 0),
    ("openat", (-100, 0, 0, 0o7777), 0),
    ("creat", (0, 0o2755), EPERM),
    ("chmod", (0, 0o4755), EPERM),
    ("chmod", (0, 0o2755), EPERM),
    ("chmod", (0, 0o1777), 0),
    ("fchmod", (3, 0o4000 | 1 << 40), EPERM),
    ("fchmodat", (-100, 0, 0o6755), EPERM),
    ("fchmodat2", (-100, 0, 0o4755, 0), EPERM),
    ("fchmodat2", (-100, 0, 0o755, 0), 0),
    ("mkdir", (0, 0o2775), EPERM),
    ("mkdirat", (-100, 0, 0o775), 0),
    ("mknod", (0, 0o010644, 0), 0),
    ("mknod", (0, 0o140755, 0), 0),
    ("mknod", (0, 0o644, 0), 0),
    ("mknod", (0, 0o104755, 0), EPERM),
    ("mknod", (0, 0o020666, 0x103), EPERM),
    ("mknodat", (-100, 0, 0o060666, 0x800), EPERM),
    ("clone", (0x1200011,), 0),
    ("clone", (0x3D0F00,), 0),
    *(("clone", (flag | 0x11,), EPERM) for flag in (1 << 17, 1 << 25, 1 << 26, 1 << 27, 1 << 28, 1 << 29, 1 << 30)),
    ("clone3", (0, 88), ENOSYS),
    ("openat2", (-100, 0, 0, 24), ENOSYS),
    ("io_uring_setup", (4, 0), ENOSYS),
    ("personality", (0xFFFF_FFFF,), 0),
    ("personality", (-1,), 0),
    ("personality", (0x40000,), EPERM),
    ("prlimit64", (0, 7, 0, 0), 0),
    ("prlimit64", (12, 7, 0, 0), EPERM),
    ("prctl", (15, 0), 0),
    ("prctl", (35, 1), EPERM),
    ("prctl", (53, 0, 0), EPERM),
    ("ioctl", (0, 0x5401), 0),
    ("ioctl", (0, 0x541C), EPERM),
    ("ioctl", (0, TIOCSTI | 1 << 32), EPERM),
    ("socket", (1, 5, 0), 0),
    ("socket", (2, 1 | 0o2000000, 6), 0),
    ("socket", (10, 2 | 0o4000, 17), 0),
    ("socket", (2, 2, 1), 0),
    ("socket", (2, 3, 1), EPERM),
    ("socket", (2, 1, 132), EPERM),
    ("socket", (2, 5, 0), EPERM),
    ("socket", (16, 3, 0), 0),
    ("socket", (16, 3, 12), EPERM),
    *(("socket", (family, 1, 0), EPERM) for family in range(64) if family not in (1, 2, 10, 16)),
    ("socketpair", (1, 1, 0), 0),
    ("socketpair", (40, 1, 0), EPERM),
    ("ptrace", (16, 1, 0, 0), EPERM),
    ("bpf", (0, 0, 0), EPERM),
    ("no_such_call", (), EPERM),
]


@pytest.mark.parametrize(("call", "arguments", "wanted"), ARGUMENTS)
def test_arguments_decide(default: dict[str, Any], call: str, arguments: tuple[int, ...], wanted: int) -> None:
    """What a filter can see of a call and must not let through, next to what must pass."""
    assert outcome(default, call, *arguments) == wanted


@given(number=st.integers(0, 0xFFFF_FFFF), high=st.integers(0, 0xFFFF_FFFF))
def test_a_terminals_number_is_judged_by_its_low_half(number: int, high: int) -> None:
    """As the kernel reads it; the four that are closed stay closed whatever the high half holds."""
    profile = json.loads(profile_text("default"))
    closed = (TIOCSTI, 0x541C, 0x541D, 0x5423)
    for low in (number, *closed):
        assert (outcome(profile, "ioctl", 0, high << 32 | low) == 0) is (low not in closed)


def test_debug_adds_what_a_debugger_needs_and_no_more(default: dict[str, Any]) -> None:
    """Tracing, and starting without address randomisation."""
    debug = json.loads(profile_text("debug"))
    added = [rule for rule in debug["syscalls"] if rule not in default["syscalls"]]

    assert {name for rule in added for name in rule["names"]} == {
        "ptrace",
        "process_vm_readv",
        "process_vm_writev",
        "kcmp",
        "personality",
    }
    assert all(rule in debug["syscalls"] for rule in default["syscalls"])
    assert outcome(debug, "personality", 0x40000) == 0
