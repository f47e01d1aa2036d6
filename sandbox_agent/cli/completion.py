"""`sandbox-agent completion SHELL`: the script that teaches a shell our commands and options."""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class


@click.command(
    name="completion",
    epilog="""\b
Examples, in ~/.bashrc, ~/.zshrc, ~/.config/fish/config.fish:
  eval "$(sandbox-agent completion bash)"
  eval "$(sandbox-agent completion zsh)"
  sandbox-agent completion fish | source
""",
    short_help="Print the completion script of your shell.",
)
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@click.pass_context
def COMMAND(ctx: click.Context, shell: str) -> int:
    """Print the completion script for SHELL."""
    script = get_completion_class(shell)
    assert script is not None
    click.echo(script(ctx.find_root().command, {}, "sandbox-agent", "_SANDBOX_AGENT_COMPLETE").source())
    return 0
