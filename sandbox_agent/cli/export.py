"""`sandbox-agent export ID`: takes commits that were made inside out, as a bundle or as patches."""

from __future__ import annotations

from pathlib import Path

import click

from sandbox_agent import registry
from sandbox_agent.cli import complete


@click.command(
    name="export",
    epilog="\b\nExamples:\n  sandbox-agent export last --bundle work.bundle\n"
    "  sandbox-agent export last --patches patches/\n"
    "  sandbox-agent export last --repo libs/parser --bundle parser.bundle\n",
    short_help="Take commits made inside out, as a bundle or patches.",
)
@click.argument("session_id", metavar="ID", shell_complete=complete.sessions)
@click.option("--bundle", type=click.Path(path_type=Path), metavar="FILE", help="Write a git bundle.")
@click.option("--patches", type=click.Path(path_type=Path), metavar="DIR", help="Write one patch a commit of HEAD.")
@click.option("--repo", default="", metavar="PATH", help="A repository nested in the workspace.")
def COMMAND(session_id: str, bundle: Path | None, patches: Path | None, repo: str) -> int:
    """Take commits that session ID ("last" is the newest) made inside out; your own .git is never written.

    git runs in a sandbox over the session's copy. Exit code 1 when there are no new commits.
    """
    if (bundle is None) == (patches is None):
        raise click.UsageError("give either --bundle FILE or --patches DIR")
    code: int = registry.load("cli", "export_run").run_export(session_id, bundle, patches, repo.strip("/"))
    return code
