"""`sandbox-agent policy explain`: what a policy says of one call, part by part, and what would allow it."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator

import click
from rich.text import Text

from sandbox_agent.cli import complete
from sandbox_agent.errors import ConfigError
from sandbox_agent.frontends.printer import Printer, make_console
from sandbox_agent.frontends.sanitise import sanitise
from sandbox_agent.policy.call_text import command_request, parse_call
from sandbox_agent.policy.explain import Explanation, Part, explain
from sandbox_agent.policy.layers import CommandLine
from sandbox_agent.policy.load import run_policy
from sandbox_agent.policy.policy import Policy
from sandbox_agent.types import WORKSPACE_MOUNT, Decision, Mode, Verdict

NOT_ALLOWED = 3
MAX_COMMAND_BYTES = 1024 * 1024
_COLOURS = {Verdict.ALLOW: "green", Verdict.ASK: "yellow", Verdict.DENY: "red"}


@click.command(
    name="explain",
    epilog="\b\nExamples:\n  sandbox-agent policy explain 'Bash(git log | head)'\n"
    "  sandbox-agent policy explain 'Edit(src/a.py)' --mode acceptEdits --policy ./my-policy.yaml\n"
    "  sandbox-agent policy explain --json - < build.sh | jq .would_allow\n\n"
    "\b\nExit codes: 0 it is allowed, 2 it is no call or the policy is wrong, 3 it is asked or denied.\n",
    short_help="Say what a policy says of a call, and why.",
)
@click.argument("call", metavar="CALL", default="-")
@click.option(
    "--policy",
    metavar="NAME|FILE",
    shell_complete=complete.policies,
    help="As for run. Default: your own, else default.",
)
@click.option("--mode", type=click.Choice([mode.value for mode in Mode]), help="Default: the policy's.")
@click.option("--allow", metavar="RULE", multiple=True, help="As for run. Repeatable.")
@click.option("--deny", metavar="RULE", multiple=True, help="As for run. Repeatable.")
@click.option("--cwd", metavar="DIR", default=WORKSPACE_MOUNT, show_default=True, help="Where the call starts.")
@click.option("--json", "as_json", is_flag=True, help="One JSON document.")
def COMMAND(
    call: str,
    policy: str | None,
    mode: str | None,
    allow: tuple[str, ...],
    deny: tuple[str, ...],
    cwd: str,
    as_json: bool,
) -> int:
    """Explain what the policy says of CALL: Bash(COMMAND), Read(PATH), or any tool's name. CALL - is a shell command
    on standard input, as it is."""
    if not cwd.startswith("/"):
        raise click.UsageError("--cwd is a folder of the container and begins with /")
    options = CommandLine(allow=allow, deny=deny, mode=Mode(mode) if mode else None)
    request = command_request(_command(), cwd=cwd) if call == "-" else parse_call(call, cwd=cwd)
    judged_by = run_policy(policy, options)
    found = explain(judged_by, request, judged_by.mode)
    if as_json:
        document = {"policy": judged_by.name, "policy_location": judged_by.location, **found.as_json()}
        click.echo(json.dumps(document, indent=1))
    else:
        _show(judged_by, found)
    return 0 if found.decision.verdict is Verdict.ALLOW else NOT_ALLOWED


def _command() -> str:
    if sys.stdin.isatty():
        click.echo("Type the command, then Ctrl-D on a line of its own:", err=True)
    data = sys.stdin.buffer.read(MAX_COMMAND_BYTES + 1)
    if len(data) > MAX_COMMAND_BYTES:
        raise ConfigError(f"the command on standard input is longer than {MAX_COMMAND_BYTES:,} bytes")
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as exc:
        raise ConfigError(f"the command on standard input is not UTF-8 (byte {exc.start})") from exc
    if not text.strip():
        raise ConfigError("there is no command on standard input; give the call as an argument, as in 'Bash(ls)'")
    return text.removesuffix("\n")


def _show(policy: Policy, found: Explanation) -> None:
    printer = Printer(make_console(sys.stdout))
    decision = found.decision
    printer.line(
        Text.assemble(
            (decision.verdict.name.lower(), f"bold {_COLOURS[decision.verdict]}"),
            f"  by policy {sanitise(policy.name)} ({sanitise(policy.location)}) in mode {found.mode.value}",
        )
    )
    printer.line(f"  because: {_because(decision)}")
    if found.parts:
        printer.line("parts:")
        for part in found.parts:
            for line in _part_lines(part):
                printer.line(line)
    for allowing in _allowing_lines(found):
        printer.line(allowing)
    if (found.request.subject.command is None and found.request.subject.paths) or any(
        part.reads or part.writes for part in found.parts
    ):
        printer.line("Paths are judged as they are written; a run follows links in the container as well.", "dim")


def _because(decision: Decision) -> str:
    place = ", ".join(sanitise(part) for part in (decision.rule, decision.location) if part)
    return " ".join(sanitise(decision.reason).split()) + (f" (rule {place})" if place else "")


def _part_lines(part: Part) -> Iterator[Text]:
    verdict = part.decision.verdict
    stands = [f"line {part.line}"] if part.line > 1 else []
    stands += [f"in a {name}" if name[0] not in "aeiou" else f"in an {name}" for name in part.inside]
    stands += [f"run by {sanitise(part.via)}"] if part.via else []
    stands += ["may be run"] if part.possible else []
    yield Text.assemble(
        "  ",
        (f"{verdict.name.lower():<5}", _COLOURS[verdict]),
        f"  {sanitise(part.source)}",
        (f"  ({', '.join(stands)})" if stands else "", "dim"),
    )
    if part.words and " ".join(part.words) != part.source:
        yield Text(f"           words: {sanitise(' | '.join(part.words))}", "dim")
    yield Text(f"           {_because(part.decision)}")
    for name, paths in (("reads", part.reads), ("writes", part.writes)):
        if paths:
            yield Text(f"           {name}: {sanitise(', '.join(paths))}", "dim")


def _allowing_lines(found: Explanation) -> Iterator[str]:
    if found.would_allow:
        yield "what would allow it:"
        yield from (f"  {sanitise(rule)}" for rule in found.would_allow)
    elif found.why_none is not None:
        yield f"what would allow it: nothing: {' '.join(sanitise(found.why_none).split())}"
