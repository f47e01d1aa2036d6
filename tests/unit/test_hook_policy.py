"""The hooks section of a policy: what is taken, what is refused and where, and which calls a matcher fits."""

from __future__ import annotations

from pathlib import Path

import pytest

from sandbox_agent.errors import PolicyError
from sandbox_agent.policy.hooks import (
    Hook,
    HookEvent,
    HooksSection,
    check_programs_outside,
    parse_hooks,
    parse_matcher,
)
from sandbox_agent.policy.load import parse_policy
from sandbox_agent.types import PathAccess, PermissionRequest, Subject

PRE = HookEvent.PRE_TOOL_USE


def load(text: str) -> tuple[Hook, ...]:
    return parse_policy(f"version: 1\nhooks:\n{text}", "p.yaml").hooks


def test_the_short_and_the_long_form_are_read() -> None:
    """A text is run by the shell, a list as it is; ids count up where none is given."""
    first, second, third = load(
        "  pre_tool_use:\n"
        "    - command: jq .\n"
        "    - {id: mine, command: [python3, x.py], matcher: 'Edit|Write', timeout_s: 5}\n"
        "  stop: [{command: 'true'}]\n"
    )

    assert (first.id, first.command, first.timeout_s, first.place) == (
        "pre_tool_use-1",
        ("sh", "-c", "jq ."),
        60,
        "container",
    )
    assert (second.id, second.command, second.timeout_s) == ("mine", ("python3", "x.py"), 5)
    assert (third.event, third.location) == (HookEvent.STOP, "p.yaml:6")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("  PreToolUse: []", "p.yaml:3: unknown key 'hooks.PreToolUse'; did you mean 'pre_tool_use'?"),
        ("  stop: [{command: x, tiemout_s: 3}]", "did you mean 'timeout_s'?"),
        ("  stop: [{command: 3}]", "p.yaml:3: hooks.stop.0.command: must be a command line"),
        ("  stop: [{command: []}]", "a command line, or a list of a program"),
        ("  stop: [{command: ' '}]", "a program to run"),
        ('  stop: [{command: "echo \'x"}]', "a command line that the shell can read"),
        ("  stop: [{command: x, timeout_s: 0}]", "greater than 0"),
        ("  stop: [{command: x, timeout_s: 601}]", "less than or equal to 600"),
        ("  stop: [{command: x, matcher: Bash}]", "p.yaml:3: matcher: stop is not about a tool"),
        ("  stop: [{command: x, place: host}]", "p.yaml:3: place: host is only for your own policy"),
        ("  stop: [{command: x, id: a}, {command: y, id: a}]", "two hooks are called 'a'"),
        ("  pre_tool_use: [{command: x, matcher: bash}]", "did you mean Bash?"),
        ("  pre_tool_use: [{command: x, matcher: 'Bash,Edit'}]", "write tool names or rules with | between"),
        ("  pre_tool_use: [{command: x, matcher: 'Bash('}]", "write Tool or Tool(specifier)"),
    ],
)
def test_what_cannot_be_meant_is_refused_in_one_line(text: str, message: str) -> None:
    """With the line and, where there is one, the near word: a hook that never runs protects nobody."""
    with pytest.raises(PolicyError) as caught:
        load(text)

    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_host_hook_is_taken_where_the_file_is_the_users_own() -> None:
    """It starts in the folder of that file."""
    section = HooksSection.model_validate({"stop": [{"command": "x", "place": "host"}]})

    [hook] = parse_hooks(section, lambda path: "own.yaml:1", host_folder="/home/me/.config/sandbox-agent")

    assert (hook.place, hook.folder) == ("host", "/home/me/.config/sandbox-agent")


def call(tool: str, *, command: str | None = None, path: str | None = None) -> PermissionRequest:
    paths = () if path is None else (PathAccess(path, write=tool in ("Edit", "Write"), resolved=path),)
    return PermissionRequest(tool, Subject(command or tool, paths=paths, command=command), input_sha256="")


@pytest.mark.parametrize(
    ("matcher", "request_", "fits"),
    [
        (None, call("Anything"), True),
        ("*", call("Anything"), True),
        ("Edit|Write", call("Write"), True),
        ("Edit | Write", call("Write"), True),
        ("Edit", call("Write"), False),
        ("mcp__*", call("mcp__a__b"), True),
        ("mcp__a", call("mcp__a__b"), True),
        ("mcp__a", call("mcp__ab__b"), False),
        ("Bash(git push:*)", call("Bash", command="git push origin"), True),
        ("Bash(git push:*)", call("Bash", command="true && (git push)"), True),
        ("Bash(git push:*)", call("Bash", command="git pull"), False),
        ("Bash(git push:*)", call("Bash", command="echo 'unclosed"), True),
        ("Bash(git push:*)", call("Bash", command="$X push"), True),
        ("Bash(git push:*)|Read", call("Read", path="/workspace/a"), True),
        ('Bash(grep "a|b":*)|Read', call("Read", path="/workspace/a"), True),
        ("Edit(/src/**)", call("Write", path="/workspace/src/a"), True),
        ("Edit(/src/**)", call("Write", path="/workspace/a"), False),
        ("Edit(/src/**)", call("Edit", path="/workspace/src/a"), True),
    ],
)
def test_a_matcher_fits(matcher: str | None, request_: PermissionRequest, fits: bool) -> None:
    """Names are exact, rules mean what they mean as deny rules, and what cannot be told fits."""
    assert parse_matcher(matcher, PRE).fits(request_) is fits


@pytest.mark.parametrize("command", [("/w/x.sh",), ("python3", "/w/sub/../x.py"), ("sh", "-c", "true; /w/x")])
def test_a_host_hook_that_lies_in_the_workspace_is_refused(tmp_path: Path, command: tuple[str, ...]) -> None:
    """The agent could write it; in the container the same is just advice."""
    words = tuple(word.replace("/w", str(tmp_path)) for word in command)
    host = Hook("mine", PRE, words, "host", location="own.yaml:2")

    with pytest.raises(PolicyError, match=r"own.yaml:2: the hook mine runs .* lies in the workspace"):
        check_programs_outside([host], tmp_path)
    check_programs_outside([Hook("mine", PRE, words)], tmp_path)
    check_programs_outside([host], tmp_path / "other")
