"""From how a probe's program ended to a verdict, and from verdicts to an answer. Pure.

Only success is a breach, and only a refusal that was seen is a pass: what could not be tried has no verdict, and is
never shown as green.
"""

from __future__ import annotations

import enum
from collections.abc import Sequence
from dataclasses import dataclass, replace

from sandbox_agent.escape.catalogue import Probe
from sandbox_agent.sandboxes.base import ExecResult

_DETAIL_CHARS = 200
_SIGNALLED = 128


class Verdict(enum.StrEnum):
    """`RESIDUAL` and `EMULATED` are open ways that are documented; `NONE` is no verdict."""

    CLOSED = "closed"
    OPEN = "open"
    RESIDUAL = "residual"
    EMULATED = "emulated"
    NONE = "no verdict"


@dataclass(frozen=True, slots=True)
class Result:
    """What one probe found in one container. `detail` is text from inside: hostile, like all output."""

    probe: Probe
    verdict: Verdict
    detail: str = ""
    duration_s: float = 0.0


@dataclass(frozen=True, slots=True)
class Column:
    """All probes in one container. `about` says what kind of container it is."""

    name: str
    about: str
    results: tuple[Result, ...]

    def verdict_of(self, probe: Probe) -> Result | None:
        """None where it was not tried here."""
        return next((one for one in self.results if one.probe.id == probe.id), None)


def judge(probe: Probe, ended: ExecResult, *, emulated: bool) -> Result:
    """The verdict on a probe whose program says its own.

    Args:
        probe: which.
        ended: how its program ended.
        emulated: the container runs on gVisor.
    """
    word, _, detail = _said(ended).partition(" ")
    if word == "OPEN":
        return opened(probe, detail, ended.duration_s, emulated=emulated)
    if word == "BLOCKED":
        return Result(probe, Verdict.CLOSED, detail, ended.duration_s)
    if word == "UNKNOWN":
        return Result(probe, Verdict.NONE, detail, ended.duration_s)
    if ended.timed_out:
        return Result(probe, Verdict.NONE, f"not ended after {probe.timeout_s:g} s", ended.duration_s)
    if probe.killed_is_closed and ended.exit_code > _SIGNALLED:
        return Result(probe, Verdict.CLOSED, f"ended by signal {ended.exit_code - _SIGNALLED}", ended.duration_s)
    last = (ended.stderr or ended.stdout).decode("utf-8", "replace").strip().splitlines()[-1:]
    text = f"its program ended with {ended.exit_code} and said nothing{': ' + last[0] if last else ''}"
    return Result(probe, Verdict.NONE, text[:_DETAIL_CHARS], ended.duration_s)


def opened(probe: Probe, detail: str, duration_s: float, *, emulated: bool = False) -> Result:
    """An open way: one that counts, a documented one, or one into the emulated kernel only."""
    verdict = Verdict.OPEN
    if emulated and probe.gvisor == "emulated":
        verdict = Verdict.EMULATED
    elif probe.residual is not None:
        verdict = Verdict.RESIDUAL
    return Result(probe, verdict, detail[:_DETAIL_CHARS], duration_s)


def known(result: Result, why: str) -> Result:
    """The same; an open way counts as documented, by `why`."""
    if result.verdict is not Verdict.OPEN:
        return result
    return replace(result, probe=result.probe.model_copy(update={"residual": why}), verdict=Verdict.RESIDUAL)


def holds(results: Sequence[Result]) -> bool:
    """Whether nothing is open that counts, and everything has a verdict."""
    return not any(one.verdict in (Verdict.OPEN, Verdict.NONE) for one in results)


def _said(ended: ExecResult) -> str:
    """The last of the program's own words."""
    lines = ended.stdout.decode("utf-8", "replace").splitlines()
    words = [line for line in lines if line.split(" ")[0] in ("OPEN", "BLOCKED", "UNKNOWN")]
    return words[-1][: _DETAIL_CHARS + 10] if words else ""
