"""What Bash makes of the shell's report, of a sandbox that knows no such report, and of its own facts."""

from __future__ import annotations

import pytest

from sandbox_agent.sandboxes.base import ExecResult
from sandbox_agent.sandboxes.fake import FakeSandbox
from sandbox_agent.sandboxes.fake_shell import ProgramCall, ProgramOutput
from sandbox_agent.testing.tool_calls import call, context
from sandbox_agent.tools.bash import TOOL as BASH
from sandbox_agent.tools.shell_output import Report, report_of

NONCE = "0011223344556677"
MARK = NONCE.encode()


@pytest.mark.parametrize(
    ("stderr", "report"),
    [
        (MARK + b" 0\n" + MARK + b"=/workspace\n", Report((0,), "/workspace")),
        (MARK + b" 1\n" + MARK + b" 0\n" + MARK + b"=/a b\n", Report((1, 0), "/a b")),
        (MARK + b" 0\n" + MARK + b"=/a\nb\n", Report((0,), "/a\nb")),
        (MARK + b" 0\n" + MARK + b"=", Report((0,), "")),
        (MARK + b" 0\n" + MARK + b"=/\xff\n", Report((0,), None)),
        (b"", Report()),
        (b"bash: command not found\n", Report(strays=b"bash: command not found\n")),
        (b"stray" + MARK + b" 0\n" + MARK + b"=/w\n", Report((0,), "/w", b"stray")),
        (MARK + b" 0\n" + MARK + b"=/x\0y\n", Report((0,), None)),
        (MARK + b" 0\n", Report()),
        ((MARK + b" 0\n" + MARK + b"=/w\n") * 2, Report()),
        (MARK + b" x\n" + MARK + b"=/w\n", Report()),
        (b"ffff 0\nffff=/evil\n", Report(strays=b"ffff 0\nffff=/evil\n")),
    ],
)
def test_a_report_is_read_or_left_alone(stderr: bytes, report: Report) -> None:
    """Only the form with this call's own mark counts; everything else changes nothing."""
    assert report_of(ExecResult(0, b"", stderr), NONCE) == report


@pytest.mark.parametrize("cwd", ["relative", "../up", "/x\0y", "/a/../b", "/a/./b", "//a", "/a/", "/" + "x" * 5000])
async def test_a_directory_that_no_shell_writes_so_is_not_taken_over(cwd: str) -> None:
    """The container's answer is data, not to be trusted."""

    def bash(made: ProgramCall) -> ProgramOutput:
        nonce = made.stdin.split(b'{ builtin printf "')[1].split(b" ")[0]
        return ProgramOutput(b"", nonce + b" 0\n" + nonce + b"=" + cwd.encode() + b"\n")

    ctx = context(FakeSandbox(programs={"bash": bash}))
    await call(BASH, ctx, {"command": "true"})
    assert ctx.cwd == "/workspace"


async def test_without_a_report_output_and_code_are_still_true() -> None:
    """A sandbox whose shell cannot report: both streams are shown, the directory stays."""
    ctx = context(FakeSandbox())
    result = await call(BASH, ctx, {"command": "echo out; echo err >&2; exit 4"})
    assert (result.content, result.is_error) == ("out\nerr\nExit code: 4", True)
    assert ctx.cwd == "/workspace"


@pytest.mark.parametrize(
    ("command", "only_reads"),
    [
        ("ls -l", True),
        ("cat a | wc -l", True),
        ("cd src && ls", False),
        ("touch a", False),
        ("ls > a", False),
        ("", False),
    ],
)
def test_only_reading_commands_run_side_by_side(command: str, only_reads: bool) -> None:
    """Read-only and parallel-safe go together, and a `cd` is neither."""
    value = BASH.input_model(command=command)
    assert (BASH.read_only(value), BASH.parallel_safe(value)) == (only_reads, only_reads)


def test_the_subject_is_the_whole_command() -> None:
    """People see its first line and how many follow; rules see all of it and the files it names."""
    ctx = context(FakeSandbox())
    ctx.cwd = "/workspace/src"
    subject = BASH.subject(BASH.input_model(command="cat a.txt\nls\n"), ctx)
    assert (subject.summary, subject.command, subject.cwd) == (
        "cat a.txt (+1 line)",
        "cat a.txt\nls\n",
        "/workspace/src",
    )
    assert "/workspace/src/a.txt" in [access.path for access in subject.paths]
