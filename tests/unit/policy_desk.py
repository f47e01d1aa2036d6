"""Short ways to ask a policy, shared by the policy tests. Not a test file."""

from __future__ import annotations

from collections.abc import Sequence

from sandbox_agent.policy.policy import Policy
from sandbox_agent.policy.rules import RuleSet, parse_rule
from sandbox_agent.types import WORKSPACE_MOUNT, Decision, Mode, PathAccess, PermissionRequest, Subject, Verdict

SAME = "same"
"""A path that resolves to itself."""


def policy(
    *, allow: Sequence[str] = (), ask: Sequence[str] = (), deny: Sequence[str] = (), read_only_commands: bool = True
) -> Policy:
    """A policy of just these rules."""
    return Policy(
        "test",
        rules=RuleSet(
            deny=tuple(parse_rule(text, Verdict.DENY) for text in deny),
            ask=tuple(parse_rule(text, Verdict.ASK) for text in ask),
            allow=tuple(parse_rule(text, Verdict.ALLOW) for text in allow),
            read_only_commands=read_only_commands,
        ),
    )


def bash(
    judged_by: Policy,
    command: str,
    *,
    mode: Mode = Mode.DEFAULT,
    cwd: str = WORKSPACE_MOUNT,
    paths: Sequence[PathAccess] = (),
) -> Decision:
    """The decision on a shell command."""
    subject = Subject(command, paths=tuple(paths), command=command, cwd=cwd)
    return judged_by.decide(PermissionRequest("Bash", subject, input_sha256=""), mode)


def on_path(
    judged_by: Policy,
    tool: str,
    path: str,
    *,
    resolved: str | None = SAME,
    mode: Mode = Mode.DEFAULT,
) -> Decision:
    """The decision on a file tool's call on one path."""
    write = tool in ("Edit", "Write")
    access = PathAccess(path, write=write, resolved=path if resolved == SAME else resolved)
    subject = Subject(path, paths=(access,))
    request = PermissionRequest(tool, subject, input_sha256="", read_only=not write, edits=write)
    return judged_by.decide(request, mode)


def on_tool(judged_by: Policy, tool: str, specifier: str | None = None, *, mode: Mode = Mode.DEFAULT) -> Decision:
    """The decision on a call without path or command."""
    request = PermissionRequest(tool, Subject(tool, specifier=specifier), input_sha256="")
    return judged_by.decide(request, mode)
