"""The `hooks:` section of a policy: programs that are told of an event and may tighten what follows; parsed here, run
by `engine.hooks`.

A hook runs in the container unless it says `place: host`, and only a file that is the user's own (or the
administrator's) may say that.
"""

from __future__ import annotations

import enum
import fnmatch
import re
import shlex
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

from sandbox_agent.errors import PolicyError
from sandbox_agent.policy.calls import judge_call
from sandbox_agent.policy.rules import Rule, RuleSet, parse_rule
from sandbox_agent.policy.shell_judge import judge_command
from sandbox_agent.policy.source import KeyPath
from sandbox_agent.types import Mode, PermissionRequest, Verdict

DEFAULT_TIMEOUT_S = 60.0
MAX_TIMEOUT_S = 600.0
_SHELL = ("sh", "-c")
_BAR_OUTSIDE_BRACKETS = re.compile(r"\|(?![^(]*\))")
_NAME = re.compile(r"[A-Za-z0-9_*-]+")


class HookEvent(enum.StrEnum):
    """When a hook runs; `wire_name` is what the hook is told, spelled as the field spells it."""

    SESSION_START = "session_start"
    PRE_TOOL_USE = "pre_tool_use"
    PERMISSION_REQUEST = "permission_request"
    POST_TOOL_USE = "post_tool_use"
    STOP = "stop"
    SUBAGENT_STOP = "subagent_stop"
    SESSION_END = "session_end"

    @property
    def wire_name(self) -> str:
        return "".join(part.capitalize() for part in self.value.split("_"))

    @property
    def about_a_call(self) -> bool:
        """Whether it has a tool, and so takes a matcher."""
        return self in (HookEvent.PRE_TOOL_USE, HookEvent.PERMISSION_REQUEST, HookEvent.POST_TOOL_USE)

    @property
    def decides(self) -> bool:
        """Whether a hook that fails denies the call."""
        return self in (HookEvent.PRE_TOOL_USE, HookEvent.PERMISSION_REQUEST)


def _none_to_empty(value: Any) -> Any:
    return [] if value is None else value


def _is_command(value: Any) -> Any:
    words = [value] if isinstance(value, str) else value
    if not isinstance(words, list) or not words or not all(isinstance(word, str) for word in words):
        raise ValueError("a command line, or a list of a program and its arguments")
    if not words[0].strip() or any("\0" in word for word in words):
        raise ValueError("a program to run, without NUL characters")
    if isinstance(value, str):
        _check_quotes(value)
    return value


def _check_quotes(command: str) -> None:
    try:
        shlex.split(command)
    except ValueError as exc:
        raise ValueError(f"a command line that the shell can read ({exc})") from exc


class HookEntry(BaseModel):
    """One hook."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, use_attribute_docstrings=True)

    command: Annotated[str | list[str], BeforeValidator(_is_command)]
    """A list is run as it is; a text by `sh -c`. The event comes as JSON on standard input, never in the command."""
    matcher: str | None = None
    """Tools whose calls it is for: names with `*`, or rules, with `|` between them. Left out means all."""
    place: Literal["container", "host"] = "container"
    """`host` only in the user's own policy."""
    timeout_s: float = Field(default=DEFAULT_TIMEOUT_S, gt=0, le=MAX_TIMEOUT_S)
    id: str | None = Field(default=None, pattern=r"^[a-z0-9][a-z0-9._-]*$")


HookList = Annotated[list[HookEntry], BeforeValidator(_none_to_empty)]


class HooksSection(BaseModel):
    """Hooks by event; several of one event all run, in this order, and the strictest answer holds."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, use_attribute_docstrings=True)

    session_start: HookList = []
    pre_tool_use: HookList = []
    permission_request: HookList = []
    post_tool_use: HookList = []
    stop: HookList = []
    subagent_stop: HookList = []
    session_end: HookList = []


@dataclass(frozen=True, slots=True)
class Matcher:
    """Which calls a hook is for: any of these names (with wildcards) or rules; with neither, all."""

    names: tuple[str, ...] = ()
    rules: tuple[Rule, ...] = ()

    def fits(self, request: PermissionRequest) -> bool:
        """True if the hook is for this call; also where it cannot be told, as for a command that cannot be parsed."""
        if not self.names and not self.rules:
            return True
        if any(_is_named(request.tool, name) for name in self.names):
            return True
        judge = judge_call if request.subject.command is None else judge_command
        return any(
            judge(RuleSet(deny=(rule,)), request, Mode.BYPASS).verdict is not Verdict.ALLOW for rule in self.rules
        )


def _is_named(tool: str, name: str) -> bool:
    """By its own name, which may hold wildcards, or by that of its server. A rule's `Edit` would be Write as well."""
    return fnmatch.fnmatchcase(tool, name) or (name.startswith("mcp__") and tool.startswith(f"{name}__"))


