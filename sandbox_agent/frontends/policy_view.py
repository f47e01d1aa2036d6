"""A merged policy for people: as YAML, and behind each line where it comes from."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict
from typing import Any

from sandbox_agent.frontends.sanitise import sanitise
from sandbox_agent.policy.hooks import Hook, HookEvent
from sandbox_agent.policy.hostlist import shown_entry
from sandbox_agent.policy.merge import shown
from sandbox_agent.policy.policy import SANDBOX_KEYS, Policy

COMMENT_COLUMN = 52
BUILT_IN = "built in"


def settings(policy: Policy) -> list[tuple[str, Any]]:
    """Dotted keys and values, in the order of the file."""
    box = {f"sandbox.{key}": getattr(policy.sandbox, field) for key, field in SANDBOX_KEYS.items()}
    hosts = [shown_entry(entry) for entry in policy.sandbox.allow_hosts]
    lists = {"sandbox.allow_hosts": hosts, "sandbox.masks": list(policy.sandbox.masks)}
    return [
        ("mode", policy.mode.value),
        ("read_only_commands", "allow" if policy.rules.read_only_commands else "ask"),
        ("saved_rules", "apply" if policy.saved_rules else "ignore"),
        ("project_instructions", "give" if policy.project_instructions else "ignore"),
        *(box | lists).items(),
        ("limits.turns", policy.limits.turns),
        ("limits.wall_s", policy.limits.wall_s),
        ("limits.tokens", policy.limits.tokens),
        ("limits.cost_usd", policy.limits.cost_usd),
        ("limits.prices", {_quoted(name): _flow(asdict(price)) for name, price in policy.prices}),
        ("limits.context_tokens", policy.limits.context_tokens),
        ("limits.subagents.depth", policy.limits.subagent_depth),
        ("limits.subagents.at_once", policy.limits.subagents_at_once),
        ("limits.subagents.total", policy.limits.subagents_total),
    ]


def _flow(value: Mapping[str, float]) -> str:
    return "{" + ", ".join(f"{key}: {number:g}" for key, number in value.items()) + "}"


def lines(policy: Policy) -> Iterator[str]:
    """The policy as YAML; what is behind a # says where a line is from."""
    yield f"# {sanitise(policy.name)}, from {sanitise(policy.location)}"
    for note in policy.notes:
        yield f"# {sanitise(note)}"
    if policy.locks:
        yield "lock:"
        yield from (_line(f"  - {word}", location) for word, location in policy.locks)
    sources = dict(policy.sources)
    section = ""
    for key, value in settings(policy):
        owner, _, name = key.rpartition(".")
        if owner != section:
            if not section:
                yield from _rule_lines(policy)
            outer, _, last = owner.rpartition(".")
            if outer and not section.startswith(outer):
                yield f"{outer}:"
            section = owner
            yield "  " * owner.count(".") + f"{last}:"
        indent = "  " * key.count(".")
        place = sources.get(key, BUILT_IN)
        if isinstance(value, list):
            yield _line(f"{indent}{name}:" if value else f"{indent}{name}: []", place)
            yield from (f"{indent}  - {_quoted(item)}" for item in value)
        elif isinstance(value, dict):
            yield _line(f"{indent}{name}:" if value else f"{indent}{name}: {{}}", place)
            yield from (f"{indent}  {inner}: {said}" for inner, said in value.items())
        else:
            yield _line(f"{indent}{name}: {sanitise(shown(key, value))}", place)
    yield from _hook_lines(policy.hooks)


def _rule_lines(policy: Policy) -> Iterator[str]:
    yield "rules:"
    for kind, rules in (("deny", policy.rules.deny), ("ask", policy.rules.ask), ("allow", policy.rules.allow)):
        yield f"  {kind}:" if rules else f"  {kind}: []"
        yield from (_line(f"    - {_quoted(rule.text)}", rule.location or BUILT_IN) for rule in rules)


def _hook_lines(hooks: Iterable[Hook]) -> Iterator[str]:
    event = None
    order = list(HookEvent)
    for hook in sorted(hooks, key=lambda hook: order.index(hook.event)):
        if event is None:
            yield "hooks:"
        if hook.event is not event:
            event = hook.event
            yield f"  {event.value}:"
        yield _line(f"    - {{id: {hook.id}, place: {hook.place}}}", hook.location or BUILT_IN)


def _line(text: str, place: str) -> str:
    return f"{text:<{COMMENT_COLUMN}} # {sanitise(place)}"


def _quoted(value: object) -> str:
    return sanitise(json.dumps(value, ensure_ascii=False))
