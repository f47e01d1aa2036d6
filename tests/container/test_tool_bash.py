"""Bash in a real container: what carries over, how calls end, and that nothing is claimed that is not so."""

from __future__ import annotations

import base64
import json
import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from tool_box import ToolBox, refused, said, started

from sandbox_agent.sandboxes.base import MIB
from sandbox_agent.tools.bash import TOOL as BASH
from sandbox_agent.tools.grep import TOOL as GREP
from sandbox_agent.tools.read import TOOL as READ

pytestmark = pytest.mark.docker


@pytest.fixture(scope="module")
async def box(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[ToolBox]:
    async with started(tmp_path_factory.mktemp("bash")) as box:
        yield box


@pytest.mark.parametrize(
    ("command", "text"),
    [
        ("echo hello", "hello\nExit code: 0"),
        ("true", "(no output)\nExit code: 0"),
        ("git init -q r && cd r && git add -A && cd ..", "(no output)\nExit code: 0"),
        ("echo out; echo err >&2; echo out", "out\nerr\nout\nExit code: 0"),
        ("printf ' a\\n\\n b'", " a\n\n b\nExit code: 0"),
        ("echo $0 $#", "bash 0\nExit code: 0"),
        ("set -x; echo a", "+ echo a\na\nExit code: 0"),
        ("[ -t 0 ] || [ -t 1 ] || echo none", "none\nExit code: 0"),
        ("", "(no output)\nExit code: 0"),
        ("# only a comment", "(no output)\nExit code: 0"),
        ("cat <<X\nhere\nX", "here\nExit code: 0"),
        ("exec echo gone", "gone\nExit code: 0"),
        ("exec 9>&1; echo nine >&9", "nine\nExit code: 0"),
    ],
)
async def test_output_comes_as_written_with_the_exit_code(box: ToolBox, command: str, text: str) -> None:
    """Both streams in write order, a placeholder for nothing, and never a claim of success."""
    result = await box.bash(command)
    assert (result.content, result.is_error) == (text, False)


@pytest.mark.parametrize(
    ("command", "code", "part"),
    [
        ("exit 3", 3, "Exit code: 3"),
        ("echo hi | grep nothing", 1, "Exit code: 1"),
        ("grep nothing /etc/passwd", 1, "(no output)\nExit code: 1"),
        ("nosuchprogram", 127, "bash: line 1: nosuchprogram: command not found"),
        ("echo 'open", 2, "line 1: unexpected EOF"),
        ("echo a\necho )", 2, "line 2: syntax error near unexpected token"),
        ("kill -KILL $$", 137, "128 + 9, which usually means: ended by SIGKILL"),
        ("kill -TERM $$", 143, "SIGTERM"),
        ("sh -c 'kill -SEGV $$'", 139, "SIGSEGV"),
        ("exit 200", 200, "Exit code: 200"),
        ("false; trap 'exit 7' EXIT", 7, "Exit code: 7"),
    ],
)
async def test_a_failure_shows_its_code_and_its_message(box: ToolBox, command: str, code: int, part: str) -> None:
    """Any code but 0 is an error; the command's own line numbers are right."""
    result = await box.bash(command)
    assert part in str(result.content)
    assert (result.meta["exit_code"], result.is_error) == (code, True)


@pytest.mark.parametrize(
    ("command", "stages"),
    [
        ("sh -c 'echo \"2 failed, 10 passed\"; exit 1' | tail -5", "1, 0"),
        ("false | true", "1, 0"),
        ("set -x; false | true", "1, 0"),
        ("false | cat | true\n", "1, 0, 0"),
        ("cd /tmp; exit 5 | cat; exit", "5, 0"),
    ],
)
async def test_a_pipeline_lists_the_codes_of_all_its_commands(box: ToolBox, command: str, stages: str) -> None:
    """A failure in front of `| tail` can be seen."""
    text = str((await box.bash(command)).content)
    assert f"Exit code: 0 (of the last command of the pipeline; all its commands in order: {stages})" in text


async def test_a_pipeline_whose_codes_are_not_known_says_so(box: ToolBox) -> None:
    """A command with its own EXIT trap takes away the report."""
    text = str((await box.bash("trap 'true' EXIT; false | true")).content)
    assert "Exit code: 0 (of the last command that ran; earlier commands of a pipeline are not known)" in text


@pytest.mark.parametrize(
    ("command", "cwd"),
    [
        ("mkdir -p sub && cd sub", "/workspace/sub"),
        ("mkdir -p sub && cd sub; exit 3", "/workspace/sub"),
        ("cd /usr; false", "/usr"),
        ("(cd /usr)", "/workspace"),
        ("cd /usr | true", "/workspace"),
        ("mkdir -p 'with space\nand line' && cd with*", "/workspace/with space\nand line"),
        ("PWD=/etc; cd /usr; PWD=/etc", "/usr"),
        ("ln -sfn /usr link; cd link", "/usr"),
        ("cd /usr; trap 'true' EXIT", "/workspace"),
        ("cd /usr; exec true", "/workspace"),
        ("set -eu; cd /usr; false", "/usr"),
        ("cd /usr; set -x; true", "/usr"),
        ("cd /usr; exec >/dev/null 2>&1; echo x", "/usr"),
        ("printf() { echo mine; }; pwd() { echo /etc; }; cd /usr", "/usr"),
    ],
)
async def test_the_working_directory_carries_over(box: ToolBox, command: str, cwd: str) -> None:
    """Also past `exit` and a failure; where it is not known for sure it stays as it was."""
    ctx = box.fresh()
    await box.bash(command, ctx)
    assert ctx.cwd == cwd
    assert str((await box.bash("pwd", ctx)).content) == f"{cwd}\nExit code: 0"


@pytest.mark.parametrize("setting", ["export X=1", "X=1", "f() { :; }; X=1", "alias X=1", "shopt -s extglob; set -a"])
async def test_nothing_else_carries_over(box: ToolBox, setting: str) -> None:
    """Every call is a new shell."""
    ctx = box.fresh()
    await box.bash(setting, ctx)
    assert str((await box.bash('echo "[$X]"; type f 2>/dev/null; alias', ctx)).content) == "[]\nExit code: 0"


async def test_the_shell_is_clean_of_our_own_means(box: ToolBox) -> None:
    """Neither variables nor descriptors of ours reach a command's children."""
    text = str((await box.bash("env | grep -c BASH_ENV; bash -c 'echo child'; ls /proc/self/fd | wc -l")).content)
    assert text.startswith("0\nchild\n")


async def test_a_directory_that_is_gone_runs_nothing(box: ToolBox) -> None:
    """A command meant for one directory never runs in another."""
    ctx = box.fresh()
    await box.bash("mkdir gone && cd gone", ctx)
    await box.bash("cd /workspace && rmdir gone")
    assert "the command was not run" in await refused(BASH, ctx, command="touch /workspace/ran")
    assert ctx.cwd == "/workspace"
    assert not (box.workspace / "ran").exists()


async def test_a_directory_removed_under_the_shell_is_left(box: ToolBox) -> None:
    """The next call starts in the workspace, and that is said."""
    ctx = box.fresh()
    result = await box.bash("mkdir gone2 && cd gone2 && rmdir ../gone2", ctx)
    assert "no longer exists; it is /workspace again" in str(result.content)
    assert ctx.cwd == "/workspace"


async def test_a_timeout_keeps_what_was_printed_and_names_the_limit(box: ToolBox) -> None:
    """An error, the limit in seconds, and that everything was killed."""
    started_s = time.monotonic()
    result = await box.bash("echo before; sleep 60; echo after", timeout=1500)
    assert time.monotonic() - started_s < 10
    assert str(result.content).startswith("before\n")
    assert "after" not in str(result.content)
    assert "the limit of 1.5 s was reached, and the command was killed" in str(result.content)
    assert (result.is_error, result.meta["timed_out"]) == (True, True)


async def test_a_timeout_reaches_what_hides_from_signals(box: ToolBox) -> None:
    """A child of its own session that ignores TERM does not outlive the call."""
    command = "setsid bash -c 'trap \"\" TERM; for i in $(seq 100); do sleep 1; done' & trap '' TERM; sleep 60"
    result = await box.bash(command, timeout=500)
    assert result.meta["timed_out"] is True
    assert str((await box.bash("pgrep -u $(id -u) -c sleep")).content).startswith("0\n")


async def test_a_process_left_behind_is_killed_and_said(box: ToolBox) -> None:
    """The call returns at once; nothing outlives it."""
    started_s = time.monotonic()
    result = await box.bash("sleep 300 & echo started")
    assert time.monotonic() - started_s < 5
    assert str(result.content).startswith("started\nExit code: 0\n1 process(es) still running")
    assert result.is_error is False
    assert str((await box.bash("pgrep -u $(id -u) -c sleep")).content).startswith("0\n")


@pytest.mark.parametrize(
    ("command", "text"),
    [
        ('read -r x; echo "got:[$x]"; cat; echo end', "got:[]\nend\nExit code: 0"),
        ("cat", "(no output)\nExit code: 0"),
        ("python3 -c 'import sys; print(repr(sys.stdin.read()))'", "''\nExit code: 0"),
        ("bash", "(no output)\nExit code: 0"),
    ],
)
async def test_standard_input_is_at_its_end(box: ToolBox, command: str, text: str) -> None:
    """Nothing waits for a person, and nothing of ours is there to read."""
    assert (await box.bash(command, timeout=20_000)).content == text


async def test_there_is_no_terminal(box: ToolBox) -> None:
    """A program that asks on the terminal cannot hang the call."""
    result = await box.bash("python3 -c \"open('/dev/tty').read()\"; echo rc=$?", timeout=20_000)
    assert "rc=1" in str(result.content)


GIT = "git -c user.name=a -c user.email=a@b.c"


async def test_editors_and_pagers_do_not_wait(box: ToolBox) -> None:
    """An interactive rebase fails and changes nothing; an amend takes the message as it is; a log just prints."""
    await box.make(
        f"mkdir g && cd g && git init -q . && for i in 1 2 3; do echo $i > f; git add f; {GIT} commit -qm m$i; done"
    )
    ctx = box.fresh()
    await box.bash("cd g; git config user.name a; git config user.email a@b.c", ctx)
    before = (await box.bash("git rev-parse HEAD", ctx)).content
    rebase = await box.bash("git rebase -i HEAD~2; echo rc=$?; git status | head -3", ctx, timeout=15_000)
    assert "rc=0" not in str(rebase.content)
    assert "rebase in progress" not in str(rebase.content)
    assert (await box.bash("git rev-parse HEAD", ctx)).content == before
    amend = await box.bash("git commit --amend; echo rc=$?", ctx, timeout=15_000)
    assert "rc=0" in str(amend.content)
    log = await box.bash("git log --format=%s", ctx, timeout=15_000)
    assert str(log.content) == "m3\nm2\nm1\nExit code: 0"


async def test_bytes_that_are_not_utf8_are_replaced_and_kept(box: ToolBox) -> None:
    """The model sees stand-ins; the record, which is JSON, has the bytes."""
    result = await box.bash(r"printf 'ok \377\376 end\n'")
    assert result.content == "ok \ufffd\ufffd end\nExit code: 0"
    record = json.loads(json.dumps(result.meta))
    assert base64.b64decode(record["stdout_base64"]) == b"ok \xff\xfe end\n"


@pytest.mark.parametrize(
    ("command", "size"),
    [
        ("python3 -c \"print('a' * 40000 + 'THE END')\"", 40_008),
        ("seq 1 200000; echo THE END", 1_288_903),
        ("yes 0123456789 | head -c 5000000; echo; echo THE END", 5_000_009),
        ("python3 -c \"print('\u4e2d' * 200000 + 'THE END')\"", 600_008),
    ],
)
async def test_long_output_comes_as_head_and_tail_with_the_rest_in_a_file(
    box: ToolBox, command: str, size: int
) -> None:
    """30,000 characters inline, the true size, and a file that Read and Grep can open."""
    ctx = box.fresh()
    result = await box.bash(command, ctx)
    text = str(result.content)
    assert f"{size:,} bytes of output in all" in text
    assert text.endswith("THE END\nExit code: 0") or "THE END\nExit code: 0 (of the last" in text
    assert 30_000 <= len(text) < 30_500
    assert "\ufffd" not in text
    file = result.meta["output_file"]
    assert file in text
    assert str((await box.bash(f"wc -c < {file}", ctx)).content).split()[0] == str(size)
    assert "THE END" in await said(GREP, ctx, pattern="THE END", path=file, output_mode="content", **{"-o": True})
    await said(READ, ctx, file_path=file, limit=3)


async def test_output_without_end_is_bounded(box: ToolBox) -> None:
    """A flood until the limit costs neither the host's memory nor the result."""
    result = await box.bash("yes", timeout=1500)
    assert result.meta["timed_out"] is True
    assert len(str(result.content)) < 31_000


@pytest.mark.parametrize(("command", "why"), [("x" * 110_000, "script file"), ("echo a\0b", "NUL")])
async def test_a_command_that_no_argument_can_hold_is_refused(box: ToolBox, command: str, why: str) -> None:
    """Before anything runs, with what to do instead."""
    assert why in await refused(BASH, box.fresh(), command=command)


async def test_a_long_command_runs(box: ToolBox) -> None:
    """Up to 100 KiB."""
    assert str((await box.bash("echo " + "y" * 100_000 + " | wc -c")).content).startswith("100001\n")


async def test_memory_that_runs_out_is_named(tmp_path: Path) -> None:
    """The kernel's kill is told apart from the command's own failure."""
    async with started(tmp_path, memory_bytes=128 * MIB) as box:
        result = await box.bash("python3 -c \"x = b'x' * (512 << 20); print(len(x))\"", timeout=60_000)
    assert "Out of memory" in str(result.content)
    assert result.is_error


async def test_a_time_limit_above_the_most_is_the_most(box: ToolBox) -> None:
    """It is not refused."""
    assert not (await box.bash("true", timeout=9_999_999)).is_error


async def test_without_the_runner_the_shell_reports_just_the_same(tmp_path: Path) -> None:
    """One Docker exec per call: write order, directory, pipeline and end of input hold there, too."""
    async with started(tmp_path, transport="exec") as box:
        ctx = box.fresh()
        result = await box.bash("mkdir s; cd s; echo out; echo err >&2; cat; false | true", ctx)
        assert str(result.content).startswith("out\nerr\nExit code: 0")
        assert (ctx.cwd, result.meta["pipeline"]) == ("/workspace/s", [1, 0])


async def test_a_directory_that_cannot_be_entered_any_more_is_left(box: ToolBox) -> None:
    """The next command is not run in another place unasked; the one after that runs in the workspace."""
    ctx = box.fresh()
    await box.bash("mkdir -p /tmp/shut && cd /tmp/shut && chmod 000 .", ctx)
    text = await refused(BASH, ctx, command="pwd")
    assert "cannot be entered any more (Permission denied)" in text
    assert (await said(BASH, ctx, command="pwd")).startswith("/workspace\n")
