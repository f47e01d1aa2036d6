"""`sandbox-agent run`: the options. What they do is in `execute.py`, imported only when a task really runs."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from sandbox_agent import registry
from sandbox_agent.cli import complete
from sandbox_agent.cli.faults import catch_sigterm
from sandbox_agent.config import DEFAULT_MODEL
from sandbox_agent.types import Mode

MAX_TASK_BYTES = 1024 * 1024

EPILOG = """\b
Examples:
  sandbox-agent run "Fix the failing test" -w ./project
  sandbox-agent run --allow "Bash(pytest:*)" --apply always "Make the tests pass"
  sandbox-agent run --repeat 5 --check "pytest -q" --output json "Fix the bug" | jq .pass_rate
  git diff | sandbox-agent run -p -
  sandbox-agent run --check "pytest -q" --check-files "tests/**" --apply always "Fix the bug"
  sandbox-agent run --record ../run.bundle "Fix the failing test"
  sandbox-agent run -p --report junit=junit.xml --report html=session.html "Fix the bug"
  sandbox-agent run -p --output json "What does this project do?" | jq -r .result

\b
Exit codes: 0 done, 1 the task or a check failed, 2 usage or configuration, 3 done but permissions were denied,
4 a limit was hit, 5 the sandbox is unavailable or died, 6 model error, 7 replay mismatch,
130 and 143 ended by a signal, 141 whoever read the output went away.
"""


@click.command(name="run", epilog=EPILOG, short_help="Give an agent a task on a folder.")
@click.argument("task")
@click.option(
    "-w",
    "--workspace",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    default=".",
    help="The folder to work on. Default: the current directory.",
)
@click.option(
    "--policy",
    metavar="NAME|FILE",
    shell_complete=complete.policies,
    help="A shipped policy or a policy file. Default: your own, else default.",
)
@click.option(
    "--mode", type=click.Choice([mode.value for mode in Mode]), help="Permission mode. Default: the policy's."
)
@click.option("--allow", metavar="RULE", multiple=True, help='Allow what fits, as "Bash(pytest:*)". Repeatable.')
@click.option("--deny", metavar="RULE", multiple=True, help="Deny what fits; wins over every allow. Repeatable.")
@click.option(
    "--model",
    metavar="KIND:NAME",
    default=DEFAULT_MODEL,
    show_default=True,
    help="anthropic:NAME, or script:FILE for a scripted model that needs no key.",
)
@click.option(
    "--fallback-model",
    metavar="anthropic:NAME",
    help="Asked for the rest of a run when the model stays overloaded, is not known, or refuses. Default: none.",
)
@click.option("--image", metavar="NAME", help="The container's image. Default: the policy's.")
@click.option(
    "--workspace-mode",
    type=click.Choice(["auto", "overlay", "copy", "bind"]),
    default="auto",
    show_default=True,
    help="overlay, copy: your folder gets only what you apply. bind: change it directly. auto: overlay, else copy.",
)
@click.option(
    "--apply",
    type=click.Choice(["ask", "always", "never"]),
    help="What becomes of the changes. Default: ask, with -p never.",
)
@click.option(
    "--project-instructions/--no-project-instructions",
    "project_instructions",
    default=None,
    help="Give the model AGENTS.md and CLAUDE.md of the folder, as untrusted text. Default: the policy's.",
)
@click.option(
    "--check",
    "checks",
    metavar="CMD",
    multiple=True,
    help="Afterwards, in a clean container on the result, this must end with 0. Repeatable.",
)
@click.option(
    "--check-files",
    metavar="PATTERN",
    multiple=True,
    help="What the checks get as it was before the run, as 'tests/**'. Repeatable.",
)
@click.option(
    "--check-timeout",
    "check_timeout_s",
    metavar="S",
    type=click.FloatRange(min=0, min_open=True),
    default=600.0,
    show_default=True,
    help="At most so many seconds for each check.",
)
@click.option("--max-turns", metavar="N", type=click.IntRange(min=1), help="At most so many model requests.")
@click.option(
    "--timeout", "timeout_s", metavar="S", type=click.FloatRange(min=0, min_open=True), help="At most so many seconds."
)
@click.option("--max-tokens", metavar="N", type=click.IntRange(min=1), help="At most so many tokens, read and written.")
@click.option(
    "--max-cost",
    "max_cost_usd",
    metavar="USD",
    type=click.FloatRange(min=0, min_open=True),
    help="At most so many US dollars for the model; its price must be known.",
)
@click.option(
    "--mcp-config",
    metavar="FILE",
    multiple=True,
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="MCP servers for this run, in the form of .mcp.json. Repeatable.",
)
@click.option(
    "--record",
    metavar="FILE",
    type=click.Path(path_type=Path),
    help="Record the run as a bundle that `replay` can do once more. FILE is new, and outside of the folder.",
)
@click.option("--record-tree", is_flag=True, help="With --record: keep the folder in it also where it is large.")
@click.option(
    "--deterministic/--no-deterministic",
    default=True,
    help="With --record: pin time zone, hash seed, git's dates, and order Glob by name. Default: yes.",
)
@click.option("-p", "--print", "headless", is_flag=True, help="Headless: ask nobody; stdout carries the answer only.")
@click.option(
    "--output",
    type=click.Choice(["text", "json", "stream-json"]),
    help="What stdout carries; implies -p. Default with -p: text.",
)
@click.option(
    "--input",
    "input_format",
    type=click.Choice(["text", "stream-json"]),
    default="text",
    help="stream-json: TASK is -, and stdin has messages as JSON lines; goes with --output stream-json.",
)
@click.option(
    "--json-schema",
    "answer_schema",
    metavar="JSON|FILE",
    help="The answer has this form: structured_output of the result. Not given in time, the task has failed.",
)
@click.option(
    "--report",
    "report",
    metavar="KIND=FILE",
    multiple=True,
    help="Write html, markdown, junit or sarif at the end; sarif adds --allow ReportFindings. Repeatable.",
)
@click.option("-c", "--continue", "resume_last", is_flag=True, help="Go on with the newest session of this folder.")
@click.option("--resume", metavar="ID", shell_complete=complete.sessions, help="Go on with this session.")
@click.option(
    "--repeat",
    metavar="N",
    type=click.IntRange(min=1, max=1000),
    help="Run the task N times from the same tree, apply nothing, and say where the runs part.",
)
@click.option(
    "--jobs",
    metavar="K",
    type=click.IntRange(min=1, max=64),
    help="With --repeat: so many runs at a time. Default: 1.",
)
@click.option("-v", "--verbose", is_flag=True, help="Show thinking, whole outputs and whole diffs.")
def COMMAND(task: str, resume_last: bool, **options: object) -> int:
    """Give an agent a TASK on a folder. TASK - reads it from standard input, which is not read otherwise."""
    catch_sigterm()
    if resume_last:
        if options["resume"] is not None:
            raise click.UsageError("-c and --resume exclude each other")
        options["resume"] = "last"
    stdin_is_task = task == "-"
    text = read_task() if stdin_is_task and options["input_format"] == "text" else task
    if not text.strip():
        raise click.UsageError("the task is empty")
    code: int = registry.load("cli", "execute").run_task(text, stdin_is_task=stdin_is_task, **options)
    return code


def read_task() -> str:
    """The task from standard input: UTF-8, at most 1 MiB."""
    if sys.stdin.isatty():
        click.echo("Type the task, then Ctrl-D on a line of its own:", err=True)
    data = sys.stdin.buffer.read(MAX_TASK_BYTES + 1)
    if len(data) > MAX_TASK_BYTES:
        raise click.UsageError(f"the task on standard input is longer than {MAX_TASK_BYTES:,} bytes")
    try:
        return data.decode("utf-8").strip()
    except UnicodeDecodeError as exc:
        raise click.UsageError(f"the task on standard input is not UTF-8 (byte {exc.start})") from exc
