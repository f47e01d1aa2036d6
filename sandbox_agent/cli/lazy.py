"""A click group that imports a command's module only when that command is asked for.

Listing commands needs their names and one line each, so those are in the group's table; `--help` stays quick.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping

import click

from sandbox_agent import registry


class LazyGroup(click.Group):
    """A group whose commands live in `sandbox_agent.<room>.<module>` as `COMMAND`.

    `table` has a command's name, its module and its one line of help. `task_hint` answers a name that is a sentence;
    `elsewhere` has words for what another command does.
    """

    table: Mapping[str, tuple[str, str]] = {}
    room = "cli"
    task_hint: str | None = None
    elsewhere: Mapping[str, str] = {}

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """As click does, but with no words at all the help goes to stderr: nothing was asked for."""
        if not args and not ctx.resilient_parsing:
            click.echo(ctx.get_help(), err=True)
            ctx.exit(2)
        return super().parse_args(ctx, args)

    def list_commands(self, ctx: click.Context) -> list[str]:
        """The names, in the order of the table."""
        return list(self.table)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import the command's module; None for an unknown name."""
        if cmd_name not in self.table:
            return None
        command: click.Command = registry.load(self.room, self.table[cmd_name][0]).COMMAND
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """As click does, but an unknown name is answered with near ones."""
        name = args[0]
        if name not in self.table and not name.startswith("-"):
            near = difflib.get_close_matches(name, self.table, n=2)
            hint = f"did you mean {' or '.join(near)}?" if near else f"commands are {', '.join(self.table)}"
            if name in self.elsewhere:
                hint = f"did you mean {ctx.command_path} {self.elsewhere[name]}?"
            if " " in name and self.task_hint is not None:
                hint = self.task_hint
            raise click.UsageError(f"no such command {name!r} ({hint})", ctx)
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """List the commands without importing them."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, text) for name, (_, text) in self.table.items()])
