"""From the flags of `sandbox-agent-sdk` to what a session is made of. Whatever cannot be had is refused by name, unless
leaving it out can harm nobody: then it is said.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import click

from sandbox_agent.config import DEFAULT_MODEL, RunConfig
from sandbox_agent.errors import ConfigError
from sandbox_agent.frontends.sdk.controls import model_spec
from sandbox_agent.frontends.sdk.settings import SdkSettings
from sandbox_agent.policy.importing import NO_SUCH_TOOL, Imported, Taken, as_rule, settings_in
from sandbox_agent.types import JsonObject, Mode, Verdict

_EDIT_TOOLS = ("Edit", "Write", "NotebookEdit", "MultiEdit")
_REFUSED = {
    "add_dir": "only the current folder is in the container",
    "plugin_dir": "there are no plugins",
    "resume_session_at": "a session goes on at its end; `sandbox-agent fork` begins one at a step",
    "resume_drops_turn": "a session goes on at its end",
    "fork_session": "`sandbox-agent fork` makes a session of its own, which --resume takes",
    "session_id": "sessions have IDs of their own, which init tells",
    "session_mirror": "transcripts are not mirrored; the record of a session is its own",
}
_WITHOUT_EFFECT = ("betas", "task_budget", "thinking", "max_thinking_tokens", "thinking_display", "effort")


class Servers(NamedTuple):
    """The MCP servers of `--mcp-config`: names of those inside the program, and the entries of the others."""

    inside: tuple[str, ...]
    others: JsonObject
    files: tuple[Path, ...]


def settings_of(flags: Mapping[str, Any], environ: Mapping[str, str], servers: Servers) -> SdkSettings:
    """What the flags say, all but what is said on stderr.

    Raises:
        UsageError: a flag has a value that it cannot have, or is one that is refused.
        ConfigError: a file cannot be used, or there is no such session.
    """
    for name, why in _REFUSED.items():
        if flags.get(name):
            raise click.UsageError(f"--{name.replace('_', '-')} cannot be had: {why}")
    notes = [f"--{name.replace('_', '-')} has no effect here" for name in _WITHOUT_EFFECT if flags.get(name)]
    allow, deny, mode = _rules(flags, notes)
    prompt_tool = flags["permission_prompt_tool"]
    if prompt_tool not in (None, "stdio"):
        raise click.UsageError(
            f"--permission-prompt-tool {prompt_tool}: only stdio is known, the callback of the program"
        )
    model = model_spec(flags["model"] or environ.get("SANDBOX_AGENT_MODEL"), DEFAULT_MODEL)
    fallback = flags["fallback_model"]
    sources = flags["setting_sources"]
    config = RunConfig(
        workspace=Path.cwd(),
        model=model,
        fallback_model=model_spec(fallback, "") if fallback else None,
        policy=flags["policy"],
        mode=mode,
        allow=tuple(allow),
        deny=tuple(deny),
        image=flags["image"],
        workspace_mode=flags["workspace_mode"],
        max_turns=flags["max_turns"],
        max_cost_usd=flags["max_budget_usd"],
        project_instructions=None if sources is None else "project" in sources.split(","),
        mcp_config=servers.files,
        answer_schema=None if flags["json_schema"] is None else json_object(flags["json_schema"], "--json-schema"),
        resume=_resumed(flags),
    )
    return SdkSettings(
        config=config,
        asks=prompt_tool == "stdio",
        apply=flags["apply"],
        consented=any(rule.partition("(")[0] in _EDIT_TOOLS for rule in allow),
        tools=_tools(flags["tools"]),
        system=_system(flags),
        system_added=flags["append_system_prompt"],
        sdk_servers=servers.inside,
        partial=flags["partial"],
        hook_events=flags["hook_events"],
        reads_state=environ.get("CLAUDE_CODE_SDK_READS_SESSION_STATE") == "1",
        notes=tuple(notes),
    )


def servers_of(given: Iterable[str]) -> Servers:
    """The servers that the values of `--mcp-config` name.

    Raises:
        UsageError: one of them is no JSON object of servers.
    """
    inside: list[str] = []
    others: JsonObject = {}
    files: list[Path] = []
    for value in given:
        if not value.lstrip().startswith("{"):
            files.append(Path(value))
            continue
        entries = json_object(value, "--mcp-config").get("mcpServers")
        if not isinstance(entries, dict):
            raise click.UsageError("--mcp-config has no object mcpServers")
        for name, entry in entries.items():
            if isinstance(entry, dict) and entry.get("type") == "sdk":
                inside.append(str(name))
            else:
                others[str(name)] = entry
    return Servers(tuple(inside), others, tuple(files))


def json_object(text: str, flag: str) -> JsonObject:
    """A JSON object from a flag.

    Raises:
        UsageError: it is none.
    """
    try:
        value = json.loads(text)
    except (ValueError, RecursionError) as exc:
        raise click.UsageError(f"{flag} is not JSON: {exc}") from exc
    if not isinstance(value, dict):
        raise click.UsageError(f"{flag} is not a JSON object")
    return value


def rules_in(text: str) -> Iterator[str]:
    """The rules in one argument, parted by commas or spaces; those inside brackets belong to a rule."""
    depth, rule = 0, ""
    for char in text:
        depth += (char == "(") - (char == ")")
        if depth <= 0 and char in ", \n":
            if rule:
                yield rule
            depth, rule = 0, ""
        else:
            rule += char
    if rule:
        yield rule


def _rules(flags: Mapping[str, Any], notes: list[str]) -> tuple[list[str], list[str], Mode | None]:
    """Allow rules, deny rules and the mode, of the flags and of the settings."""
    allow = [as_rule(one, Verdict.ALLOW) for text in flags["allowed"] for one in rules_in(text)]
    deny = [as_rule(one, Verdict.DENY) for text in flags["disallowed"] for one in rules_in(text)]
    mode = _mode(flags["permission_mode"])
    if flags["settings"]:
        found = _settings(flags["settings"], notes)
        if found is not None:
            if found.rules["ask"]:
                raise click.UsageError("--settings has ask rules, which only a policy can have here (--policy)")
            allow, deny = [*found.rules["allow"], *allow], [*found.rules["deny"], *deny]
            mode = mode or found.mode
            notes += found.notes
    for one in deny:
        if one.rule is None and one.note != NO_SUCH_TOOL:
            raise click.UsageError(f"the rule {one.entry!r} was to deny something and cannot be had: {one.note}")
    notes += [f"the rule {one.entry!r} is left out: {one.note}" for one in (*allow, *deny) if one.rule is None]
    return _usable(allow), _usable(deny), mode


def _usable(rules: Iterable[Taken]) -> list[str]:
    return [one.rule for one in rules if one.rule is not None]


def _settings(given: str, notes: list[str]) -> Imported | None:
    """What the settings say of permissions; None where they say nothing of it."""
    values = json_object(given if given.lstrip().startswith("{") else _text(Path(given)), "--settings")
    others = [key for key in values if key not in ("permissions", "$schema")]
    notes += [f"{key!r} of the settings has no effect here" for key in others]
    if "permissions" not in values:
        return None
    return settings_in({"permissions": values["permissions"]}, Path.cwd() / "settings.json")


def _mode(given: str | None) -> Mode | None:
    if given is None:
        return None
    try:
        return Mode(given)
    except ValueError as exc:
        known = ", ".join(one.value for one in Mode)
        raise click.UsageError(f"--permission-mode {given}: there are {known}") from exc


def _tools(given: str | None) -> tuple[str, ...] | None:
    """The names of built-in tools that there are to be."""
    if given is None or given == "default":
        return None
    taken = (as_rule(name, Verdict.ALLOW).rule or name for name in rules_in(given))
    return tuple(name.partition("(")[0] for name in taken)


def _system(flags: Mapping[str, Any]) -> str | None:
    file = flags["system_prompt_file"]
    return flags["system_prompt"] if file is None else _text(Path(file))


def _text(path: Path) -> str:
    try:
        return path.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as exc:
        said = exc.strerror if isinstance(exc, OSError) else "it is not UTF-8 text"
        raise ConfigError(f"{path}: it cannot be read: {said}") from exc


def _resumed(flags: Mapping[str, Any]) -> str | None:
    if flags["resume_last"] and flags["resume"]:
        raise click.UsageError("--continue and --resume exclude each other")
    return "last" if flags["resume_last"] else flags["resume"]
