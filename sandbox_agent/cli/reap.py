"""`sandbox-agent reap`: removes what runs that were killed left at the engine."""

from __future__ import annotations

import click

from sandbox_agent import registry


@click.command(
    name="reap",
    epilog="\b\nExamples:\n  sandbox-agent reap --dry-run\n  sandbox-agent reap\n",
    short_help="Remove containers that a killed run left behind.",
)
@click.option("--dry-run", is_flag=True, help="Only say what would be removed.")
def COMMAND(dry_run: bool) -> int:  # noqa: N802 - the name LazyGroup looks for
    """Remove the containers and volumes of sessions whose process no longer lives. Running sessions are left alone."""
    code: int = registry.load("cli", "reap_run").run_reap(dry_run=dry_run)
    return code
