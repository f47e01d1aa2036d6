"""The examples beside a rule (`matches`, `not_matches`), checked when the file is loaded.

An example is a command for Bash rules, a path for Read and Edit, a tool's name for bare rules, else a specifier.
"""

from __future__ import annotations

import posixpath
from collections.abc import Sequence
from dataclasses import replace

from sandbox_agent.errors import PolicyError
from sandbox_agent.policy.paths import TOOLS_HOME
from sandbox_agent.policy.rules import FAMILIES, Rule, RuleSet
from sandbox_agent.policy.shell_judge import judge_command
from sandbox_agent.types import WORKSPACE_MOUNT, Mode, PathAccess, PermissionRequest, Subject, Verdict


def check_examples(rule: Rule, *, matches: Sequence[str], not_matches: Sequence[str]) -> None:
    """Hold the rule against its examples.

    Raises:
        PolicyError: it does not cover one it must, or covers one it must not.
    """
    for example in matches:
        if not covers(rule, example):
            raise PolicyError(f"{rule.text} does not match its example {example!r}", location=rule.location)
    for example in not_matches:
        if covers(rule, example):
            raise PolicyError(f"{rule.text} matches {example!r}, which it must not", location=rule.location)


def covers(rule: Rule, example: str) -> bool:
    """True if the rule alone would decide a call like the example."""
    if rule.tool == "Bash":
        alone = RuleSet(**{rule.verdict.name.lower(): (rule,)}, read_only_commands=False)
        request = PermissionRequest("Bash", Subject(example, command=example), input_sha256="")
        decision = judge_command(alone, request, Mode.DEFAULT)
        return decision.verdict is rule.verdict and (decision.rule is not None or rule.verdict is Verdict.ALLOW)
    if rule.tool in FAMILIES and not rule.bare:
        absolute = example.replace("~/", TOOLS_HOME + "/", 1) if example.startswith("~/") else example
        path = posixpath.normpath(posixpath.join(WORKSPACE_MOUNT, absolute))
        access = PathAccess(path, write=rule.tool == "Edit", resolved=path)
        return rule.permits(access) if rule.verdict is Verdict.ALLOW else rule.touches(access)
    if rule.bare:
        return rule.names(example)
    request = PermissionRequest(rule.tool, Subject(example, specifier=example), input_sha256="")
    return replace(rule, verdict=Verdict.ALLOW).grants(request)
