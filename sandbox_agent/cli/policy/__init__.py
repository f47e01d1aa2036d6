"""`sandbox-agent policy`: understand a policy before a run depends on it. Each command is a module beside this one."""

from __future__ import annotations

import click

from sandbox_agent.cli.lazy import LazyGroup

COMMANDS = {
    "check": ("check", "Say whether policy files are right, and what is wrong where."),
    "show": ("show", "Show the merged policy of a run, and where each line comes from."),
    "explain": ("explain", "Say what a policy says of a call, and why."),
    "test": ("cases", "Run the unit tests of a policy."),
    "learn": ("learn", "Write the policy under which recorded runs would have passed."),
    "import": ("importing", "Take over permission lists of Claude Code's settings."),
    "schema": ("schema", "Print the JSON Schema of a policy file, for editors."),
}
"""Name to module and one line of help, so that listing the commands imports none of them."""


class PolicyGroup(LazyGroup):
    """The commands of the table, found in `sandbox_agent.cli.policy`."""

    table = COMMANDS
    room = "cli.policy"


@click.group(
    name="policy",
    cls=PolicyGroup,
    epilog="\b\nExamples:\n  sandbox-agent policy check ./my-policy.yaml\n  sandbox-agent policy show\n",
    short_help="Check and understand permission policies.",
)
def COMMAND() -> None:
    """Check and understand permission policies: what may run unasked, what is asked, what is denied."""
