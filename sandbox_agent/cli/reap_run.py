"""What `reap` does: the same as every start of a session does, told line by line."""

from __future__ import annotations

from collections.abc import Mapping

import anyio
import click

from sandbox_agent.frontends.sanitise import sanitise
from sandbox_agent.sandboxes.endpoint import resolve_endpoint
from sandbox_agent.sandboxes.reap import reap


def run_reap(environ: Mapping[str, str]) -> int:
    """Remove what dead owners left, and name it.

    Raises:
        SandboxUnavailableError: no engine answers.
    """
    removed = anyio.run(reap, resolve_endpoint(environ))
    for name in removed:
        click.echo(f"removed {sanitise(name)}")
    if not removed:
        click.echo("Nothing to remove.")
    return 0
