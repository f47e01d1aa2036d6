"""Unit tests of a policy: calls with the verdict that is wanted, judged as a run would judge them."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from sandbox_agent.errors import ConfigError, PolicyError
from sandbox_agent.policy.call_text import command_request, parse_call
from sandbox_agent.policy.case_file import LocatedCase, OwnRules
from sandbox_agent.policy.policy import Policy
from sandbox_agent.policy.rules import Rule, RuleSet, parse_rule
from sandbox_agent.types import Decision, JsonObject, PermissionRequest, Verdict

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]*")


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of one case. `accepted` are the verdicts that pass, the wanted one first."""

    case: LocatedCase
    decision: Decision
    accepted: tuple[str, ...]

    @property
    def passed(self) -> bool:
        """It came out as one of the accepted verdicts."""
        return self.verdict in self.accepted

    @property
    def verdict(self) -> str:
        """What it came out as."""
        return self.decision.verdict.name.lower()

    @property
    def line(self) -> str:
        """What happened, on one line."""
        wanted = self.accepted[0] + (f" (or {', '.join(self.accepted[1:])})" if self.accepted[1:] else "")
        place = ", ".join(part for part in (self.decision.rule, self.decision.location) if part)
        by = f" [{place}]" if place else ""
        forbidden = ", which it must not be" if self.verdict in self.case.entry.must_not else ""
        reason = " ".join(self.decision.reason.split())
        return f"{self.case.title}: got {self.verdict}{forbidden}, wanted {wanted}: {reason}{by}"

    def as_json(self) -> JsonObject:
        """JSON-ready."""
        return {
            "case": self.case.title,
            "location": self.case.location,
            "passed": self.passed,
            "verdict": self.verdict,
            "accepted": list(self.accepted),
            "must_not": list(self.case.entry.must_not),
            "reason": self.decision.reason,
            "rule": self.decision.rule,
            "rule_location": self.decision.location,
        }


def run_cases(cases: Iterable[LocatedCase], load: Callable[[str | None], Policy]) -> Iterator[Outcome]:
    """Judge every case.

    Args:
        cases: what to judge.
        load: the policy of a name or a file; of None where neither the case nor its file says which.

    Raises:
        ConfigError: a policy, a rule or a call is wrong; the message names the case.
    """
    loaded: dict[str | None, Policy] = {}
    for case in cases:
        entry = case.entry
        if entry.rules is not None:
            policy = _own_policy(entry.rules, case.location)
        else:
            wanted = _policy_of(case)
            if wanted not in loaded:
                loaded[wanted] = _loaded(case, wanted, load)
            policy = loaded[wanted]
        decision = policy.decide(_request(case), entry.mode or case.mode or policy.mode)
        accepted = tuple(dict.fromkeys((entry.expect, *entry.also_ok)))
        yield Outcome(case, decision, accepted)


def _loaded(case: LocatedCase, wanted: str | None, load: Callable[[str | None], Policy]) -> Policy:
    try:
        return load(wanted)
    except ConfigError as exc:
        if wanted is None:
            raise  # it is what the option says, not the file
        raise ConfigError(f"{case.location}: its policy: {exc}") from exc


def _policy_of(case: LocatedCase) -> str | None:
    """A bare name is a shipped policy; a file is looked for beside the file of cases."""
    named = case.entry.policy or case.policy
    if named is None or _NAME.fullmatch(named):
        return named
    return str(case.folder / named) if not named.startswith("~/") else named


def _own_policy(rules: OwnRules, location: str) -> Policy:
    def parsed(texts: Iterable[str], verdict: Verdict) -> tuple[Rule, ...]:
        return tuple(parse_rule(text, verdict, location=location) for text in texts)

    return Policy(
        "the case's own rules",
        rules=RuleSet(
            deny=parsed(rules.deny, Verdict.DENY),
            ask=parsed(rules.ask, Verdict.ASK),
            allow=parsed(rules.allow, Verdict.ALLOW),
            read_only_commands=False,
        ),
        location=location,
    )


def _request(case: LocatedCase) -> PermissionRequest:
    entry = case.entry
    if entry.command is not None:
        return command_request(entry.command, cwd=entry.cwd)
    try:
        return parse_call(entry.call or "", cwd=entry.cwd)
    except PolicyError:
        raise
    except ConfigError as exc:
        raise ConfigError(f"{case.location}: {exc}") from exc
