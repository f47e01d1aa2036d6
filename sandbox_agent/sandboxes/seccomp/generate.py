"""Makes `default.json` and `debug.json` from `calls.toml`: `python -m sandbox_agent.sandboxes.seccomp.generate`.

The form is the engine's own (moby's, which podman reads too). One file serves both machines: the engine takes the entry
of `archMap` that is its own, and passes over names that its machine does not have. No entry has a second calling
convention of the machine, so a call by one ends the process.
"""

from __future__ import annotations

import itertools
import json
import tomllib
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from sandbox_agent.sandboxes.seccomp.profile import PROFILES, SeccompProfile

FOLDER = Path(__file__).parent
MACHINES = ("SCMP_ARCH_X86_64", "SCMP_ARCH_AARCH64")
EPERM = 1
ENOSYS = 38
_LOW_BITS = 32
_LOW = (1 << _LOW_BITS) - 1

Condition = dict[str, Any]


def profile_json(name: SeccompProfile, calls: dict[str, Any]) -> str:
    """The text of one profile.

    Raises:
        ValueError: a call stands in two groups, or a condition says nothing that a filter can check.
    """
    groups = [group for group in calls["allow"] if group.get("profile", name) == name]
    _check_once(calls)
    rules = [rule for group in groups for rule in _allowed(group)]
    absent = sorted(itertools.chain.from_iterable(group["calls"].split() for group in calls["absent"]))
    rules.append({"names": absent, "action": "SCMP_ACT_ERRNO", "errnoRet": ENOSYS, "comment": "absent"})
    profile = {
        "defaultAction": "SCMP_ACT_ERRNO",
        "defaultErrnoRet": EPERM,
        "archMap": [{"architecture": machine, "subArchitectures": []} for machine in MACHINES],
        "syscalls": rules,
    }
    return json.dumps(profile, separators=(",", ":")).replace('{"names"', '\n{"names"') + "\n"


def _check_once(calls: dict[str, Any]) -> None:
    """What a profile adds stands among the refused or the limited, too; all else in one place."""
    common = [group for kind in ("allow", "refuse", "absent") for group in calls[kind] if "profile" not in group]
    names = [name for group in common for name in group["calls"].split()]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise ValueError(f"in more than one group: {', '.join(twice)}")


def _allowed(group: dict[str, Any]) -> Iterator[dict[str, Any]]:
    rule = {"names": sorted(group["calls"].split()), "action": "SCMP_ACT_ALLOW"}
    if "when" not in group:
        yield {**rule, "comment": group["group"]}
    for alternative in group.get("when", ()):
        indices = [condition["arg"] for condition in alternative]
        if len(set(indices)) < len(indices):
            # The runtime takes two conditions on one argument as "one or the other".
            raise ValueError(f"{group['group']}: two conditions on one argument")
        for conditions in itertools.product(*(tuple(_compared(condition)) for condition in alternative)):
            yield {**rule, "args": list(conditions), "comment": group["group"]}


def _compared(condition: Condition) -> Iterator[dict[str, Any]]:
    """The comparisons of which one must hold."""
    index = condition["arg"]
    match condition:
        case {"low32_not_in": values}:
            for mask, value in _prefixes_without(sorted(values)):
                yield _masked(index, mask, value)
        case {"in": values}:
            for value in values:
                yield {"index": index, "value": value, "op": "SCMP_CMP_EQ"}
        case {"clear": mask}:
            yield _masked(index, mask, 0)
        case {"mask": mask, "value": value}:
            yield _masked(index, mask, value)
        case {"value": value}:
            yield {"index": index, "value": value, "op": "SCMP_CMP_EQ"}
        case _:
            raise ValueError(f"no such condition: {condition}")


def _masked(index: int, mask: int, value: int) -> dict[str, Any]:
    # In this form "value" is the mask, and "valueTwo" is what the rest is compared with.
    return {"index": index, "value": mask, "valueTwo": value, "op": "SCMP_CMP_MASKED_EQ"}


def _prefixes_without(values: Sequence[int], prefix: int = 0, length: int = 0) -> Iterator[tuple[int, int]]:
    """Mask and value of the fewest prefixes that together cover every 32-bit number but these."""
    rest = _LOW_BITS - length
    if not values:
        yield _LOW ^ ((1 << rest) - 1), prefix << rest
    elif rest:
        for bit in (0, 1):
            longer = prefix << 1 | bit
            below = [value for value in values if value >> (rest - 1) == longer]
            yield from _prefixes_without(below, longer, length + 1)


def made(source: str) -> dict[str, str]:
    """File name to text, from the text of `calls.toml`."""
    calls = tomllib.loads(source)
    return {f"{name}.json": profile_json(name, calls) for name in PROFILES}


def write(files: Iterable[tuple[str, str]]) -> None:
    """Write them beside this file."""
    for name, text in files:
        (FOLDER / name).write_text(text, "utf-8")


if __name__ == "__main__":
    write(made((FOLDER / "calls.toml").read_text("utf-8")).items())
