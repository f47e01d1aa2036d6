"""The command line without an engine: help, usage errors, and what stdout carries then."""

from __future__ import annotations

import io
import json
import os
import re
import signal
import subprocess
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
from cli_calls import Ended, call

from sandbox_agent.cli import COMMANDS, cli
from sandbox_agent.cli.faults import wanted_output

PROGRAM = [sys.executable, "-c", "from sandbox_agent.cli import main; main()"]


def call_apart(*arguments: str, stdin: bytes = b"", **env: str) -> Ended:
    """Call it in a process of its own."""
    done = subprocess.run(
        [*PROGRAM, *arguments], input=stdin, capture_output=True, env={**os.environ, **env}, timeout=60, check=False
    )
    return Ended(done.returncode, done.stdout.decode(), done.stderr.decode())


def test_help_lists_every_command_and_has_examples() -> None:
    """`--help` is the way in."""
    code, out, err = call("--help")

    assert (code, err) == (0, "")
    assert all(f"\n  {name} " in out for name in COMMANDS)
    assert "Examples:" in out


@pytest.mark.parametrize("name", list(COMMANDS))
def test_each_command_has_help_with_its_one_line(name: str) -> None:
    """The table of the group and the commands themselves say the same."""
    code, out, err = call(name, "--help")
    command = cli.get_command(click.Context(cli), name)

    assert (code, err) == (0, "")
    assert out.startswith(f"Usage: sandbox-agent {name} ")
    assert command is not None
    assert command.short_help == COMMANDS[name][1]


def commands(group: click.Group, *names: str) -> Iterator[tuple[str, ...]]:
    """The names of every command and sub-command."""
    for name in group.list_commands(click.Context(group)):
        command = group.get_command(click.Context(group), name)
        yield (*names, name)
        if isinstance(command, click.Group):
            yield from commands(command, *names, name)


@pytest.mark.parametrize("names", list(commands(cli)), ids=" ".join)
def test_every_option_has_its_words_and_no_line_ends_in_blanks(names: tuple[str, ...]) -> None:
    """Of every command, as it is printed."""
    command: click.Command | None = cli
    for name in names:
        assert isinstance(command, click.Group)
        command = command.get_command(click.Context(command), name)
    assert command is not None

    assert [one.name for one in command.params if isinstance(one, click.Option) and not one.help] == []
    assert [line for line in call(*names, "--help").out.splitlines() if line != line.rstrip()] == []


@pytest.mark.parametrize("command", ["run", "replay"])
def test_an_example_that_records_names_a_file_outside_of_the_folder(command: str) -> None:
    """One inside is refused, and the folder is the current one."""
    named = re.findall(r"run --record (\S+)", call(command, "--help").out)

    assert named
    assert [name for name in named if not name.startswith("../")] == []


def test_help_imports_nothing_heavy() -> None:
    """`--help`, of the group and of `run`, needs neither rich nor pydantic nor an SDK."""
    code = (
        "import sys\nfrom sandbox_agent.cli import main\n"
        "for arguments in (['--help'], ['run', '--help'], ['demo', '--help'], ['doctor', '--help']):\n"
        "    try: main(arguments)\n    except SystemExit: pass\n"
        "heavy = {'rich', 'pydantic', 'docker', 'aiodocker', 'anthropic', 'mcp', 'yaml', 'anyio', 'asyncio'}\n"
        "print(sorted(heavy & set(sys.modules)), file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True, timeout=60)

    assert done.stderr.decode() == "[]\n"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["rnu"], "no such command 'rnu' (did you mean run?)"),
        (["fix the bug"], "no such command 'fix the bug' (to give a task, write: sandbox-agent run TASK)"),
        (["list"], "no such command 'list' (did you mean sandbox-agent sessions list?)"),
        (["run", "--modle", "x", "y"], "(did you mean --mode or --model?)"),
        (["run", "--permission-mode", "plan", "x"], "(did you mean --mode?)"),
        (["run", "--output-format=json", "x"], "(did you mean --output?)"),
        (["run", "--dangerously-skip-permissions", "x"], "(did you mean --mode bypassPermissions?)"),
        (["chat", "--output-format", "json"], "no such option '--output-format'; see: sandbox-agent chat --help"),
        (["-p", "x"], "no such option '-p' (to give a task, write: sandbox-agent run -p ... TASK)"),
        (["run", "-c"], "without one: `sandbox-agent resume`, or `sandbox-agent chat -c` to talk"),
        (["run", "--mode", "acceptedits", "x"], "'acceptEdits'"),
        (["run"], "missing argument 'TASK'"),
        (["run", "a", "b"], "got unexpected extra argument (b): put quotes around the words of a task;"),
        (["diff", "--json"], "missing argument 'ID'; see"),
        (["run", "-w", "/no/such/folder", "x"], "Directory '/no/such/folder' does not exist"),
        (["run", "--max-turns", "0", "x"], "0 is not in the range x>=1"),
        (["run", "--timeout", "0", "x"], "0.0 is not in the range x>0"),
        (["run", "   "], "the task is empty"),
        (["run", "-c", "--resume", "x", "y"], "-c and --resume exclude each other"),
        (["run", "--mode", "\x1b[2J", "y"], "\\x1b[2J"),
        (["apply", "x", "--all", "path"], "--all and paths exclude each other"),
        (["completion", "tcsh"], "'tcsh' is not one of 'bash', 'zsh', 'fish'"),
    ],
)
def test_a_usage_error_is_one_clear_line_and_exit_code_2(arguments: list[str], said: str) -> None:
    """What was wrong, near names, and where help is."""
    code, out, err = call(*arguments)

    assert (code, out) == (2, "")
    assert err.startswith("sandbox-agent: ")
    assert said in err
    assert err.endswith("--help\n")
    assert err.count("\n") == 1


