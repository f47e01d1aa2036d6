"""What a conformance check is, and the few words they are written in. Failures are AssertionErrors, also under -O."""

from __future__ import annotations

import enum
import secrets
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from sandbox_agent.sandboxes.base import Sandbox


class Need(enum.Enum):
    """What a check takes for granted beyond the contract's core."""

    KERNEL = "real processes, devices and permissions"
    SPILL = "output beyond the limit is written to a file in the sandbox"
    ATOMIC = "a replace is one step even for those that run beside it"
    COUNTS = "leftover processes are counted"


@dataclass(frozen=True, slots=True)
class Check:
    """One behaviour. `name` is its function's name, the docstring says what must hold."""

    name: str
    run: Callable[[Sandbox], Awaitable[None]]
    needs: frozenset[Need]


def check(*needs: Need) -> Callable[[Callable[[Sandbox], Awaitable[None]]], Check]:
    """Make a function of a sandbox a `Check`."""

    def made(function: Callable[[Sandbox], Awaitable[None]]) -> Check:
        return Check(function.__name__, function, frozenset(needs))

    return made


def same(got: object, wanted: object) -> None:
    """Raises AssertionError unless they are equal."""
    if got != wanted:
        raise AssertionError(f"got {_short(got)}, wanted {_short(wanted)}")


def holds(fact: bool, text: str) -> None:
    """Raises AssertionError unless it is so."""
    if not fact:
        raise AssertionError(text)


async def raises(kind: type[Exception], work: Awaitable[object]) -> Exception:
    """The error that the work ends with; AssertionError if it is another kind or none."""
    try:
        result = await work
    except kind as exc:
        return exc
    raise AssertionError(f"no {kind.__name__} but {_short(result)}")


async def make(sandbox: Sandbox, *argv: str) -> None:
    """Run a command that sets something up."""
    result = await sandbox.exec(argv)
    same((result.exit_code, result.stderr), (0, b""))


async def folder(sandbox: Sandbox, name: str) -> str:
    """A new folder of this check's own in the workspace."""
    path = f"/workspace/conformance/{name}-{secrets.token_hex(4)}"
    await make(sandbox, "mkdir", "-p", path)
    return path


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 400 else f"{text[:200]} ... {text[-200:]} ({len(text)} characters)"
