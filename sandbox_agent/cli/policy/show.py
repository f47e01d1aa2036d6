"""`sandbox-agent policy show`: the merged policy of a run, and where each line of it comes from."""

from __future__ import annotations

import json
from pathlib import Path

import click

from sandbox_agent.cli import complete
from sandbox_agent.frontends.policy_view import lines, settings
from sandbox_agent.policy.layers import CommandLine
from sandbox_agent.policy.load import check_outside_workspace, run_policy
from sandbox_agent.policy.policy import Policy
from sandbox_agent.policy.rules import Rule
from sandbox_agent.types import Mode


@click.command(
    name="show",
    epilog="\b\nExamples:\n  sandbox-agent policy show\n  sandbox-agent policy show --policy ci --mode plan\n"
    "  sandbox-agent policy show --json | jq '.rules.deny[].location'\n",
    short_help="Show the merged policy of a run, and where each line comes from.",
)
@click.option(
    "--policy",
    metavar="NAME|FILE",
    shell_complete=complete.policies,
    help="As for run. Default: your own, else default.",
)
@click.option("--mode", type=click.Choice([mode.value for mode in Mode]), help="As for run.")
@click.option("--allow", metavar="RULE", multiple=True, help="As for run.")
@click.option("--deny", metavar="RULE", multiple=True, help="As for run.")
@click.option(
    "-w",
    "--workspace",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    help="Refuse a policy that lies in this folder, as run does.",
)
@click.option("--json", "as_json", is_flag=True, help="One JSON document.")
def COMMAND(
    policy: str | None,
    mode: str | None,
    allow: tuple[str, ...],
    deny: tuple[str, ...],
    workspace: Path | None,
    as_json: bool,
) -> None:
    """Show what applies to a run with these options: every layer merged, with file:line of each rule and setting."""
    options = CommandLine(allow=allow, deny=deny, mode=Mode(mode) if mode is not None else None)
    merged = run_policy(policy, options)
    if workspace is not None:
        check_outside_workspace(merged, workspace)
    if as_json:
        click.echo(json.dumps(_document(merged), indent=1))
        return
    for line in lines(merged):
        click.echo(line)


def _document(policy: Policy) -> dict[str, object]:
    sources = dict(policy.sources)
    return {
        "name": policy.name,
        "location": policy.location,
        "files": [str(file) for file in policy.files],
        "settings": {key: {"value": value, "location": sources.get(key)} for key, value in settings(policy)},
        "rules": {
            kind: [_rule(rule) for rule in rules]
            for kind, rules in (("deny", policy.rules.deny), ("ask", policy.rules.ask), ("allow", policy.rules.allow))
        },
        "hooks": [
            {
                "id": hook.id,
                "event": hook.event.value,
                "command": list(hook.command),
                "place": hook.place,
                "location": hook.location,
                "layer": hook.layer,
            }
            for hook in policy.hooks
        ],
        "lock": dict(policy.locks),
        "notes": list(policy.notes),
    }


def _rule(rule: Rule) -> dict[str, object]:
    return {
        "rule": rule.text,
        "id": rule.id,
        "reason": rule.reason,
        "location": rule.location,
        "layer": rule.layer,
    }
