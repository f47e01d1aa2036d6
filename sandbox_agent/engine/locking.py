"""The lock of a bundle: what a run was made of, so that a replay can be made of the same; and what was not pinned.

A run of which that cannot be said is not recorded, and the refusal says why.
"""

from __future__ import annotations

import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cache

from pydantic import TypeAdapter, ValidationError

from sandbox_agent import __version__
from sandbox_agent.config import RunConfig
from sandbox_agent.engine.agent_types import AgentType
from sandbox_agent.errors import ConfigError, PolicyError, ReplayMismatchError
from sandbox_agent.policy.policy import Policy
from sandbox_agent.policy.servers import McpServer, Place
from sandbox_agent.policy.written import policy_as_json, policy_of_json
from sandbox_agent.records.bundle import VERSION
from sandbox_agent.types import JsonObject


def environment_of(epoch_unix_s: int) -> dict[str, str]:
    """The variables that the profile gives the tools."""
    epoch = str(epoch_unix_s)
    return {
        "TZ": "UTC",
        "LANG": "C.UTF-8",
        "LC_ALL": "C.UTF-8",
        "PYTHONHASHSEED": "0",
        "SOURCE_DATE_EPOCH": epoch,
        "GIT_AUTHOR_DATE": f"@{epoch} +0000",
        "GIT_COMMITTER_DATE": f"@{epoch} +0000",
    }


PINNED = (
    "image (by its ID)",
    "policy, limits, agent types",
    "time zone and locale",
    "host name and user name in the container",
    "PYTHONHASHSEED, SOURCE_DATE_EPOCH, git's dates",
    "order of Glob (by name)",
    "order of the calls of all agents",
)


def not_pinned(policy: Policy, *, deterministic: bool) -> list[str]:
    """What can make a replay differ although nothing was changed."""
    found = [
        "the clock (times in results are noise, what a program makes of them is not)",
        "random numbers of programs",
    ]
    if not deterministic:
        found.append("time zone, PYTHONHASHSEED, SOURCE_DATE_EPOCH, git's dates, order of Glob (--no-deterministic)")
    if policy.sandbox.allow_hosts:
        found.append(f"the network: {len(policy.sandbox.allow_hosts)} hosts can be reached")
    found += [f"the MCP server {server.name}, but for what it answers" for server in policy.servers]
    found.append("how far jobs in the background have come when somebody looks")
    return found


def lock_of(
    config: RunConfig,
    policy: Policy,
    types: Mapping[str, AgentType],
    servers: Sequence[McpServer],
    *,
    approver: bool,
    ask: bool,
    hooks: bool,
    tools: bool,
) -> JsonObject:
    """The lock of a run that begins, as far as it is known by now.

    Raises:
        ConfigError: such a run cannot be recorded yet.
    """
    why = _why_not(config, policy, servers, hooks=hooks, tools=tools)
    if why is not None:
        raise ConfigError(f"--record: {why}")
    policy = replace(policy, servers=tuple(servers))
    epoch = int(time.time())
    return {
        "version": VERSION,
        "made_by": __version__,
        "recorded_unix_s": epoch,
        "model": config.model,
        "fallback": config.fallback_model,
        "policy": policy_as_json(policy),
        "types": _types().dump_python(dict(types), mode="json"),
        "approver": approver,
        "ask": ask,
        "answer_schema": config.answer_schema,
        "uid": os.getuid(),
        "deterministic": config.deterministic,
        "environment": environment_of(epoch) if config.deterministic else {},
        "pinned": list(PINNED) if config.deterministic else list(PINNED[:2]),
        "not_pinned": not_pinned(policy, deterministic=config.deterministic),
    }


def policy_in(lock: JsonObject) -> Policy:
    """The policy of a lock. A bundle comes from anywhere: what no recording has in it is refused.

    Raises:
        ReplayMismatchError: it cannot be used, or would have something run outside of the session's container.
    """
    try:
        policy = policy_of_json(lock["policy"])
    except (KeyError, TypeError, PolicyError) as exc:
        raise ReplayMismatchError(f"step 0: the policy of the bundle cannot be used: {exc}", step=0) from exc
    outside = _outside(policy.servers)
    if outside:
        why = f"MCP servers outside of the session's container, which no recording has: {outside}"
        raise ReplayMismatchError(f"step 0: the policy of the bundle names {why}", step=0)
    return policy


def types_in(lock: JsonObject) -> Mapping[str, AgentType]:
    """The types of sub-agents of a lock.

    Raises:
        ReplayMismatchError: they cannot be used.
    """
    try:
        return _types().validate_python(lock["types"])
    except (KeyError, ValidationError) as exc:
        raise ReplayMismatchError(f"step 0: the agent types of the bundle cannot be used: {exc}", step=0) from exc


def _why_not(
    config: RunConfig, policy: Policy, servers: Sequence[McpServer], *, hooks: bool, tools: bool
) -> str | None:
    if config.resume is not None:
        return "a recording begins with a new session, not with one that is gone on with"
    if policy.hooks or hooks:
        return "a run with hooks cannot be recorded yet; use a policy without them"
    if tools:
        return "a run with tools of the program cannot be recorded yet"
    outside = _outside(servers)
    if outside:
        return f"a run with MCP servers outside of the session's container cannot be recorded yet: {outside}"
    return None


def _outside(servers: Sequence[McpServer]) -> str:
    """The names of those that are not in the session's container."""
    return ", ".join(one.name for one in servers if one.place is not Place.SESSION or not one.command or one.url)


@cache
def _types() -> TypeAdapter[dict[str, AgentType]]:
    return TypeAdapter(dict[str, AgentType])