@pytest.mark.parametrize("group", ["sessions", "policy", "mcp"])
def test_a_group_without_a_command_shows_its_help(group: str) -> None:
    """On stderr, line by line as --help has it."""
    assert call(group) == (2, "", call(group, "--help").out)


@pytest.mark.parametrize("output", ["json", "stream-json"])
def test_a_usage_error_is_a_json_document_where_json_was_asked_for(output: str) -> None:
    """Scripts read stdout whatever happens."""
    code, out, err = call("run", "--output", output, "--no-such-option", "x")
    document = json.loads(out)

    assert code == document["exit_code"] == 2
    assert (document["type"], document["status"], document["is_error"]) == ("result", "config_error", True)
    assert f"sandbox-agent: {document['error']}\n" == err


@pytest.mark.parametrize(
    ("stdin", "said"), [(b"", "the task is empty"), (b"\xff\xfe", "is not UTF-8"), (b"x" * 1_048_577, "is longer than")]
)
def test_a_task_on_standard_input_is_checked(stdin: bytes, said: str) -> None:
    """`-` takes UTF-8 text of at most 1 MiB."""
    code, _, err = call_apart("run", "-", stdin=stdin)

    assert code == 2
    assert said in err


@pytest.mark.parametrize("command", ["diff", "apply"])
def test_an_unknown_session_is_named(command: str, tmp_path: Path) -> None:
    """And the command that lists the known ones."""
    code, out, err = call_apart(command, "nosuch", XDG_STATE_HOME=str(tmp_path))

    assert (code, out) == (2, "")
    assert err == ("sandbox-agent: there is no session 'nosuch'; `sandbox-agent sessions list` shows those there are\n")


def test_without_sessions_the_list_is_empty(tmp_path: Path) -> None:
    """No header, no error."""
    assert call_apart("sessions", "list", XDG_STATE_HOME=str(tmp_path)) == (0, "", "")


def test_completion_prints_a_script_for_the_shell() -> None:
    """It names our variable, so the shell can ask us."""
    code, out, _ = call("completion", "zsh")

    assert code == 0
    assert "_SANDBOX_AGENT_COMPLETE" in out


@pytest.mark.parametrize(
    ("arguments", "output"),
    [
        (["run", "--output", "json", "x"], "json"),
        (["run", "--output=stream-json"], "stream-json"),
        (["run", "--output", "text", "--output", "json"], "json"),
        (["run", "--", "--output", "json"], None),
        (["run", "--output"], None),
        (["doctor", "--output", "json"], None),
    ],
)
def test_the_wanted_output_is_found_without_click(arguments: list[str], output: str | None) -> None:
    """click may have failed before it got that far."""
    assert wanted_output(arguments) == output


@pytest.mark.parametrize(
    ("number", "code", "status"), [(signal.SIGTERM, 143, "terminated"), (signal.SIGINT, 130, "interrupted")]
)
def test_a_signal_before_the_run_begins_is_a_document_too(number: int, code: int, status: str) -> None:
    """Here it comes while the task is read."""

    class Stdin(io.RawIOBase):
        def readable(self) -> bool:
            return True

        def readinto(self, _: object) -> int:
            signal.raise_signal(number)
            return 0

    stdin, handler = sys.stdin, signal.getsignal(signal.SIGTERM)
    sys.stdin = io.TextIOWrapper(io.BufferedReader(Stdin()))
    try:
        ended = call("run", "--output", "json", "-")
    finally:
        sys.stdin = stdin
        signal.signal(signal.SIGTERM, handler)
    document = json.loads(ended.out)

    assert ended.code == document["exit_code"] == code
    assert document["status"] == status
    assert ended.err.endswith(f"sandbox-agent: ended by {signal.Signals(number).name}\n")


def test_a_state_folder_that_cannot_be_is_one_line() -> None:
    """What the machine refuses is said with its path, and no trace."""
    ended = call_apart("sessions", "list", XDG_STATE_HOME=os.devnull)

    assert ended == (1, "", f"sandbox-agent: {os.devnull}/sandbox-agent: Not a directory\n")


def test_a_full_disk_behind_stdout_is_one_line() -> None:
    """As where the output is redirected into a file."""
    with open("/dev/full", "w") as full:
        command = [*PROGRAM, "policy", "schema"]
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, timeout=60, check=False)

    assert (done.returncode, done.stderr) == (1, b"sandbox-agent: No space left on device\n")


@pytest.mark.parametrize("closed", [">&-", "<&-", "<&- >&-"])
def test_a_closed_stream_is_the_null_device(closed: str) -> None:
    """The next file that is opened must not get its number."""
    script = (
        "import os, sys; from sandbox_agent.cli.streams import fill_closed; fill_closed(); print(); "
        "sys.stderr.write(f'{os.open(os.devnull, os.O_RDONLY) > 2} {None in (sys.stdin, sys.stdout)}')"
    )
    shell = ["sh", "-c", f'exec "$@" {closed}', "sh", sys.executable, "-c", script]
    done = subprocess.run(shell, capture_output=True, timeout=60, check=False)

    assert (done.returncode, done.stderr) == (0, b"True False")


def test_a_library_without_its_extra_says_nothing_to_people() -> None:
    """It did now and then, with a path of ours: two threads import at the same time at the start of a run."""
    with warnings.catch_warnings(record=True) as said:
        warnings.resetwarnings()
        call("--version")
        warnings.warn("SOCKS support in urllib3 requires the installation of PySocks", stacklevel=1)
        warnings.warn("something else", stacklevel=1)

    assert [str(one.message) for one in said] == ["something else"]
