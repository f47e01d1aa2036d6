"""Judging a call that is not a shell command: by its tool's name, its paths, or its specifier.

`policy.decide` has the order in one place; `shell_judge` does the same for commands, part by part.
"""

from __future__ import annotations

from sandbox_agent.policy.paths import in_workspace, is_protected
from sandbox_agent.policy.rules import FAMILIES, Rule, RuleSet
from sandbox_agent.types import Decision, Mode, PathAccess, PermissionRequest, Verdict


def judge_call(rules: RuleSet, request: PermissionRequest, mode: Mode) -> Decision:
    """Deny, then ask, then the mode, then allow; nothing matches: what only reads is allowed, the rest asked."""
    restricting = rules.restricting(request)
    if restricting is not None:
        return by_rule(restricting, f"{restricting.label} covers this {request.tool} call")
    if request.subject.needs_person is not None:
        return Decision(Verdict.ASK, request.subject.needs_person)
    by_mode = _judge_mode(request, mode)
    if by_mode is not None:
        return by_mode
    protected = next((a for a in request.subject.paths if a.write and access_is_protected(a)), None)
    if protected is not None:
        return Decision(Verdict.ASK, f"{protected.path} can run code later and is never written without asking.")
    granting = _granting(rules, request)
    if granting is not None:
        return by_rule(granting, f"{granting.label} allows it")
    return _fallback(rules, request)


def by_rule(rule: Rule, otherwise: str) -> Decision:
    """The decision of a rule, in its own words where it has any."""
    return Decision(rule.verdict, rule.reason or f"{otherwise}.", rule.label, rule.location, rule.layer)


def access_is_protected(access: PathAccess) -> bool:
    """True if the path, or where it leads, is one that later runs code."""
    return is_protected(access.path) or (access.resolved is not None and is_protected(access.resolved))


def may_be_edited_unasked(access: PathAccess) -> bool:
    """True for a path whose spelling and target both lie in the workspace and are not protected."""
    return (
        access.resolved is not None
        and in_workspace(access.path)
        and in_workspace(access.resolved)
        and not access_is_protected(access)
    )


def plan_denial(what: str) -> Decision:
    """The denial of the mode `plan`."""
    return Decision(
        Verdict.DENY,
        f"plan mode: nothing may be changed, and {what} is not read-only. Read, search, and report what you would do.",
    )


def _judge_mode(request: PermissionRequest, mode: Mode) -> Decision | None:
    if mode is Mode.BYPASS:
        return Decision(Verdict.ALLOW, "the mode bypassPermissions allows what no rule forbids.")
    if mode is Mode.PLAN and not request.read_only:
        return plan_denial(f"this {request.tool} call")
    paths = request.subject.paths
    if mode is Mode.ACCEPT_EDITS and request.edits and paths and all(may_be_edited_unasked(a) for a in paths):
        return Decision(Verdict.ALLOW, "the mode acceptEdits allows edits in the workspace.")
    return None


def _granting(rules: RuleSet, request: PermissionRequest) -> Rule | None:
    """The allow rule that covers the call; for several paths each must be covered, the first one's rule is named."""
    whole = next((r for r in rules.allow if r.tool not in FAMILIES and r.grants(request)), None)
    if whole is not None or not request.subject.paths:
        return whole
    of_family = [rule for rule in rules.allow if rule.names(request.tool)]
    found = [next((r for r in of_family if r.permits(access)), None) for access in request.subject.paths]
    return found[0] if all(found) else None


def _fallback(rules: RuleSet, request: PermissionRequest) -> Decision:
    unresolved = next((a for a in request.subject.paths if a.resolved is None), None)
    if request.read_only and unresolved is not None and rules.restricts_files(write=unresolved.write):
        return Decision(Verdict.ASK, f"where {unresolved.path} leads is not known, and rules restrict files.")
    if request.read_only and not request.subject.sends_out:
        return Decision(Verdict.ALLOW, "it only reads.")
    return Decision(Verdict.ASK, f"no rule allows this {request.tool} call.")
