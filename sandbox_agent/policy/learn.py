"""The smallest allow list under which recorded calls pass: exact rules first, wider ones only by the stated rules of
`generalise`. What a deny rule denies, what a person refused and what no rule can cover is listed apart, never allowed.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from sandbox_agent.hostnames import HostEntry, HostnameError, authority, canonical_host, split_authority
from sandbox_agent.policy.generalise import generalised
from sandbox_agent.policy.policy import Policy
from sandbox_agent.types import JsonObject, Limits, Mode, PermissionRequest, Verdict


@dataclass(frozen=True, slots=True)
class RecordedCall:
    """A call of a recorded run. `refused` says who said no to it, None if nobody did; a rule is not somebody."""

    request: PermissionRequest
    refused: str | None = None


@dataclass(frozen=True, slots=True)
class RecordedRun:
    """What a run used. `hosts` are those it asked for, `unlisted` those of them that only want of an entry refused,
    `max_rss_bytes` of its largest process, None if not known."""

    turns: int
    duration_s: float
    hosts: tuple[str, ...] = ()
    unlisted: tuple[str, ...] = ()
    max_rss_bytes: int | None = None


@dataclass(frozen=True, slots=True)
class SetApart:
    """A call that the learned policy does not let pass, and why."""

    request: PermissionRequest
    why: str

    def as_json(self) -> JsonObject:
        """JSON-ready."""
        return {"tool": self.request.tool, "call": self.request.subject.summary, "why": self.why}


@dataclass(frozen=True, slots=True)
class Learned:
    """`rules` are allow rules to add to the policy, `opened` entries for `sandbox.allow_hosts`. `limits` are the
    smallest the runs fit in, never looser than the policy's. `hosts` are all that were asked for."""

    rules: tuple[str, ...]
    apart: tuple[SetApart, ...]
    limits: Limits
    opened: tuple[str, ...] = ()
    hosts: tuple[str, ...] = ()
    max_rss_bytes: int | None = None


def learn(
    policy: Policy,
    calls: Sequence[RecordedCall],
    runs: Iterable[RecordedRun] = (),
    *,
    mode: Mode | None = None,
    generalise_from: int | None = None,
) -> Learned:
    """What to add to a policy so that the calls pass unasked.

    Args:
        policy: where it starts; its own deny and ask rules stand.
        calls: in any order.
        runs: for the limits and hosts; without any these stay as they are.
        mode: the mode they are judged in; None is the policy's, and what dontAsk denies counts as asked.
        generalise_from: so many alike rules become a wider one; None: never.
    """
    mode = mode or policy.mode
    mode = Mode.DEFAULT if mode is Mode.DONT_ASK else mode
    apart: dict[SetApart, None] = {}
    widened = policy
    rules: list[str] = []
    for call in _distinct(calls):
        if call.refused is not None:
            apart[SetApart(call.request, call.refused)] = None
            continue
        decision = widened.decide(call.request, mode)
        if decision.verdict is Verdict.ALLOW:
            continue
        found = widened.suggest_rules(call.request, mode) if decision.verdict is Verdict.ASK else ()
        if not found:
            apart[SetApart(call.request, _why(decision.verdict, decision.reason, decision.rule, decision.location))] = (
                None
            )
        for rule in found:
            widened = widened.with_allow(rule)
            rules.append(rule)
    if generalise_from is not None:
        rules = generalised(policy.rules, rules, generalise_from)
    used = tuple(runs)
    hosts = tuple(sorted({host for run in used for host in run.hosts}))
    most_bytes = max((run.max_rss_bytes for run in used if run.max_rss_bytes is not None), default=None)
    opened = _opened(policy.sandbox.allow_hosts, used)
    return Learned(tuple(rules), tuple(apart), _limits(policy.limits, used), opened, hosts, most_bytes)


def _distinct(calls: Sequence[RecordedCall]) -> Iterable[RecordedCall]:
    """Each call once; one that was refused somewhere is refused, whatever was said of it elsewhere."""
    refused = {call.request: call.refused for call in calls if call.refused is not None}
    seen = dict.fromkeys(call.request for call in calls)
    return [RecordedCall(request, refused.get(request)) for request in seen]


def _why(verdict: Verdict, reason: str, rule: str | None, location: str | None) -> str:
    place = ", ".join(part for part in (rule, location) if part)
    if verdict is Verdict.DENY:
        return f"denied by rule {place}" if place else f"denied: {reason}"
    return f"always asked by rule {place}" if place else f"no rule can cover it: {reason}"


def _opened(held: Sequence[HostEntry], runs: Iterable[RecordedRun]) -> tuple[str, ...]:
    """The entries that were missing and are still; a record may have been through other hands."""
    found: dict[str, None] = {}
    for text in sorted({text for run in runs for text in run.unlisted}):
        try:
            host, port = split_authority(text)
            host = canonical_host(host)
        except HostnameError:
            continue
        if not any(entry.covers(host, port) for entry in held):
            found[authority(host, port)] = None
    return tuple(found)


def _limits(held: Limits, runs: Sequence[RecordedRun]) -> Limits:
    """Turns as they were; time up to a whole minute, since no run takes as long as another."""
    if not runs:
        return held
    turns = max(1, *(run.turns for run in runs)) if len(runs) > 1 else max(1, runs[0].turns)
    wall_s = max(60.0, math.ceil(max(run.duration_s for run in runs) / 60) * 60.0)
    return replace(
        held,
        turns=turns if held.turns is None else min(turns, held.turns),
        wall_s=wall_s if held.wall_s is None else min(wall_s, held.wall_s),
    )
