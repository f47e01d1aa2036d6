"""What `reap` does: the same as every start of a session does, told line by line."""

from __future__ import annotations

from collections.abc import Mapping

import anyio
import click

from sandbox_agent.engine.reaping import reap_workspaces
from sandbox_agent.frontends.sanitise import sanitise
from sandbox_agent.sandboxes.endpoint import resolve_endpoint
from sandbox_agent.sandboxes.reap import reap


def run_reap(environ: Mapping[str, str]) -> int:
    """Remove what dead owners left, and name it.

    Raises:
        SandboxUnavailableError: no engine answers.
    """
    endpoint = resolve_endpoint(environ)
    removed = anyio.run(reap, endpoint)
    found = anyio.run(reap_workspaces, endpoint)
    removed += [f"what session {name} kept of its folder" for name in found.removed]
    for name in removed:
        click.echo(f"removed {sanitise(name)}")
    for name in found.kept:
        click.echo(f"kept the changes of session {name}, which nobody applied: sandbox-agent diff {name}")
    for text in found.failed:
        click.echo(f"not removed: {sanitise(text)}", err=True)
    if not removed:
        click.echo("Nothing to remove.")
    return 1 if found.failed else 0
