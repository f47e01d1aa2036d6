"""Permission lists of Claude Code's settings, taken over as a policy file.

Every entry is either the same here, or comes with a note that says what is different, or is left out with a note that
says why. Where the two differ the result is the stricter one, but for what cannot be said here at all.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from sandbox_agent.errors import ConfigError, PolicyError
from sandbox_agent.policy.editing import scalar, visible
from sandbox_agent.policy.rules import parse_rule
from sandbox_agent.types import Mode, Verdict

MAX_FILE_BYTES = 4 * 1024 * 1024
NO_SUCH_TOOL = "there is no such tool here"
"""The note on a rule that is left out and loses nothing by it."""

_LISTS = ("deny", "ask", "allow")
_FORM = re.compile(r"(?P<tool>[A-Za-z0-9_*-]+)(?:\((?P<inner>.*)\))?", re.DOTALL)
_PARAMETER = re.compile(
    r"(?:command|timeout|description|run_in_background|dangerouslyDisableSandbox|model|url):(?!\*\Z)"
)
_TOOLS = frozenset({"Bash", "Read", "Edit", "Write", "Glob", "Grep", "NotebookEdit", "MultiEdit", "Task", "TodoWrite"})
_TOOLS |= {"TaskOutput", "TaskStop", "WebFetch", "WebSearch", "AskUserQuestion", "EnterPlanMode", "ExitPlanMode"}
_RENAMED = {"Agent": "Task", "BashOutput": "TaskOutput", "AgentOutputTool": "TaskOutput", "KillShell": "TaskStop"}
_MODES = {"manual": Mode.DEFAULT, **{mode.value: mode for mode in Mode}}
_NOT_HERE = {
    "additionalDirectories": "only the workspace is in the container; what lies elsewhere cannot be reached",
    "blockReadsOutsideWorkingDirectories": "nothing of the host but the workspace is in the container, always",
    "blockWritesOutsideWorkingDirectories": "nothing of the host but the workspace is in the container, always",
    "disableBypassPermissionsMode": "an administrator's policy with `lock: [mode]` does that here",
}


@dataclass(frozen=True, slots=True)
class Taken:
    """One entry. `rule` is None where it is left out; `note` says what is different or why it is, None if nothing."""

    entry: str
    rule: str | None
    note: str | None = None


@dataclass(slots=True)
class Imported:
    """A whole settings file, taken over. `notes` are about everything that is no rule."""

    mode: Mode = Mode.DEFAULT
    rules: dict[str, list[Taken]] = field(default_factory=lambda: {name: [] for name in _LISTS})
    notes: list[str] = field(default_factory=list)

    def all_notes(self) -> Iterator[str]:
        """One line for each entry that is left out or different, in the order of the file."""
        yield from self.notes
        for name, taken in self.rules.items():
            for one in taken:
                if one.note is not None:
                    yield f"{name}: {_noted(one)}"

    def text(self, source: str) -> str:
        """The policy file, each note as a comment where it belongs."""
        lines = [f"# Taken over from {json.dumps(source)}. Review it; `sandbox-agent policy check` reads it."]
        lines += [f"# {note}" for note in self.notes]
        lines += ["version: 1", "name: imported", f"mode: {self.mode.value}", "rules:"]
        for name, taken in self.rules.items():
            rules = dict.fromkeys(one.rule for one in taken if one.rule is not None)
            lines.append(f"  {name}:" if rules else f"  {name}: []")
            for one in taken:
                lines += [f"    # {_noted(one)}"] if one.note is not None else []
                if one.rule in rules:
                    lines.append(f"    - {scalar(one.rule or '')}")
                    del rules[one.rule]
        return "\n".join(lines) + "\n"


def read_settings(path: Path) -> Imported:
    """What a settings file says about permissions.

    Raises:
        ConfigError: it cannot be read, is no JSON, or has no permission lists.
    """
    return settings_in(_json(path), path)


def settings_in(settings: object, path: Path) -> Imported:
    """The same of settings that were read already; `path` is where from, or would be.

    Raises:
        ConfigError: they have no permission lists.
    """
    if not isinstance(settings, dict):
        raise ConfigError(f"{path}: settings are a JSON object")
    permissions = settings.get("permissions", settings if set(settings) & set(_LISTS) else None)
    if not isinstance(permissions, dict):
        raise ConfigError(f"{path}: there is no permissions object in it, with allow, ask or deny")
    found = Imported()
    if permissions is not settings:
        others = sorted(set(settings) - {"permissions", "$schema"})
        found.notes += [
            f"{json.dumps(key)} of the settings is left out: only permissions are taken over" for key in others
        ]
    home = path.resolve().parent == Path.home() / ".claude"
    project = path.resolve().parent.parent if path.resolve().parent.name == ".claude" and not home else None
    _take_settings(found, permissions)
    for name in _LISTS:
        for entry in _entries(path, permissions, name):
            found.rules[name].append(_taken(entry, Verdict[name.upper()], project=project, home=home))
    return found


def as_rule(entry: str, verdict: Verdict) -> Taken:
    """One entry that is no file's, such as of a command line in the other program's spelling."""
    return _taken(entry, verdict, project=None, home=False)


def _take_settings(found: Imported, permissions: dict[str, Any]) -> None:
    mode = permissions.get("defaultMode")
    if isinstance(mode, str) and mode in _MODES:
        found.mode = _MODES[mode]
    elif mode is not None:
        found.notes.append(f"defaultMode {json.dumps(mode)} is not known here: the mode is default")
    if permissions.get("denyInsteadOfPrompting") is True and found.mode is Mode.DEFAULT:
        found.mode = Mode.DONT_ASK
        found.notes.append("denyInsteadOfPrompting is the mode dontAsk here")
    for key, value in permissions.items():
        if key in _NOT_HERE and value:
            found.notes.append(f"{key} is left out: {_NOT_HERE[key]}")
        elif key not in (*_LISTS, *_NOT_HERE, "defaultMode", "denyInsteadOfPrompting"):
            found.notes.append(f"{json.dumps(key)} is left out: it is not known here")


def _entries(path: Path, permissions: dict[str, Any], name: str) -> Iterable[str]:
    entries = permissions.get(name) or []
    if not isinstance(entries, list) or not all(isinstance(entry, str) for entry in entries):
        raise ConfigError(f"{path}: permissions.{name} is a list of rules, each a text")
    return entries


def _taken(entry: str, verdict: Verdict, *, project: Path | None, home: bool) -> Taken:
    match = _FORM.fullmatch(entry.strip())
    if match is None:
        return Taken(entry, None, "it is not Tool or Tool(specifier)")
    tool, inner = _RENAMED.get(match["tool"], match["tool"]), match["inner"]
    if tool not in _TOOLS and not tool.startswith("mcp__") and "*" not in tool:
        return Taken(entry, None, NO_SUCH_TOOL)
    note = f"{match['tool']} is called {tool} here" if tool != match["tool"] else None
    if inner is not None and _PARAMETER.match(inner) and tool not in ("Read", "Edit"):
        return Taken(entry, None, "rules about single parameters of a call are not known here")
    if inner is not None and tool in ("Read", "Edit", "Write", "Glob", "Grep", "NotebookEdit", "MultiEdit"):
        return _taken_path(entry, tool, inner, verdict, project=project, home=home)
    if tool == "Bash" and inner is not None and inner.strip() in ("", ":*"):
        inner = "*"
    rule = tool if inner is None else f"{tool}({inner})"
    try:
        parse_rule(rule, verdict)
    except PolicyError as exc:
        return Taken(entry, None, _bare(exc, rule))
    if tool == "WebFetch" and verdict is Verdict.ALLOW:
        note = "it asks nobody, but the network is none until the policy's sandbox section opens a host"
    return Taken(entry, rule, note)


def _taken_path(entry: str, tool: str, inner: str, verdict: Verdict, *, project: Path | None, home: bool) -> Taken:
    """File rules: by `Read` and `Edit` alone, and with places of the host as far as they are in the container."""
    family = "Read" if tool in ("Read", "Glob", "Grep") else "Edit"
    notes = []
    if family != tool:
        if verdict is Verdict.ALLOW:
            return Taken(entry, None, f"it had no effect there; write {family}(...) if it is meant")
        notes.append(f"it had no effect there; here it is {family}(...), which covers {tool}")
    place = inner
    if inner.startswith("//") and project is not None and Path(inner[1:]).is_relative_to(project):
        place = "/" + Path(inner[1:]).relative_to(project).as_posix()
    elif inner.startswith("//"):
        notes.append("a path of the container, where the host's folders are not")
    elif inner.startswith("~/"):
        notes.append("~ is the home of the tools in the container, not yours")
    elif inner.startswith("/") and home:
        notes.append("/ is the workspace here, and was the folder of the settings there")
    rule = f"{family}({place})"
    try:
        parse_rule(rule, verdict)
    except PolicyError as exc:
        return Taken(entry, None, _bare(exc, rule))
    return Taken(entry, rule, "; ".join(notes) or None)


def _bare(exc: PolicyError, rule: str) -> str:
    """The message without the rule it begins with."""
    return str(exc).removeprefix(f"rule {rule!r}: ").removeprefix(f"{rule}: ")


def _noted(taken: Taken) -> str:
    kind = "left out" if taken.rule is None else "not the same"
    return visible(f"{kind}: {json.dumps(taken.entry)}: {' '.join((taken.note or '').split())}")


def _json(path: Path) -> Any:
    try:
        if not path.exists():
            raise ConfigError(f"{path}: there is no such file")
        if not path.is_file():
            raise ConfigError(f"{path}: settings are a regular file, not a folder, pipe, socket or device")
        with path.open("rb") as file:
            raw = file.read(MAX_FILE_BYTES + 1)
        if len(raw) > MAX_FILE_BYTES:
            raise ConfigError(f"{path}: the file is longer than {MAX_FILE_BYTES // 1024**2} MiB")
        return json.loads(raw.decode("utf-8-sig"))
    except OSError as exc:
        raise ConfigError(f"{path}: it cannot be read: {exc.strerror}") from exc
    except UnicodeDecodeError as exc:
        raise ConfigError(f"{path}: it is not UTF-8 text (byte {exc.start})") from exc
    except json.JSONDecodeError as exc:
        raise ConfigError(f"{path}:{exc.lineno}: not valid JSON: {exc.msg}") from exc
    except RecursionError as exc:
        raise ConfigError(f"{path}: it is nested too deeply") from exc
