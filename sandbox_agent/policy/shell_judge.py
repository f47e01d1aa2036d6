from __future__ import annotations

from sandbox_agent.policy.rules import RuleSet
from sandbox_agent.types import Decision, Mode, PermissionRequest, Verdict


def judge_command(rules: RuleSet, request: PermissionRequest, mode: Mode) -> Decision:
    if mode is Mode.BYPASS and not rules.deny and not rules.ask:
        return Decision(Verdict.ALLOW, "the mode bypassPermissions allows what no rule forbids.")
    return Decision(Verdict.ASK, "no rule allows this command.")
