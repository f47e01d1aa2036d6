"""Layers to one `Policy`: rules of every layer add up, settings of the nearer layer win, and what a layer locks no
nearer one loosens. Pure.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from sandbox_agent.errors import PolicyError
from sandbox_agent.policy.hooks import Hook
from sandbox_agent.policy.hostlist import is_wider
from sandbox_agent.policy.layers import SETTINGS, Layer, Setting, covers
from sandbox_agent.policy.modes import looseness, stricter
from sandbox_agent.policy.policy import SANDBOX_KEYS, Policy, SandboxSettings
from sandbox_agent.policy.rules import Rule, RuleSet
from sandbox_agent.policy.schema import LimitsSection, PolicyFile, PriceEntry, SandboxSection, SubagentLimits
from sandbox_agent.policy.servers import McpServer
from sandbox_agent.types import Limits, Mode, Price, Verdict

_BYTES = frozenset(f"sandbox.{key}" for key in ("memory", "disk", "fsize", "tmp", "home", "shm", "egress"))
_COUNTS = frozenset(f"sandbox.{key}" for key in ("cpus", "pids", "nofile", "tmp_files", "home_files"))
_SUBAGENTS = ("depth", "at_once", "total")
_CAPPED = (
    _BYTES
    | _COUNTS
    | {f"limits.{key}" for key in ("turns", "wall_s", "tokens", "cost_usd", "context_tokens", "prices")}
    | {f"limits.subagents.{key}" for key in _SUBAGENTS}
)
_LOOSE_WORDS = {"read_only_commands": "allow", "project_instructions": "give", "sandbox.seccomp": "debug"}
"""Settings of two words: the one that lets more happen."""
_UNITS = (("GiB", 1024**3), ("MiB", 1024**2))


def shown(key: str, value: Any) -> str:
    """A setting's value as people write it: sizes with a unit, null for no limit."""
    if value is None:
        return "null"
    if key == "sandbox.allow_hosts":
        return "[" + ", ".join(entry.text + (" (private)" if entry.allow_private else "") for entry in value) + "]"
    if key == "limits.prices":
        return "{" + ", ".join(f"{json.dumps(name)}: {shown_price(price)}" for name, price in value.items()) + "}"
    if key in _BYTES:
        unit, size_bytes = next(((unit, size) for unit, size in _UNITS if value % size == 0), ("B", 1))
        return f"{value // size_bytes}{unit}"
    return f"{value:g}" if isinstance(value, float) else str(value)


def shown_price(price: PriceEntry) -> str:
    """A price as people write it."""
    given = price.model_dump(exclude_none=True)
    return "{" + ", ".join(f"{key}: {value:g}" for key, value in given.items()) + "}"


def merge(layers: Sequence[Layer], named: Layer) -> Policy:
    """The policy of layers, the farthest first; it is called as `named` is.

    Raises:
        PolicyError: a layer loosens what one before it locks; both places are named.
    """
    merging = _Merging()
    for layer in layers:
        merging.add(layer)
    return merging.policy(named)


