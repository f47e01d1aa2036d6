"""`sandbox-agent reap`: removes what runs that were killed left at the engine."""

from __future__ import annotations

import os

import click

from sandbox_agent import registry


@click.command(
    name="reap",
    epilog="\b\nExample:\n  sandbox-agent reap\n",
    short_help="Remove containers that a killed run left behind.",
)
def COMMAND() -> int:
    """Remove containers, volumes, mounts and unchanged copies of sessions whose process no longer lives.

    Live sessions are left alone, and changes that nobody applied are kept.
    """
    code: int = registry.load("cli", "reap_run").run_reap(os.environ)
    return code
