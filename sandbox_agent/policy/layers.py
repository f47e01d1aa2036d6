"""What one file, or the command line, says: a `Layer` of rules and of the settings that are really written in it."""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

import pydantic

from sandbox_agent.errors import PolicyError
from sandbox_agent.policy.examples import check_examples
from sandbox_agent.policy.faults import shape_faults
from sandbox_agent.policy.hooks import Hook, parse_hooks
from sandbox_agent.policy.rules import Rule, RuleSet, parse_rule
from sandbox_agent.policy.schema import PolicyFile, RuleEntry, lockable_keys
from sandbox_agent.policy.servers import McpServer, parse_servers
from sandbox_agent.policy.source import Document
from sandbox_agent.types import Mode, Verdict

Kind = Literal["administrator", "shipped", "user", "policy", "saved", "command line"]
"""Whose word a layer is; decisions name it."""

SETTINGS = ("mode", "read_only_commands", "saved_rules", "project_instructions")
"""Keys that lie in no section."""
_SECTIONS = ("sandbox", "limits")
_WORDS = {True: "give", False: "ignore", None: None}


@dataclass(frozen=True, slots=True)
class Setting:
    """A value that is written somewhere, and where."""

    value: Any
    location: str


@dataclass(frozen=True, slots=True)
class Layer:
    """One file's share of a policy. `settings` has dotted keys such as `sandbox.memory`, and only those it names."""

    kind: Kind
    name: str
    location: str
    rules: RuleSet = field(default_factory=RuleSet)
    settings: Mapping[str, Setting] = field(default_factory=dict)
    locks: Mapping[str, str] = field(default_factory=dict)
    """Word of `lock` to `file:line`."""
    hooks: tuple[Hook, ...] = ()
    servers: tuple[McpServer, ...] = ()
    host_servers: tuple[Setting, ...] = ()
    extends: tuple[Setting, ...] = ()
    path: Path | None = None

    def restrictions(self) -> Layer:
        """What of it stays when another policy is chosen for a run: denies, asks, hooks, and what it locks."""
        locked = {key: one for key, one in self.settings.items() if any(covers(word, key) for word in self.locks)}
        allow = self.rules.allow if "allow" in self.locks else ()
        return replace(self, rules=replace(self.rules, allow=allow), settings=locked)


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandLine:
    """What the options of one run say. None means nothing."""

    allow: Sequence[str] = ()
    deny: Sequence[str] = ()
    ask: Sequence[str] = ()
    mode: Mode | None = None
    image: str | None = None
    max_turns: int | None = None
    timeout_s: float | None = None
    max_tokens: int | None = None
    max_cost_usd: float | None = None
    project_instructions: bool | None = None


def covers(word: str, key: str) -> bool:
    """True if a word of `lock` is about this setting."""
    if word == "allow":
        return key == "read_only_commands"
    if (word, key) == ("limits.cost_usd", "limits.prices"):
        return True  # what the one means hangs on the other
    return key == word or key.startswith(f"{word}.")


def layer_of_document(document: Document, kind: Kind, *, examples: bool, host_folder: str | None) -> Layer:
    """The layer in a document.

    Args:
        document: as it was read.
        kind: whose it is.
        examples: check the rules' examples.
        host_folder: where its host hooks start; None for a file that may have none.

    Raises:
        PolicyFaults: whatever is wrong in it, all at once.
    """
    faults = [*document.faults]
    # An empty key (`rules:`) is a key that is not there.
    known = PolicyFile.model_fields
    data = {key: value for key, value in document.data.items() if value is not None or key not in known}
    try:
        file = PolicyFile.model_validate(data)
    except pydantic.ValidationError as exc:
        faults += shape_faults(document, exc)
        # A rule with a fault of its own is better told now than after the shape was mended.
        _rules_of_unchecked(document, kind, faults)
        raise PolicyFaults(faults) from exc
    rules = _rules(document, file, kind, faults, examples=examples)
    _check_masks(document, file.sandbox.masks, faults)
    hooks: tuple[Hook, ...] = ()
    try:
        hooks = parse_hooks(file.hooks, document.location, host_folder=host_folder)
    except PolicyError as exc:
        faults.append(exc)
    servers: tuple[McpServer, ...] = ()
    try:
        servers = parse_servers(file.mcp, document.location)
    except PolicyError as exc:
        faults.append(exc)
    layer = Layer(
        kind=kind,
        name=file.name or Path(document.name).stem,
        location=document.name,
        rules=rules,
        settings=_settings(document, file),
        locks=_locks(document, file, faults),
        hooks=tuple(replace(hook, layer=kind) for hook in hooks),
        servers=servers,
        host_servers=tuple(
            Setting(name, document.location(("mcp", "host", index))) for index, name in enumerate(file.mcp.host)
        ),
        extends=tuple(Setting(name, document.location(("extends", index))) for index, name in enumerate(file.extends)),
        path=document.path,
    )
    if faults:
        raise PolicyFaults(faults)
    return layer


class PolicyFaults(PolicyError):
    """Everything that is wrong in one file. As one line it is the first fault, and how many more there are."""

    def __init__(self, faults: Sequence[PolicyError]) -> None:
        ordered = sorted(faults, key=_line)
        first = ordered[0]
        more = f" ({len(ordered) - 1} more: sandbox-agent policy check)" if len(ordered) > 1 else ""
        super().__init__(f"{first}{more}")
        self.location = first.location
        self.faults = tuple(ordered)