@dataclass(slots=True)
class _Merging:
    deny: list[Rule] = field(default_factory=list)
    ask: list[Rule] = field(default_factory=list)
    allow: list[Rule] = field(default_factory=list)
    hooks: list[Hook] = field(default_factory=list)
    servers: dict[str, McpServer] = field(default_factory=dict)
    host_servers: dict[str, None] = field(default_factory=dict)
    seen: set[tuple[Verdict, str | None, str]] = field(default_factory=set)
    """Rules that are there already: two files of a layer may extend the same third one."""
    settings: dict[str, Setting] = field(default_factory=dict)
    locked: dict[str, Setting] = field(default_factory=dict)
    """Setting to what it may not be looser than, and where that is said."""
    lists_locked: dict[str, str] = field(default_factory=dict)
    """`allow`, `hooks` and `mcp` to where they are locked."""
    words: dict[str, str] = field(default_factory=dict)
    """What is locked, as it is written, and where."""
    notes: list[str] = field(default_factory=list)
    files: list[Path] = field(default_factory=list)

    def add(self, layer: Layer) -> None:
        if layer.path is not None and layer.kind != "shipped":
            self.files.append(layer.path)
        if layer.kind == "saved" and self._value("saved_rules") == "ignore":
            return
        self._add_rules(layer)
        self._add_hooks(layer)
        self._add_servers(layer)
        for key, offered in layer.settings.items():
            self.settings[key] = self._settled(key, offered, layer)
        for word, location in layer.locks.items():
            self._lock(word, location)

    def _value(self, key: str) -> Any:
        return self.settings[key].value if key in self.settings else _DEFAULTS[key]

    def _add_rules(self, layer: Layer) -> None:
        self.deny += self._new(layer.rules.deny)
        self.ask += self._new(layer.rules.ask)
        allow = self._new(layer.rules.allow)
        by = self.lists_locked.get("allow")
        if by is None or not allow:
            self.allow += allow
        elif layer.kind in ("shipped", "saved"):
            self.notes.append(f"the allow rules of {layer.location} do not count: {by} locks allow")
        else:
            told = f"the allow rule {allow[0].text} may not be added: {by} locks allow; take it out"
            raise PolicyError(told, location=allow[0].location)

    def _new(self, rules: Iterable[Rule]) -> list[Rule]:
        found = []
        for rule in rules:
            key = (rule.verdict, rule.location, rule.text)
            if key not in self.seen:
                self.seen.add(key)
                found.append(rule)
        return found

    def _add_hooks(self, layer: Layer) -> None:
        by = self.lists_locked.get("hooks")
        if by is not None and layer.hooks:
            told = f"the hook {layer.hooks[0].id} may not be added: {by} locks hooks; take it out"
            raise PolicyError(told, location=layer.hooks[0].location)
        self.hooks += [hook for hook in layer.hooks if hook not in self.hooks]

    def _add_servers(self, layer: Layer) -> None:
        """A nearer layer's server of the same name takes the place of one before it."""
        by = self.lists_locked.get("mcp")
        added = [(one.name, one.location) for one in layer.servers]
        added += [(one.value, one.location) for one in layer.host_servers]
        if by is not None and added:
            name, location = added[0]
            raise PolicyError(f"the MCP server {name} may not be added: {by} locks mcp; take it out", location=location)
        self.servers |= {one.name: one for one in layer.servers}
        self.host_servers |= {one.value: None for one in layer.host_servers}

    def _lock(self, word: str, location: str) -> None:
        self.words.setdefault(word, location)
        if word in ("allow", "hooks", "mcp"):
            self.lists_locked.setdefault(word, location)
        if word == "bypassPermissions":
            self._hold("mode", Mode.ACCEPT_EDITS, location)
        for key in _DEFAULTS:
            if covers(word, key):
                self._hold(key, self._value(key), location)

    def _hold(self, key: str, value: Any, location: str) -> None:
        before = self.locked.get(key)
        if before is None or is_looser(key, before.value, value):
            self.locked[key] = Setting(value, location)

    def _settled(self, key: str, offered: Setting, layer: Layer) -> Setting:
        """What holds where a layer says something: refused or capped if it is looser than what is locked."""
        lock = self.locked.get(key)
        if key == "sandbox.masks" and lock is not None:
            return Setting([*dict.fromkeys((*lock.value, *offered.value))], offered.location)
        if lock is None or not is_looser(key, offered.value, lock.value):
            return offered
        words = f"{key} {shown(key, offered.value)}"
        allowed = shown(key, lock.value)
        if key in _CAPPED or layer.kind == "shipped":
            if key in _CAPPED and layer.kind != "shipped":
                self.notes.append(f"{offered.location}: {words} counts as {allowed}: {lock.location} locks it")
            elif key not in _CAPPED:
                self.notes.append(f"{offered.location}: {words} does not count: {lock.location} locks {allowed}")
            return Setting(lock.value, lock.location)
        raise PolicyError(
            f"{words} is looser than {allowed}, which {lock.location} locks; take it out", location=offered.location
        )

    def policy(self, named: Layer) -> Policy:
        ceiling = self.locked.get("mode")
        values = {key: self._value(key) for key in _DEFAULTS}
        loosest = None if ceiling is None else ceiling.value
        policy = Policy(
            name=named.name,
            mode=stricter(values["mode"], loosest),
            rules=RuleSet(
                deny=tuple(self.deny),
                ask=tuple(self.ask),
                allow=tuple(self.allow),
                read_only_commands=values["read_only_commands"] == "allow",
            ),
            sandbox=_sandbox(values),
            limits=_limits(values),
            prices=tuple((name, _price(entry)) for name, entry in values["limits.prices"].items()),
            location=named.location,
            hooks=tuple(self.hooks),
            servers=tuple(self.servers.values()),
            host_servers=frozenset(self.host_servers),
            servers_locked_by=self.lists_locked.get("mcp"),
            loosest_mode=loosest,
            allow_locked_by=self.lists_locked.get("allow"),
            saved_rules=values["saved_rules"] == "apply",
            project_instructions=values["project_instructions"] == "give",
            locks=tuple(self.words.items()),
            sources=tuple((key, one.location) for key, one in self.settings.items()),
            files=tuple(dict.fromkeys(self.files)),
            notes=tuple(self.notes),
        )
        return with_denied_masked(policy)


