"""The steps of a recorded run: one JSON line each, in a chain.

Every step carries its own hash and that of the step before; the first one carries the hash of the lock. Whatever is
changed afterwards is found at its step, also where no replay would notice. Whoever writes the whole bundle anew leaves
a chain that holds: that shows only against a head that was kept elsewhere.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sandbox_agent.errors import ReplayMismatchError
from sandbox_agent.types import JsonObject

END = "end"
"""The kind of the last step: without it a recording is not whole."""


@dataclass(frozen=True, slots=True)
class Step:
    """One step: `number` counts those of the whole run from 0, `agent` is whose it is, `data` what the kind has."""

    number: int
    agent: str
    kind: str
    data: JsonObject
    hash: str


def canonical(value: object) -> bytes:
    """JSON with one spelling."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=True, default=_plain).encode("ascii")


def sha256_of(value: object) -> str:
    """The hash of a JSON value."""
    return hashlib.sha256(canonical(value)).hexdigest()


class StepWriter:
    """Appends steps to a file of its own, each given to the system at once: a kill loses none that was written."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.head = ""
        self.count = 0
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC
        self._fd = os.open(path, flags, 0o600)

    def begin(self, lock: JsonObject) -> None:
        """The chain hangs on the lock."""
        self.head = sha256_of(lock)

    def append(self, kind: str, agent: str, data: JsonObject) -> Step:
        """Add a step."""
        body = {"step": self.count, "agent": agent, "kind": kind, "data": data, "prev": self.head}
        self.head = sha256_of(body)
        line = canonical({**body, "hash": self.head}) + b"\n"
        while line:
            line = line[os.write(self._fd, line) :]
        self.count += 1
        return Step(self.count - 1, agent, kind, data, self.head)

    def close(self) -> None:
        """No more steps. Safe to call twice."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


def read_steps(data: bytes, lock: JsonObject) -> list[Step]:
    """The steps of a recording, with their chain checked.

    Raises:
        ReplayMismatchError: a step, or the lock, is not what was recorded; or the last step is missing.
    """
    steps = list(_checked(data, sha256_of(lock)))
    if not steps or steps[-1].kind != END:
        raise ReplayMismatchError(
            f"the recording is not whole: it ends after {len(steps)} steps and has no last one", step=len(steps)
        )
    return steps


def _checked(data: bytes, head: str) -> Iterator[Step]:
    lines = data.split(b"\n")
    if lines and not lines[-1]:
        lines.pop()
    for number, line in enumerate(lines):
        try:
            raw = json.loads(line)
            told = raw.pop("hash")
            fits = line == canonical({**raw, "hash": told}) and sorted(raw) == sorted(
                ("step", "agent", "kind", "data", "prev")
            )
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
            raise _changed(number, "it is no step of a recording") from None
        if not fits:
            raise _changed(number, "it is not spelled as a step is")
        if sha256_of(raw) != told:
            raise _changed(number, "it does not have the hash that it was recorded with")
        if raw["prev"] != head:
            before = f"step {number - 1}" if number else "the lock"
            raise _changed(number, f"it does not follow from {before}: one of the two was changed")
        if raw["step"] != number or not isinstance(raw["data"], dict):
            raise _changed(number, "steps were moved, or are missing")
        head = told
        yield Step(number, str(raw["agent"]), str(raw["kind"]), raw["data"], told)


def _changed(number: int, why: str) -> ReplayMismatchError:
    return ReplayMismatchError(f"step {number} of the bundle was changed after it was recorded: {why}", step=number)


def _plain(value: object) -> Any:
    if isinstance(value, bytes):
        return {"bytes": value.hex()}
    if isinstance(value, set | frozenset):
        return sorted(value)
    raise TypeError(f"{type(value).__name__} is no JSON")
