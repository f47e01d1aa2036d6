"""Why a policy says what it says of a call: each part of a command with its verdict, and what would allow the whole.

The final verdict is the judge's own; the parts are the same functions asked one by one.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from sandbox_agent.policy.calls import by_rule
from sandbox_agent.policy.coverage import Case, Uncovered, case_of, cover, shown, speaks_of
from sandbox_agent.policy.modes import stricter
from sandbox_agent.policy.narrowest import MAX_RULES
from sandbox_agent.policy.policy import Policy
from sandbox_agent.policy.rules import Rule
from sandbox_agent.policy.shell.analyse import absolute, analyse, operands, part_only_reads
from sandbox_agent.policy.shell.model import ANY_WORD, SimpleCommand, Word
from sandbox_agent.policy.shell.tables import tables
from sandbox_agent.policy.shell_judge import is_everything
from sandbox_agent.types import Decision, JsonObject, Mode, PathAccess, PermissionRequest, Verdict

_NO_RULE = "no allow rule covers it."


@dataclass(frozen=True, slots=True)
class Part:
    """One simple command of a text, or a construct that nothing can allow unasked.

    `words` are after quotes are removed; "..." is a word that is only known at run time. `via` is the wrapper that
    runs it, "" for the shell itself; `inside` is what it stands in, outermost first. A `possible` part may or may not
    run: only deny and ask rules look at it.
    """

    source: str
    decision: Decision
    words: tuple[str, ...] = ()
    line: int = 1
    inside: tuple[str, ...] = ()
    via: str = ""
    reads: tuple[str, ...] = ()
    """Files that it plainly reads. What a program that is not known might read is judged, too, but not told."""
    writes: tuple[str, ...] = ()
    possible: bool = False
    needs_rule: bool = False
    """Nothing but a rule is missing."""

    def as_json(self) -> JsonObject:
        """JSON-ready."""
        return {
            "source": self.source,
            "words": list(self.words),
            "line": self.line,
            "inside": list(self.inside),
            "via": self.via,
            "reads": list(self.reads),
            "writes": list(self.writes),
            "possible": self.possible,
            "needs_rule": self.needs_rule,
            **decision_json(self.decision),
        }


@dataclass(frozen=True, slots=True)
class Explanation:
    """What a policy says of a call.

    `would_allow` are the narrowest rules that together would let it pass, empty if it passes already or none can;
    `why_none` says why none can.
    """

    request: PermissionRequest
    mode: Mode
    decision: Decision
    parts: tuple[Part, ...] = ()
    would_allow: tuple[str, ...] = ()
    why_none: str | None = None

    def as_json(self) -> JsonObject:
        """JSON-ready."""
        subject = self.request.subject
        return {
            "tool": self.request.tool,
            "command": subject.command,
            "paths": [access.path for access in subject.paths] if subject.command is None else [],
            "specifier": subject.specifier,
            "mode": self.mode.value,
            **decision_json(self.decision),
            "parts": [part.as_json() for part in self.parts],
            "would_allow": list(self.would_allow),
            "why_none": self.why_none,
        }


def decision_json(decision: Decision) -> JsonObject:
    """A decision, JSON-ready."""
    return {
        "verdict": decision.verdict.name.lower(),
        "reason": decision.reason,
        "rule": decision.rule,
        "location": decision.location,
        "layer": decision.layer,
    }


def explain(policy: Policy, request: PermissionRequest, mode: Mode) -> Explanation:
    """The decision on a request with everything that led to it."""
    decision = policy.decide(request, mode)
    parts = _parts(policy, request, mode) if request.subject.command is not None else ()
    if decision.verdict is Verdict.ALLOW:
        return Explanation(request, mode, decision, parts)
    would_allow = policy.suggest_rules(request, Mode.DEFAULT if mode is Mode.DONT_ASK else mode)
    why_none = None if would_allow else _why_none(policy, request, mode, decision, parts)
    return Explanation(request, mode, decision, parts, would_allow, why_none)


def _parts(policy: Policy, request: PermissionRequest, mode: Mode) -> tuple[Part, ...]:
    case = case_of(policy.rules, request, stricter(mode, policy.loosest_mode))
    analysis = case.analysis
    found = [_part(case, command, _decide_part(case, command)) for command in analysis.commands]
    for guess in analysis.guesses:
        rule = _restricting(case, guess)
        if rule is not None:
            found.append(_part(case, guess, by_rule(rule, f"{rule.label} covers it"), possible=True))
    asked = Verdict.ALLOW if mode is Mode.BYPASS else Verdict.ASK
    found += [Part(shown(concern.source), Decision(asked, f"{concern.why}.")) for concern in analysis.concerns]
    return tuple(found)


def _part(case: Case, command: SimpleCommand, decision: Decision, *, possible: bool = False) -> Part:
    plainly = {redirect.target for redirect in command.redirects if redirect.reads}
    if command.on_read_only_list and command.program not in tables().wrappers:
        plainly |= {*command.reads, *command.searches_below}
    reads = _accesses(case, [(word, False) for word, write in operands(command) if not write and word in plainly])
    writes = _accesses(case, [(word, True) for word, write in operands(command) if write])
    return Part(
        shown(command.source),
        decision,
        words=tuple("..." if word.text == ANY_WORD else word.text for word in command.words),
        line=command.line,
        inside=command.inside,
        via=command.via,
        reads=tuple(dict.fromkeys(access.path for access in reads)),
        writes=tuple(dict.fromkeys(access.path for access in writes)),
        possible=possible,
        needs_rule=decision.reason == _NO_RULE,
    )


def _decide_part(case: Case, command: SimpleCommand) -> Decision:
    rule = _restricting(case, command)
    if rule is not None:
        return by_rule(rule, f"{rule.label} covers it")
    if case.mode is Mode.BYPASS:
        return Decision(Verdict.ALLOW, "the mode bypassPermissions allows what no rule forbids.")
    if case.mode is Mode.PLAN and not part_only_reads(command):
        return Decision(Verdict.DENY, "plan mode: it is not read-only.")
    covered = cover(case, command)
    if isinstance(covered, Uncovered):
        return Decision(Verdict.ASK, f"{covered.why}." if covered.why else _NO_RULE)
    if covered.rule is not None:
        return by_rule(covered.rule, covered.how)
    return Decision(Verdict.ALLOW, f"{covered.how}.")


def _restricting(case: Case, command: SimpleCommand) -> Rule | None:
    """The first deny rule, else the first ask rule, that speaks of this part or of a file in it."""
    accesses = _accesses(case, operands(command))
    for rule in (*case.rules.deny, *case.rules.ask):
        if rule.names(case.tool) and (is_everything(rule) or speaks_of(rule, command)):
            return rule
        if any(rule.touches(access) for access in accesses):
            return rule
    return None


def _accesses(case: Case, words: Iterable[tuple[Word, bool]]) -> list[PathAccess]:
    """The files that these words name, with where they lead; True is for writing."""
    named = {(absolute(folder, word.text), write) for word, write in words if word.static for folder in case.folders}
    return [access for access in case.accesses if (access.path, access.write) in named]


def _why_none(
    policy: Policy, request: PermissionRequest, mode: Mode, decision: Decision, parts: tuple[Part, ...]
) -> str:
    at = f" ({decision.location})" if decision.location else ""
    if decision.rule is not None and decision.verdict is Verdict.DENY:
        return f"rule {decision.rule}{at} denies it, and no other rule takes that away"
    if decision.rule is not None:
        return f"rule {decision.rule}{at} wants it to be asked, and no allow rule takes that away"
    if request.subject.needs_person is not None:
        return "only a person can allow it, when asked"
    if request.subject.command is not None and analyse(request.subject.command).problem is not None:
        return "what cannot be read is never allowed by a rule"
    if policy.allow_locked_by is not None:
        return f"{policy.allow_locked_by} locks the allow rules"
    if stricter(mode, policy.loosest_mode) is Mode.PLAN:
        return "the mode plan denies all that is not read-only"
    open_parts = [part for part in parts if part.decision.verdict is not Verdict.ALLOW]
    if open_parts and all(part.needs_rule for part in open_parts):
        return f"it would take more than {MAX_RULES} rules"
    open_parts = [part for part in open_parts if not part.needs_rule]
    if open_parts:
        named = dict.fromkeys(f"`{part.source}`: {part.decision.reason.rstrip('.')}" for part in open_parts)
        return "a rule cannot cover " + "; ".join(named)
    return "no rule can speak of it; a person can allow it when asked"
