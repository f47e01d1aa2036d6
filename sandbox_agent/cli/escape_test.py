"""`sandbox-agent escape-test`: try to get out of the sandbox, by some 250 ways, and say which are open."""

from __future__ import annotations

import click

from sandbox_agent import registry
from sandbox_agent.cli import complete


@click.command(
    name="escape-test",
    epilog="\b\nExamples:\n  sandbox-agent escape-test\n  sandbox-agent escape-test --compare\n"
    "  sandbox-agent escape-test --only network --policy untrusted\n  sandbox-agent escape-test --json | jq .open\n\n"
    "\b\nExit codes: 0 nothing is open but what is documented, 1 something is open or could not be tried,\n"
    "2 usage or configuration, 5 no usable engine.\n",
    short_help="Try to get out of the sandbox, and say which ways are open.",
)
@click.option(
    "--policy",
    metavar="NAME|FILE",
    shell_complete=complete.policies,
    help="The policy whose sandbox is tried. Default: that of a run.",
)
@click.option("--only", metavar="GROUP|ID", multiple=True, help="Only these probes; may be given several times.")
@click.option("--compare", is_flag=True, help="Also try what `docker run` makes by default, as a second column.")
@click.option("--control", is_flag=True, help="Also show, in weakened containers, that each probe can fail.")
@click.option("--list", "as_list", is_flag=True, help="List the probes; start nothing.")
@click.option("--json", "as_json", is_flag=True, help="One JSON document.")
@click.option(
    "--workspace-mode",
    type=click.Choice(["auto", "overlay", "copy"]),
    default="auto",
    show_default=True,
    help="How its folder comes into the container, as for run.",
)
def COMMAND(
    policy: str | None,
    only: tuple[str, ...],
    compare: bool,
    control: bool,
    as_list: bool,
    as_json: bool,
    workspace_mode: str,
) -> int:
    """Start a container as a session gets it, run small programs in it that try to get out or to do harm, and say what
    each one proves. Nothing is sent to anybody, and nothing outside the container is changed."""
    module = registry.load("cli", "escape_run")
    if as_list:
        listed: int = module.list_probes(only, as_json=as_json)
        return listed
    code: int = module.run_escape_test(
        policy=policy, only=only, compare=compare, control=control, as_json=as_json, workspace_mode=workspace_mode
    )
    return code
