"""`sandbox-agent replay FILE`: the options. What they do is in `replay_run.py`, imported when it is asked for."""

from __future__ import annotations

from pathlib import Path

import click

from sandbox_agent import registry
from sandbox_agent.cli.faults import catch_sigterm
from sandbox_agent.types import Mode

EPILOG = """\b
Examples:
  sandbox-agent run --record run.bundle -p --apply never "Fix the failing test"
  sandbox-agent replay run.bundle
  sandbox-agent replay run.bundle --frozen
  sandbox-agent replay run.bundle -w ./project --json | jq .difference
  sandbox-agent replay run.bundle --from 40 -w ./branch --model anthropic:claude-opus-5-5

\b
Exit codes: 0 the replay agrees, 2 usage or no such bundle, 5 the sandbox is unavailable, 7 it differs.
"""


@click.command(name="replay", epilog=EPILOG, short_help="Do a recorded run once more, and compare.")
@click.argument("file", metavar="FILE", type=click.Path(path_type=Path))
@click.option("--frozen", is_flag=True, help="Everything from the bundle: no container, no engine, no network.")
@click.option(
    "-w",
    "--workspace",
    type=click.Path(file_okay=False, path_type=Path),
    help="The folder as it was at the beginning; it is not changed. Default: the bundle's own copy. With --from: the "
    "folder that is made for the branch.",
)
@click.option(
    "--from",
    "step",
    metavar="STEP",
    type=click.IntRange(min=0),
    help="Begin a session with conversation and tree as of this step, and go on for real.",
)
@click.option("--model", metavar="KIND:NAME", help="With --from: the model that goes on. Default: as for `run`.")
@click.option("--policy", metavar="NAME|FILE", help="With --from: the policy. Default: as for `run`.")
@click.option("--mode", type=click.Choice([mode.value for mode in Mode]), help="With --from: the permission mode.")
@click.option("--allow", metavar="RULE", multiple=True, help="With --from: allow what fits. Repeatable.")
@click.option("--json", "as_json", is_flag=True, help="The outcome as a JSON object on stdout.")
@click.option("-v", "--verbose", is_flag=True, help="Show the run while it is replayed, and what was not pinned.")
def COMMAND(
    file: Path, frozen: bool, workspace: Path | None, as_json: bool, verbose: bool, step: int | None, **branch: object
) -> int:
    """Do the run in the bundle FILE once more and stop at the first difference, which is shown with both sides.

    The model's answers come from the bundle, so no key is needed. The tools really run, in a fresh container, unless
    --frozen says otherwise. With --from nothing is compared: a new session goes on from that step, with a model that is
    asked, and its changes are kept for `apply`.
    """
    catch_sigterm()
    if step is not None:
        if frozen or as_json or workspace is None:
            raise click.UsageError(
                "--from goes with -w DIR, a folder that does not exist yet, and not with --frozen or --json"
            )
        made: int = registry.load("cli", "branch_run").go_on(file, step, workspace, verbose=verbose, **branch)
        return made
    if any(branch.values()):
        raise click.UsageError(
            "--model, --policy, --mode and --allow go with --from: a replay has those of the recording"
        )
    if workspace is not None and not workspace.is_dir():
        raise click.UsageError(f"-w {workspace}: is no folder")
    if frozen and workspace is not None:
        raise click.UsageError("--frozen looks at no folder; leave out -w")
    code: int = registry.load("cli", "replay_run").replay(
        file, frozen=frozen, workspace=workspace, as_json=as_json, verbose=verbose
    )
    return code
