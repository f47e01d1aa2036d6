"""Judging a shell command part by part: deny and ask look through everything, allow must cover every part.

What a text could run is in `shell.analyse`; here it meets the rules and the mode. The strictest part decides.
"""

from __future__ import annotations

from collections.abc import Sequence

from sandbox_agent.policy.calls import access_is_protected, by_rule, plan_denial
from sandbox_agent.policy.coverage import Case, Uncovered, case_of, cover, shown, speaks_of
from sandbox_agent.policy.critical import critical_removal
from sandbox_agent.policy.rules import Rule, RuleSet
from sandbox_agent.policy.shell.parser import hidden_character
from sandbox_agent.types import Decision, Mode, PermissionRequest, Verdict

MAX_NAMED = 5


def judge_command(rules: RuleSet, request: PermissionRequest, mode: Mode) -> Decision:
    """Deny, then ask, then the mode, then allow for every part; else what only reads is allowed and the rest asked."""
    case = case_of(rules, request, mode)
    restricted = any(_is_restriction(rule, request.tool) for rule in (*rules.deny, *rules.ask))
    if case.analysis.problem is not None:
        return _unreadable(case.analysis.problem, restricted, mode)
    restricting = _restricting(case)
    if restricting is not None:
        return restricting
    unseen = _unseen_program(case) if restricted else None
    if unseen is not None:
        return Decision(
            Verdict.ASK, f"which program runs is only known at run time ({unseen}), and rules restrict some."
        )
    if mode is Mode.BYPASS:
        return _bypassing(case)
    if mode is Mode.PLAN and not case.analysis.only_reads:
        return plan_denial("this command")
    everything = next((r for r in rules.allow if r.names(request.tool) and is_everything(r)), None)
    if everything is not None and not restricted and _shown_as_it_is(case):
        return by_rule(everything, f"{everything.label} allows every command")
    return _allowing(case)


def _is_restriction(rule: Rule, tool: str) -> bool:
    return rule.names(tool) or rule.is_about_files(write=False) or rule.is_about_files(write=True)


def is_everything(rule: Rule) -> bool:
    """True for `Bash` and `Bash(*)`."""
    return rule.bare or (rule.command is not None and rule.command.everything)


def _unreadable(problem: str, restricted: bool, mode: Mode) -> Decision:
    """What cannot be read is never allowed; where something is forbidden it cannot be ruled out, so it is denied."""
    if restricted or "NUL" in problem:
        return Decision(Verdict.DENY, f"the command cannot be judged: {problem}.")
    if mode is Mode.BYPASS:
        return Decision(Verdict.ALLOW, "the mode bypassPermissions allows what no rule forbids.")
    return Decision(Verdict.ASK, f"the command cannot be judged: {problem}.")


def _bypassing(case: Case) -> Decision:
    removal = critical_removal(case.analysis, case.folders)
    if removal is not None:
        return Decision(Verdict.ASK, f"`{shown(removal)}` removes what no mode removes unasked.")
    return Decision(Verdict.ALLOW, "the mode bypassPermissions allows what no rule forbids.")


def _shown_as_it_is(case: Case) -> bool:
    """There is something to run, what a person sees is what runs, and nothing that runs code later is written."""
    hidden = hidden_character(case.analysis.command) is not None
    protected = any(access.write and access_is_protected(access) for access in case.accesses)
    return bool(case.analysis.commands) and not hidden and not protected


def _restricting(case: Case) -> Decision | None:
    """The decision of the first deny rule, else the first ask rule, that speaks against any part or file."""
    for rule in (*case.rules.deny, *case.rules.ask):
        covered = _restricted_by(rule, case)
        if covered is not None:
            return by_rule(rule, f"{rule.label} covers {covered}")
    return None


def _restricted_by(rule: Rule, case: Case) -> str | None:
    """What of the command the rule speaks against, as people read it."""
    if rule.names(case.tool):
        if is_everything(rule):
            return "every command"
        for part in (*case.analysis.commands, *case.analysis.guesses):
            if speaks_of(rule, part):
                return f"`{shown(part.source)}`"
    return next((access.path for access in case.accesses if rule.touches(access)), None)


def _unseen_program(case: Case) -> str | None:
    for part in case.analysis.commands:
        if part.words and not part.words[0].static:
            return shown(part.source)
    return None


def _allowing(case: Case) -> Decision:
    uncovered = [Uncovered(concern.source, concern.why) for concern in case.analysis.concerns]
    covering: list[Rule] = []
    for part in case.analysis.commands:
        found = cover(case, part)
        if isinstance(found, Uncovered):
            uncovered.append(found)
        elif found.rule is not None:
            covering.append(found.rule)
    if not any(part.words for part in case.analysis.commands) and not uncovered:
        uncovered.append(Uncovered(case.analysis.command.strip() or "(empty)", "there is no command in it"))
    if uncovered:
        return Decision(Verdict.ASK, _not_covered(uncovered))
    if not covering:
        return Decision(Verdict.ALLOW, "every part only reads, or is covered by the mode.")
    labels = ", ".join(dict.fromkeys(rule.label for rule in covering))
    first = covering[0]
    return Decision(Verdict.ALLOW, f"every part is covered: {labels}.", first.label, first.location, first.layer)


def _not_covered(uncovered: Sequence[Uncovered]) -> str:
    named = dict.fromkeys(f"`{shown(u.source)}`" + (f" ({u.why})" if u.why else "") for u in uncovered)
    more = f" and {len(named) - MAX_NAMED} more" if len(named) > MAX_NAMED else ""
    return f"not covered by any allow rule: {', '.join(list(named)[:MAX_NAMED])}{more}."
