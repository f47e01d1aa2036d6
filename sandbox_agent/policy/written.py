"""A merged policy as JSON, and back: what a recorded run was judged by, without its files.

Hooks are not in it: a run that has any is not recorded.
"""

from __future__ import annotations

from dataclasses import fields, replace
from functools import cache
from pathlib import Path
from typing import Any, get_type_hints

from pydantic import TypeAdapter, ValidationError

from sandbox_agent.errors import PolicyError
from sandbox_agent.hostnames import entry_of_json
from sandbox_agent.policy.policy import Policy, SandboxSettings
from sandbox_agent.policy.rules import Rule, RuleSet, parse_rule
from sandbox_agent.policy.servers import McpServer
from sandbox_agent.types import JsonObject, Limits, Mode, Price, Verdict

_KINDS = {"deny": Verdict.DENY, "ask": Verdict.ASK, "allow": Verdict.ALLOW}
_RULE = ("text", "reason", "id", "location", "layer")
_APART = ("rules", "hooks", "sandbox", "files")


def policy_as_json(policy: Policy) -> JsonObject:
    """The policy, without its hooks, as `policy_of_json` takes it."""
    plain = {
        one.name: _writer(one.name).dump_python(getattr(policy, one.name), mode="json")
        for one in fields(Policy)
        if one.name not in _APART
    }
    rules: JsonObject = {kind: [_rule_as_json(rule) for rule in getattr(policy.rules, kind)] for kind in _KINDS}
    rules["read_only_commands"] = policy.rules.read_only_commands
    hosts = [entry.as_json() for entry in policy.sandbox.allow_hosts]
    sandbox = {one.name: getattr(policy.sandbox, one.name) for one in fields(SandboxSettings)}
    return {**plain, "rules": rules, "sandbox": {**sandbox, "masks": [*policy.sandbox.masks], "allow_hosts": hosts}}


def policy_of_json(data: JsonObject) -> Policy:
    """The policy that was written.

    Raises:
        PolicyError: it is not what `policy_as_json` gives.
    """
    try:
        plain = {
            one.name: _writer(one.name).validate_python(data[one.name])
            for one in fields(Policy)
            if one.name not in _APART
        }
        rules = data["rules"]
        kinds = {kind: tuple(_rule_of_json(one, verdict) for one in rules[kind]) for kind, verdict in _KINDS.items()}
        sandbox = dict(data["sandbox"])
        hosts = tuple(map(entry_of_json, sandbox.pop("allow_hosts")))
        settings = SandboxSettings(**_settings({**sandbox, "masks": tuple(sandbox["masks"])}), allow_hosts=hosts)
        ruled = RuleSet(**kinds, read_only_commands=rules["read_only_commands"])
        return Policy(**plain, rules=ruled, sandbox=settings)
    except (KeyError, TypeError, AttributeError, ValueError, ValidationError) as exc:
        raise PolicyError(f"the policy of the bundle cannot be used: {type(exc).__name__}: {exc}") from exc


def _settings(sandbox: JsonObject) -> JsonObject:
    kinds = get_type_hints(SandboxSettings)
    for name, value in sandbox.items():
        TypeAdapter(kinds[name]).validate_python(value, strict=True)
        if isinstance(value, int | float) and value <= 0:
            raise ValueError(f"sandbox.{name}: limits are positive")
    return sandbox


def _rule_as_json(rule: Rule) -> JsonObject:
    return {name: getattr(rule, name) for name in _RULE}


def _rule_of_json(data: JsonObject, verdict: Verdict) -> Rule:
    known = {name: data[name] for name in ("reason", "id", "location")}
    return replace(parse_rule(data["text"], verdict, **known), layer=data["layer"])


@cache
def _writer(name: str) -> TypeAdapter[Any]:
    kinds: dict[str, Any] = {
        "name": str,
        "mode": Mode,
        "limits": Limits,
        "prices": tuple[tuple[str, Price], ...],
        "location": str,
        "servers": tuple[McpServer, ...],
        "host_servers": frozenset[str],
        "servers_locked_by": str | None,
        "loosest_mode": Mode | None,
        "allow_locked_by": str | None,
        "saved_rules": bool,
        "project_instructions": bool,
        "locks": tuple[tuple[str, str], ...],
        "sources": tuple[tuple[str, str], ...],
        "notes": tuple[str, ...],
        "files": tuple[Path, ...],
    }
    return TypeAdapter(kinds[name])