def layer_of_command_line(given: CommandLine) -> Layer:
    """The layer of a run's options.

    Raises:
        PolicyError: a rule cannot be read.
    """
    settings = {
        key: Setting(value, option)
        for key, value, option in (
            ("mode", given.mode, "--mode"),
            ("sandbox.image", given.image, "--image"),
            ("limits.turns", given.max_turns, "--max-turns"),
            ("limits.wall_s", given.timeout_s, "--timeout"),
            ("limits.tokens", given.max_tokens, "--max-tokens"),
            ("limits.cost_usd", given.max_cost_usd, "--max-cost"),
            ("project_instructions", _WORDS[given.project_instructions], "--project-instructions"),
        )
        if value is not None
    }
    rules = RuleSet(
        deny=_given(given.deny, Verdict.DENY, "--deny"),
        ask=_given(given.ask, Verdict.ASK, "--ask"),
        allow=_given(given.allow, Verdict.ALLOW, "--allow"),
    )
    return Layer("command line", "command line", "the command line", rules, settings)


def layer_of_saved(lines: Sequence[tuple[int, str]], path: Path) -> Layer:
    """The layer of the rules that were saved by answering "always".

    Raises:
        PolicyError: a rule cannot be read.
    """
    allow = tuple(
        replace(parse_rule(rule, Verdict.ALLOW, location=f"{path}:{line}"), layer="saved") for line, rule in lines
    )
    return Layer("saved", "saved", str(path), RuleSet(allow=allow), path=path if lines else None)


def _line(fault: PolicyError) -> int:
    _, _, line = (fault.location or "").rpartition(":")
    return int(line) if line.isascii() and line.isdigit() else 0


def _settings(document: Document, file: PolicyFile) -> dict[str, Setting]:
    found = {
        key: Setting(getattr(file, key), document.location((key,))) for key in SETTINGS if key in file.model_fields_set
    }
    for name in _SECTIONS:
        if name in file.model_fields_set:
            found |= _settings_of(document, getattr(file, name), (name,))
    return found


def _settings_of(document: Document, section: pydantic.BaseModel, path: tuple[str, ...]) -> dict[str, Setting]:
    found: dict[str, Setting] = {}
    for key in type(section).model_fields:
        value = getattr(section, key)
        place = (*path, key)
        if isinstance(value, pydantic.BaseModel):
            found |= _settings_of(document, value, place)
        elif key in section.model_fields_set:
            found[".".join(place)] = Setting(value, document.location(place))
    return found


def _locks(document: Document, file: PolicyFile, faults: list[PolicyError]) -> dict[str, str]:
    known = lockable_keys()
    locks = {}
    for index, word in enumerate(file.lock):
        location = document.location(("lock", index))
        if word in known:
            locks[word] = location
        else:
            near = difflib.get_close_matches(word, known, n=1)
            hint = f"did you mean {near[0]!r}?" if near else f"known are {', '.join(known)}"
            faults.append(PolicyError(f"lock {word!r}: there is no such part; {hint}", location=location))
    return locks


def _rules(document: Document, file: PolicyFile, kind: Kind, faults: list[PolicyError], *, examples: bool) -> RuleSet:
    rules = {
        name: _parsed(document, name, entries, kind, faults, examples=examples)
        for name, entries in (("deny", file.rules.deny), ("ask", file.rules.ask), ("allow", file.rules.allow))
    }
    return RuleSet(deny=rules["deny"], ask=rules["ask"], allow=rules["allow"])


def _parsed(
    document: Document,
    name: str,
    entries: Sequence[RuleEntry],
    kind: Kind,
    faults: list[PolicyError],
    *,
    examples: bool,
) -> tuple[Rule, ...]:
    rules = []
    for index, entry in enumerate(entries):
        location = document.location(("rules", name, index))
        try:
            rule = parse_rule(entry.rule, Verdict[name.upper()], reason=entry.reason, id=entry.id, location=location)
            if examples:
                check_examples(rule, matches=entry.matches, not_matches=entry.not_matches)
        except PolicyError as exc:
            faults.append(exc)
            continue
        rules.append(replace(rule, layer=kind))
    return tuple(rules)


def _rules_of_unchecked(document: Document, kind: Kind, faults: list[PolicyError]) -> None:
    """The faults of those rules whose own shape is right, in a file whose shape is not."""
    rules = document.data.get("rules")
    for name in ("deny", "ask", "allow"):
        entries = rules.get(name) if isinstance(rules, dict) else None
        for index, entry in enumerate(entries if isinstance(entries, list) else []):
            text = entry.get("rule") if isinstance(entry, dict) else entry
            if not isinstance(text, str):
                continue
            try:
                parse_rule(text, Verdict[name.upper()], location=document.location(("rules", name, index)))
            except PolicyError as exc:
                faults.append(exc)


def _given(texts: Sequence[str], verdict: Verdict, option: str) -> tuple[Rule, ...]:
    return tuple(replace(parse_rule(text, verdict, location=option), layer="command line") for text in texts)


def _check_masks(document: Document, masks: Sequence[str], faults: list[PolicyError]) -> None:
    for index, mask in enumerate(masks):
        told = None
        if not mask.strip() or mask.startswith(("#", "!")) or "\n" in mask:
            told = "write a gitignore pattern such as .env or secrets/"
        elif mask.startswith(("//", "~")) or {".", ".."} & set(mask.split("/")):
            told = "it can never fit, since masks are for paths in the workspace; write .env, or /secrets/ from its top"
        if told is not None:
            location = document.location(("sandbox", "masks", index))
            faults.append(PolicyError(f"mask {mask!r}: {told}", location=location))
