"""`sandbox-agent demo`: a scripted model fixes a real bug in a small project, in a container, without a key."""

from __future__ import annotations

from pathlib import Path

import click

from sandbox_agent import registry


@click.command(
    name="demo",
    epilog="\b\nExamples:\n  sandbox-agent demo\n  sandbox-agent demo --keep ./fixed\n"
    "  sandbox-agent demo --model anthropic:claude-sonnet-5-5\n",
    short_help="Watch a scripted model fix a real bug in a container; needs no key.",
)
@click.option("--keep", metavar="DIR", type=click.Path(path_type=Path), help="Leave the fixed project in DIR (new).")
@click.option("--model", metavar="KIND:NAME", help="Another model than the script that comes with the demo.")
@click.option("-v", "--verbose", is_flag=True, help="Show whole outputs and diffs.")
def COMMAND(keep: Path | None, model: str | None, verbose: bool) -> int:
    """Copy a small project with failing tests, let an agent fix it in a container, apply, and show the diff."""
    code: int = registry.load("cli", "demo_run").run_demo(keep=keep, model=model, verbose=verbose)
    return code
