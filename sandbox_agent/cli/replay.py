"""`sandbox-agent replay FILE`: the options. What they do is in `replay_run.py`, imported when it is asked for."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from pathlib import Path

import click

from sandbox_agent import registry
from sandbox_agent.cli.faults import catch_sigterm
from sandbox_agent.cli.run import COMMAND as RUN

EPILOG = """\b
Examples:
  sandbox-agent run --record ../run.bundle -p --apply never "Fix the failing test"
  sandbox-agent replay ../run.bundle
  sandbox-agent replay ../run.bundle --frozen
  sandbox-agent replay ../run.bundle -w ./project --json | jq .difference
  sandbox-agent replay ../run.bundle --from 40 -w ./branch --model anthropic:claude-opus-5-5 --policy ./mine.yaml

\b
Exit codes: 0 the replay agrees, 2 usage or no such bundle, 5 the sandbox is unavailable, 7 it differs.
With --from: as of sandbox-agent run.
"""


_OF_RUN = (
    "model",
    "fallback_model",
    "policy",
    "mode",
    "allow",
    "deny",
    "image",
    "mcp_config",
    "max_turns",
    "max_tokens",
    "max_cost_usd",
    "timeout_s",
)
"""Options of `run` that a branch takes."""


def _branch_options() -> Iterator[click.Option]:
    for parameter in RUN.params:
        if parameter.name in _OF_RUN and isinstance(parameter, click.Option):
            option = copy.copy(parameter)
            option.default, option.show_default = None, False
            default = " Default: the recorded one." if option.name == "image" else ""
            option.help = f"With --from: as for run.{default}"
            yield option


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
@click.option("--network", is_flag=True, help="Let a live replay reach the hosts that the recorded run could reach.")
@click.option(
    "--from",
    "step",
    metavar="STEP",
    type=click.IntRange(min=0),
    help="Begin a session with conversation and tree as of this step, and go on for real.",
)
@click.option("--json", "as_json", is_flag=True, help="The outcome as a JSON object on stdout.")
@click.option("-v", "--verbose", is_flag=True, help="Show the run while it is replayed, and what was not pinned.")
def COMMAND(
    file: Path,
    frozen: bool,
    workspace: Path | None,
    network: bool,
    as_json: bool,
    verbose: bool,
    step: int | None,
    **branch: object,
) -> int:
    """Do the run in the bundle FILE once more and stop at the first difference, which is shown with both sides.

    The model's answers come from the bundle, so no key is needed. The tools really run, in a fresh container, unless
    --frozen says otherwise. With --from nothing is compared: a new session goes on from that step, with a model that is
    asked, and its changes are kept for `apply`.
    """
    catch_sigterm()
    if step is not None:
        if frozen or as_json or network or workspace is None:
            raise click.UsageError(
                "--from goes with -w DIR, a folder that does not exist yet, and not with --frozen, --network or --json"
            )
        made: int = registry.load("cli", "branch_run").go_on(file, step, workspace, verbose=verbose, **branch)
        return made
    given = [option.opts[0] for option in COMMAND.params if branch.get(str(option.name))]
    if given:
        raise click.UsageError(f"{', '.join(given)}: goes with --from; a replay has what the recording had")
    if workspace is not None and not workspace.is_dir():
        raise click.UsageError(f"-w {workspace}: is no folder")
    if frozen and (workspace is not None or network):
        raise click.UsageError("--frozen looks at no folder and reaches no host; leave out -w and --network")
    code: int = registry.load("cli", "replay_run").replay(
        file, frozen=frozen, workspace=workspace, network=network, as_json=as_json, verbose=verbose
    )
    return code


COMMAND.params += _branch_options()
