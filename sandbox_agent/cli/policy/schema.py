"""`sandbox-agent policy schema`: the JSON Schema of a policy file, for editors."""

from __future__ import annotations

import click

from sandbox_agent.policy.published import json_schema_text


@click.command(
    name="schema",
    epilog="\b\nExample:\n  sandbox-agent policy schema > policy.schema.json\n\n"
    "\b\nThen begin a policy beside it with:\n  # yaml-language-server: $schema=./policy.schema.json\n",
    short_help="Print the JSON Schema of a policy file, for editors.",
)
def COMMAND() -> None:
    """Print the JSON Schema of a policy file: editors then complete keys and mark mistakes as you type."""
    click.echo(json_schema_text(), nl=False)
