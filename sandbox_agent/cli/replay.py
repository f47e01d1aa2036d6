"""`sandbox-agent replay FILE`: the options. What they do is in `replay_run.py`, imported when it is asked for."""

from __future__ import annotations

from pathlib import Path

import click

from sandbox_agent import registry
from sandbox_agent.cli.faults import catch_sigterm

EPILOG = """\b
Examples:
  sandbox-agent run --record run.bundle -p --apply never "Fix the failing test"
  sandbox-agent replay run.bundle
  sandbox-agent replay run.bundle --frozen
  sandbox-agent replay run.bundle -w ./project --json | jq .difference

\b
Exit codes: 0 the replay agrees, 2 usage or no such bundle, 5 the sandbox is unavailable, 7 it differs.
"""


@click.command(name="replay", epilog=EPILOG, short_help="Do a recorded run once more, and compare.")
@click.argument("file", metavar="FILE", type=click.Path(path_type=Path))
@click.option("--frozen", is_flag=True, help="Everything from the bundle: no container, no engine, no network.")
@click.option(
    "-w",
    "--workspace",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    help="The folder as it was at the beginning; it is not changed. Default: the bundle's own copy.",
)
@click.option("--json", "as_json", is_flag=True, help="The outcome as a JSON object on stdout.")
@click.option("-v", "--verbose", is_flag=True, help="Show the run while it is replayed, and what was not pinned.")
def COMMAND(file: Path, frozen: bool, workspace: Path | None, as_json: bool, verbose: bool) -> int:
    """Do the run in the bundle FILE once more and stop at the first difference, which is shown with both sides.

    The model's answers come from the bundle, so no key is needed. The tools really run, in a fresh container, unless
    --frozen says otherwise.
    """
    catch_sigterm()
    if frozen and workspace is not None:
        raise click.UsageError("--frozen looks at no folder; leave out -w")
    code: int = registry.load("cli", "replay_run").replay(
        file, frozen=frozen, workspace=workspace, as_json=as_json, verbose=verbose
    )
    return code
