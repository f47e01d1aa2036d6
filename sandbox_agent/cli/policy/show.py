"""`sandbox-agent policy show`: the merged policy of a run, and where each line of it comes from."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import click

from sandbox_agent.frontends.sanitise import sanitise
from sandbox_agent.policy.hooks import Hook, HookEvent
from sandbox_agent.policy.hostlist import shown_entry
from sandbox_agent.policy.layers import CommandLine
from sandbox_agent.policy.load import check_outside_workspace, run_policy
from sandbox_agent.policy.merge import shown
from sandbox_agent.policy.policy import SANDBOX_KEYS, Policy
from sandbox_agent.policy.rules import Rule
from sandbox_agent.types import Mode

COMMENT_COLUMN = 52
BUILT_IN = "built in"


@click.command(
    name="show",
    epilog="\b\nExamples:\n  sandbox-agent policy show\n  sandbox-agent policy show --policy ci --mode plan\n"
    "  sandbox-agent policy show --json | jq '.rules.deny[].location'\n",
    short_help="Show the merged policy of a run, and where each line comes from.",
)
@click.option("--policy", metavar="NAME|FILE", help="As for run. Default: your own, else default.")
@click.option("--mode", type=click.Choice([mode.value for mode in Mode]), help="As for run.")
@click.option("--allow", metavar="RULE", multiple=True, help="As for run.")
@click.option("--deny", metavar="RULE", multiple=True, help="As for run.")
@click.option(
    "-w",
    "--workspace",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    help="Refuse a policy that lies in this folder, as run does.",
)
@click.option("--json", "as_json", is_flag=True, help="One JSON document.")
def COMMAND(
    policy: str | None,
    mode: str | None,
    allow: tuple[str, ...],
    deny: tuple[str, ...],
    workspace: Path | None,
    as_json: bool,
) -> None:
    """Show what applies to a run with these options: every layer merged, with file:line of each rule and setting."""
    options = CommandLine(allow=allow, deny=deny, mode=Mode(mode) if mode is not None else None)
    merged = run_policy(policy, options)
    if workspace is not None:
        check_outside_workspace(merged, workspace)
    if as_json:
        click.echo(json.dumps(_document(merged), indent=1))
        return
    for line in _lines(merged):
        click.echo(line)


def _settings(policy: Policy) -> list[tuple[str, Any]]:
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


def _lines(policy: Policy) -> Iterator[str]:
    """The policy as YAML; what is behind a # says where a line is from."""
    yield f"# {sanitise(policy.name)}, from {sanitise(policy.location)}"
    for note in policy.notes:
        yield f"# {sanitise(note)}"
    if policy.locks:
        yield "lock:"
        yield from (_line(f"  - {word}", location) for word, location in policy.locks)
    sources = dict(policy.sources)
    section = ""
    for key, value in _settings(policy):
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


def _document(policy: Policy) -> dict[str, object]:
    sources = dict(policy.sources)
    return {
        "name": policy.name,
        "location": policy.location,
        "files": [str(file) for file in policy.files],
        "settings": {key: {"value": value, "location": sources.get(key)} for key, value in _settings(policy)},
        "rules": {
            kind: [_rule(rule) for rule in rules]
            for kind, rules in (("deny", policy.rules.deny), ("ask", policy.rules.ask), ("allow", policy.rules.allow))
        },
        "hooks": [
            {
                "id": hook.id,
                "event": hook.event.value,
                "command": list(hook.command),
                "place": hook.place,
                "location": hook.location,
                "layer": hook.layer,
            }
            for hook in policy.hooks
        ],
        "lock": dict(policy.locks),
        "notes": list(policy.notes),
    }


def _rule(rule: Rule) -> dict[str, object]:
    return {
        "rule": rule.text,
        "id": rule.id,
        "reason": rule.reason,
        "location": rule.location,
        "layer": rule.layer,
    }