@dataclass(frozen=True, slots=True)
class Hook:
    """A hook as it is run. `folder` is where a host hook starts: that of the file it is from."""

    id: str
    event: HookEvent
    command: tuple[str, ...]
    place: Literal["container", "host"] = "container"
    matcher: Matcher = Matcher()
    timeout_s: float = DEFAULT_TIMEOUT_S
    location: str | None = None
    folder: str = "/"
    layer: str | None = None
    """Whose hook it is: `user`, `administrator`, ...; see `layers.Kind`."""


def parse_hooks(
    section: HooksSection, locate: Callable[[KeyPath], str], *, host_folder: str | None
) -> tuple[Hook, ...]:
    """The hooks of a file, in the order of their events.

    Args:
        section: as it was read.
        locate: `file:line` of a key of the file.
        host_folder: where its host hooks start; None for a file that may have none.

    Raises:
        PolicyError: a host hook where none may be, a matcher that can never fit, or an id twice.
    """
    hooks: list[Hook] = []
    for event in HookEvent:
        entries: Sequence[HookEntry] = getattr(section, event.value)
        for index, entry in enumerate(entries):
            where = locate(("hooks", event.value, index))
            if entry.place == "host" and host_folder is None:
                raise PolicyError(
                    "place: host is only for your own policy (policy.yaml in your configuration folder): a hook of "
                    "another file runs in the container; leave place out, or move the hook there",
                    location=where,
                )
            name = entry.id or f"{event.value}-{index + 1}"
            if any(hook.id == name for hook in hooks):
                raise PolicyError(f"two hooks are called {name!r}; give one of them another id", location=where)
            command = (*_SHELL, entry.command) if isinstance(entry.command, str) else tuple(entry.command)
            matcher = parse_matcher(entry.matcher, event, where)
            folder = host_folder or "/"
            hooks.append(Hook(name, event, command, entry.place, matcher, entry.timeout_s, where, folder))
    return tuple(hooks)


def check_programs_outside(hooks: Sequence[Hook], workspace: Path) -> None:
    """Refuse host hooks that name a file of the workspace: the agent could write what runs on this machine.

    Raises:
        PolicyError: a word of such a command leads there, as far as it can be told from the words.
    """
    root = workspace.resolve()
    for hook in hooks:
        if hook.place != "host":
            continue
        words = shlex.split(hook.command[-1]) if hook.command[:2] == _SHELL else hook.command
        for word in words:
            if "/" in word and Path(hook.folder, word).resolve().is_relative_to(root):
                told = (
                    f"the hook {hook.id} runs {word}, which lies in the workspace; keep it where the agent cannot write"
                )
                raise PolicyError(told, location=hook.location)


def parse_matcher(text: str | None, event: HookEvent, location: str | None = None) -> Matcher:
    """A matcher from its text.

    Raises:
        PolicyError: the event has no tool, or a part is neither a tool's name nor a rule.
    """
    if text is None or text.strip() in ("", "*"):
        return Matcher()
    if not event.about_a_call:
        raise PolicyError(f"matcher: {event.value} is not about a tool; leave it out", location=location)
    names: list[str] = []
    rules: list[Rule] = []
    for part in (part.strip() for part in _BAR_OUTSIDE_BRACKETS.split(text)):
        if not _NAME.fullmatch(part) and "(" not in part:
            how = "write tool names or rules with | between them, such as Edit|Write or Bash(git push:*)"
            raise PolicyError(f"matcher {text!r}: {how}", location=location)
        rule = parse_rule(part, Verdict.DENY, location=location)  # a misspelt name would be a hook that never runs
        if rule.bare:
            names.append(part)
        else:
            rules.append(rule)
    return Matcher(tuple(names), tuple(rules))
