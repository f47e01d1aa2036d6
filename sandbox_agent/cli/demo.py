"""`sandbox-agent demo`: a scripted model fixes a real bug in a small project, in a container, without a key. With
`--attack` it is made to do what a hostile repository says."""

from __future__ import annotations

from pathlib import Path

import click

from sandbox_agent import registry


@click.command(
    name="demo",
    epilog="\b\nExamples:\n  sandbox-agent demo\n  sandbox-agent demo --keep ./fixed\n"
    "  sandbox-agent demo --model anthropic:claude-sonnet-5-5\n"
    "  sandbox-agent demo --attack\n  sandbox-agent demo --attack --json | jq '.attempts[] | select(.held | not)'\n\n"
    "\b\nExit codes of --attack: 0 every attempt was held and nothing reached the machine, 1 not so,\n"
    "2 usage or configuration, 5 no usable engine.\n",
    short_help="Watch a scripted model fix a real bug in a container; needs no key.",
)
@click.option(
    "--keep", metavar="DIR", type=click.Path(path_type=Path), help="Leave the project (and the sessions of --attack)."
)
@click.option("--model", metavar="KIND:NAME", help="Another model than the script that comes with the demo.")
@click.option("--attack", is_flag=True, help="A hostile repository instead, and a model that falls for everything.")
@click.option("--only", metavar="ID", multiple=True, help="With --attack: only this attempt; may be given again.")
@click.option("--json", "as_json", is_flag=True, help="With --attack: one JSON document.")
@click.option("-v", "--verbose", is_flag=True, help="Show whole outputs and diffs.")
def COMMAND(
    keep: Path | None, model: str | None, attack: bool, only: tuple[str, ...], as_json: bool, verbose: bool
) -> int:
    """Copy a small project with failing tests, let an agent fix it in a container, apply, and show the diff.

    With --attack: plant a repository that attacks whoever opens it, let a scripted model fall for all of it, under the
    policy `untrusted` and then without any rule, and show what became of every attempt and what reached this machine.
    """
    if attack:
        if model is not None or verbose:
            raise click.UsageError("--attack takes --keep, --only and --json; its model is always the same script")
        held: int = registry.load("cli.attack", "run").run_attack(keep=keep, only=only, as_json=as_json)
        return held
    if only or as_json:
        raise click.UsageError("--only and --json belong to --attack")
    code: int = registry.load("cli", "demo_run").run_demo(keep=keep, model=model, verbose=verbose)
    return code