def is_looser(key: str, offered: Any, held: Any) -> bool:
    """True if a value of this setting lets more happen than another. Without an order, every other does."""
    if key == "mode":
        return looseness(offered) > looseness(held)
    if key == "limits.prices":
        return bool(offered != held)  # there is no telling which models a run will use
    if key in _CAPPED:
        return _number(offered) > _number(held)
    if key in _LOOSE_WORDS:
        return bool(offered == _LOOSE_WORDS[key] and held != _LOOSE_WORDS[key])
    if key == "sandbox.masks":
        return not set(held) <= set(offered)
    if key == "sandbox.allow_hosts":
        return is_wider(offered, held)
    return bool(offered != held)


def _number(value: float | None) -> float:
    return math.inf if value is None else value


def with_denied_masked(policy: Policy) -> Policy:
    """Files of the workspace that a rule keeps from being read are masked: a program reads what no rule can see."""
    patterns = [rule.path for rule in policy.rules.deny if rule.path is not None and rule.is_about_files(write=False)]
    lines = [line for pattern in patterns if (line := pattern.workspace_line) is not None]
    masks = tuple(dict.fromkeys((*policy.sandbox.masks, *lines)))
    return replace(policy, sandbox=replace(policy.sandbox, masks=masks))


def _sandbox(values: Mapping[str, Any]) -> SandboxSettings:
    given = {field: values[f"sandbox.{key}"] for key, field in SANDBOX_KEYS.items()}
    return SandboxSettings(**given | {key: tuple(given[key]) for key in ("masks", "allow_hosts")})


def _limits(values: Mapping[str, Any]) -> Limits:
    keys = ("turns", "wall_s", "tokens", "cost_usd", "context_tokens")
    depth, at_once, total = (values[f"limits.subagents.{key}"] for key in _SUBAGENTS)
    return Limits(
        **{key: values[f"limits.{key}"] for key in keys},
        subagent_depth=depth,
        subagents_at_once=at_once,
        subagents_total=total,
    )


def _price(entry: PriceEntry) -> Price:
    return Price(
        input=entry.input,
        output=entry.output,
        cache_write=entry.input * 1.25 if entry.cache_write is None else entry.cache_write,
        cache_read=entry.input * 0.1 if entry.cache_read is None else entry.cache_read,
        cache_write_1h=entry.input * 2 if entry.cache_write_1h is None else entry.cache_write_1h,
    )


def _defaults() -> dict[str, Any]:
    """What holds where no layer says anything: the schema's defaults, by dotted key."""
    whole = PolicyFile()
    found: dict[str, Any] = {key: getattr(whole, key) for key in SETTINGS}
    sections: Iterable[tuple[str, SandboxSection | LimitsSection | SubagentLimits]] = (
        ("sandbox", whole.sandbox),
        ("limits", whole.limits),
        ("limits.subagents", whole.limits.subagents),
    )
    for name, section in sections:
        found |= {f"{name}.{key}": getattr(section, key) for key in type(section).model_fields}
    del found["limits.subagents"]  # its keys are the settings
    return found


_DEFAULTS = _defaults()
