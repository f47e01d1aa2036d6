"""What a shell offers for a session's ID and for a policy, besides names of commands and options."""

from __future__ import annotations

import click
from click.shell_completion import CompletionItem

from sandbox_agent import registry
from sandbox_agent.errors import SandboxAgentError

NEWEST = 50
"""How many sessions are offered."""


def sessions(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """ "last" and the newest IDs, in that order."""
    try:
        ids: list[str] = registry.load("cli", "kept").recorded_ids()
    except (OSError, SandboxAgentError):
        # Nobody asked for anything yet: a trace would land in what is being typed. The command itself says it.
        return []
    return [CompletionItem(one) for one in ("last", *ids[:NEWEST]) if one.startswith(incomplete)]


def policies(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """The shipped ones, or a file."""
    names: list[str] = registry.load("policy", "source").shipped_names()
    return [
        CompletionItem(incomplete, type="file"),
        *(CompletionItem(name) for name in names if name.startswith(incomplete)),
    ]
