"""The flags of `sandbox-agent-sdk`, as claude-agent-sdk writes them."""

from __future__ import annotations

from typing import Any

import click
import pytest
from click.testing import CliRunner

from sandbox_agent.cli.sdk.command import COMMAND
from sandbox_agent.cli.sdk.options import rules_in, servers_of, settings_of
from sandbox_agent.frontends.sdk.hooks import ToolMatcher, read_hooks
from sandbox_agent.frontends.sdk.settings import SdkSettings
from sandbox_agent.types import Mode


def settings(*arguments: str, **environ: str) -> SdkSettings:
    """What a command line means."""
    frame = ("--output-format", "stream-json", "--verbose", *arguments, "--input-format", "stream-json")
    flags: dict[str, Any] = COMMAND.make_context("sandbox-agent-sdk", list(frame)).params
    return settings_of(flags, environ, servers_of(flags["mcp_config"]))


def test_nothing_but_what_always_comes() -> None:
    """No sub-command, and an empty instruction, are as usual."""
    plain = settings("--system-prompt", "")
    assert (plain.system, plain.tools, plain.asks, plain.consented, plain.notes) == ("", None, False, False, ())
    assert plain.config.model.startswith("anthropic:")
    assert settings(SANDBOX_AGENT_MODEL="script:x.yaml").config.model == "script:x.yaml"


def test_rules_modes_and_models_are_taken_over() -> None:
    """Commas inside brackets belong to a rule; names of other programs are ours; what means nothing here is said."""
    made = settings(
        *("--allowedTools", "Read,Bash(git log:*, x),Agent,NoSuchTool,Write", "--disallowedTools", "Bash(rm:*),NoTool"),
        *(
            "--permission-mode",
            "acceptEdits",
            "--permission-prompt-tool",
            "stdio",
            "--model",
            "opus",
            "--max-turns",
            "3",
        ),
        *("--tools", "Read,Agent", "--resume=abc", "--setting-sources=", "--effort", "high"),
        *("--settings", '{"permissions": {"deny": ["WebFetch"], "defaultMode": "plan"}, "env": {}}'),
        CLAUDE_CODE_SDK_READS_SESSION_STATE="1",
    )
    assert made.config.allow == ("Read", "Bash(git log:*, x)", "Task", "Write")
    assert made.config.deny == ("WebFetch", "Bash(rm:*)")
    assert (made.config.mode, made.config.max_turns, made.config.resume) == (Mode.ACCEPT_EDITS, 3, "abc")
    assert made.config.model.startswith("anthropic:claude-opus")
    assert (made.asks, made.consented, made.reads_state, made.tools) == (True, True, True, ("Read", "Task"))
    assert made.config.project_instructions is False
    assert [word for word in ("NoSuchTool", "'env'", "--effort") if not any(word in note for note in made.notes)] == []
    assert settings("--tools", "").tools == ()


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (("--add-dir", "/tmp"), "--add-dir"),
        (("--session-mirror",), "--session-mirror"),
        (("--plugin-dir", "x"), "--plugin-dir"),
        (("--session-id=x",), "--session-id"),
        (("--resume-session-at=x",), "--resume-session-at"),
        (("--resume-drops-turn=1",), "--resume-drops-turn"),
        (("--fork-session",), "--fork-session"),
        (("--permission-mode", "auto"), "auto"),
        (("--permission-prompt-tool", "mcp__x__y"), "mcp__x__y"),
        (("--settings", '{"permissions": {"ask": ["Bash"]}}'), "ask rules"),
        (("--settings", '{"permissions": {"deny": ["Bash(command:*rm*)"]}}'), "Bash(command:*rm*)"),
        (("--disallowedTools", "Read,Bash(command:*rm*)"), "Bash(command:*rm*)"),
        (("--json-schema", "[]"), "--json-schema"),
        (("--continue", "--resume=x"), "--continue"),
    ],
)
def test_what_cannot_be_had_is_refused_by_name(arguments: tuple[str, ...], named: str) -> None:
    """Not left out in silence: it would mean more rights, or another session."""
    with pytest.raises(click.UsageError) as raised:
        settings(*arguments)
    assert named in str(raised.value)


def test_an_unknown_flag_is_named_in_one_line() -> None:
    """The program waits a minute for an answer otherwise."""
    ended = CliRunner().invoke(COMMAND, ["--output-format", "stream-json", "--no-such-flag"])
    assert (ended.exit_code, "--no-such-flag" in ended.output) == (2, True)


def test_servers_inside_the_program_are_told_from_the_others() -> None:
    """Those of another kind are ours to start."""
    found = servers_of(('{"mcpServers": {"calc": {"type": "sdk", "name": "calc"}, "x": {"command": "y"}}}', "f.json"))
    assert (found.inside, found.others, len(found.files)) == (("calc",), {"x": {"command": "y"}}, 1)
    with pytest.raises(click.UsageError):
        servers_of(('{"x": 1}',))
    assert list(rules_in("A, B(x,y) C")) == ["A", "B(x,y)", "C"]


@pytest.mark.parametrize(
    ("text", "name", "fits"),
    [
        ("Re", "Read", False),
        ("Read|Edit", "Edit", True),
        ("", "X", True),
        ("*", "X", True),
        ("mcp__.*", "mcp__a__b", True),
    ],
)
def test_a_matcher_is_names_or_an_expression(text: str, name: str, fits: bool) -> None:
    """Letters and bars alone are exact names."""
    assert ToolMatcher(text).takes(name) is fits


def test_timeouts_of_hooks_are_seconds() -> None:
    """And a hook that fails has denied unless it says otherwise."""
    entry = {"matcher": None, "hookCallbackIds": ["a", "b"], "timeout": 5}
    hooks = read_hooks({"PreToolUse": [entry, {"hookCallbackIds": ["c"], "onFailure": "continue"}]})
    assert [(hook.timeout_s, hook.goes_on) for hook in hooks] == [(5.0, False), (5.0, False), (60.0, True)]
