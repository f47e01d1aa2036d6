"""Bash: one command in a fresh shell of the container. The working directory carries over, nothing else does.

How the shell tells where it ended: bash reads the few lines in `_PROLOGUE` from its stdin, named by BASH_ENV, before
the command. They point stderr at stdout, so that both share one pipe in write order, keep the real stderr for
themselves, and report the directory and the stages of the last pipeline there at exit. The command's own text stays
as it is, so line numbers in messages are right, and it finds its stdin at end of file.
"""

from __future__ import annotations

import base64
import secrets
import signal
from collections.abc import Mapping
from types import MappingProxyType
from typing import Annotated

from pydantic import Field

from sandbox_agent.errors import ToolError
from sandbox_agent.policy.shell import analyse, look_again
from sandbox_agent.prompts import prompt
from sandbox_agent.sandboxes.base import KIB, ExecResult, FileKind
from sandbox_agent.tools.base import ToolContext, ToolInput, build_tool
from sandbox_agent.tools.jobs import ShellCommand
from sandbox_agent.tools.lines import lines_worded
from sandbox_agent.tools.shell_output import Excerpt, Report, excerpt, report_of
from sandbox_agent.types import WORKSPACE_MOUNT, JsonObject, Subject, ToolResult

DEFAULT_TIMEOUT_MS = 120_000
MAX_TIMEOUT_MS = 600_000
DEFAULT_JOB_TIMEOUT_MS = 1_800_000
MAX_JOB_TIMEOUT_MS = 7_200_000
MAX_COMMAND_BYTES = 100 * KIB
"""Linux takes less than 128 KiB in one argument."""

NAME_CHARS = 200
"""Of a job's command, where people and the model are told of it."""

KEPT_BYTES = 256 * KIB
"""Of the output, on the host: two halves that hold 15,000 characters each in any encoding. The rest is in a file."""

SPILL_ROOM = "/tmp/sandbox-agent"

ENVIRONMENT: Mapping[str, str] = MappingProxyType({"BASH_ENV": "/dev/stdin"})
"""Bash reads the prologue from its stdin; pagers, editors and prompts are switched off by the sandbox itself."""

# 251 is a number no script uses by habit (9 and 200 are: flock). xtrace of the trap goes nowhere.
_PROLOGUE = (
    'unset BASH_ENV; exec 251>&2 2>&1; trap \'{{ builtin printf "{nonce} %s\\n" "${{PIPESTATUS[@]}}"; '
    'builtin printf "{nonce}="; builtin pwd -P; }} >&251 2>/dev/null\' EXIT\n'
)


class BashInput(ToolInput):
    """See prompts/tools/bash.md."""

    command: str = Field(description="The command.")
    timeout: Annotated[float, Field(gt=0)] | None = Field(
        default=None,
        description=f"Limit in milliseconds; {DEFAULT_TIMEOUT_MS} if left out, {MAX_TIMEOUT_MS} most; "
        f"in the background {DEFAULT_JOB_TIMEOUT_MS} and {MAX_JOB_TIMEOUT_MS}.",
    )
    description: str | None = Field(
        default=None, description="What it does, in a few words, for the person who watches."
    )
    run_in_background: bool = Field(default=False, description="Do not wait for its end: you get an id at once.")


async def run(value: BashInput, ctx: ToolContext) -> ToolResult:
    """Run the command and say how it ended, or that it runs in the background.

    Raises:
        ToolError: it was not run: too long, holds a NUL, or the working directory cannot be entered; or too many run
            in the background.
    """
    _check(value.command)
    if value.run_in_background:
        return await _start(value, ctx)
    nonce = secrets.token_hex(8)
    file_path = f"{SPILL_ROOM}/bash-{nonce}.txt"
    timeout_s = min(value.timeout or DEFAULT_TIMEOUT_MS, MAX_TIMEOUT_MS) / 1000
    try:
        ended = await ctx.sandbox.exec(
            ["bash", "--noprofile", "--norc", "-c", value.command],
            stdin=_PROLOGUE.format(nonce=nonce).encode(),
            cwd=ctx.cwd,
            env=ENVIRONMENT,
            timeout_s=timeout_s,
            max_output_bytes=KEPT_BYTES,
            spill_path=file_path,
        )
    except OSError as exc:
        gone = isinstance(exc, FileNotFoundError | NotADirectoryError)
        raise _lost(ctx, "is gone" if gone else f"cannot be entered any more ({exc.strerror})") from exc
    report = report_of(ended, nonce)
    shown = await excerpt(ctx, ended, report, file_path)
    notes = [*_ending(value, ended, report, timeout_s), *_move(ctx, report)]
    text = "\n".join([shown.text or "(no output)", *notes])
    meta = _meta(ctx, ended, report, shown)
    return ToolResult(text, is_error=ended.timed_out or ended.exit_code != 0, meta=meta)


async def _start(value: BashInput, ctx: ToolContext) -> ToolResult:
    """Run the command as a job."""
    if ctx.jobs is None:
        raise ToolError("Nothing can run in the background here. Run it without run_in_background.")
    [place] = await ctx.sandbox.resolve([ctx.cwd])
    if place.kind is not FileKind.DIRECTORY:
        raise _lost(ctx, "is gone")
    limit_s = min(value.timeout or DEFAULT_JOB_TIMEOUT_MS, MAX_JOB_TIMEOUT_MS) / 1000
    path = f"{SPILL_ROOM}/job-{secrets.token_hex(8)}.txt"
    what = _subject(value, ctx).summary
    what = what if len(what) <= NAME_CHARS else f"{what[: NAME_CHARS - 3]}..."
    argv = ["bash", "--noprofile", "--norc", "-c", value.command]
    job = ctx.jobs.start_shell(ShellCommand(what, argv, ctx.cwd, limit_s, path))
    text = prompt("tools/bash_started").format(id=job.id, limit=_worded(limit_s), path=path)
    return ToolResult(text, meta={"job_id": job.id, "output_file": path, "limit_s": limit_s})


def _worded(limit_s: float) -> str:
    return f"{limit_s / 60:g} minutes" if limit_s >= 120 else f"{limit_s:g} s"


def _lost(ctx: ToolContext, why: str) -> ToolError:
    """The working directory cannot be used: it is the workspace again, which the model has to know first."""
    lost, ctx.cwd = ctx.cwd, WORKSPACE_MOUNT
    return ToolError(
        f"The working directory {lost} {why}, so the command was not run. It is {WORKSPACE_MOUNT} again; check "
        "the command against that and send it again."
    )


def _check(command: str) -> None:
    if "\0" in command:
        raise ToolError("The command holds a NUL character, which no argument can. Use printf '\\0' to make one.")
    size = len(command.encode("utf-8"))
    if size > MAX_COMMAND_BYTES:
        raise ToolError(
            f"The command has {size:,} bytes; at most {MAX_COMMAND_BYTES:,} can be run. Write it to a script file with "
            "Write and run that."
        )


def _meta(ctx: ToolContext, ended: ExecResult, report: Report, shown: Excerpt) -> JsonObject:
    meta: JsonObject = {
        "exit_code": ended.exit_code,
        "timed_out": ended.timed_out,
        "truncated": shown.cut,
        "duration_s": ended.duration_s,
        "cwd": ctx.cwd,
        "output_bytes": ended.stdout_bytes,
        "pipeline": list(report.stages),
    }
    if shown.file is not None:
        meta["output_file"] = shown.file
    if not shown.is_utf8:
        # What the model sees has U+FFFD for them; the record keeps the bytes.
        meta["stdout_base64"] = base64.b64encode(ended.stdout).decode("ascii")
    return meta


def _ending(value: BashInput, ended: ExecResult, report: Report, timeout_s: float) -> list[str]:
    code = ended.exit_code
    line = f"Exit code: {code}"
    if len(report.stages) > 1 and not ended.timed_out:
        stages = ", ".join(map(str, report.stages))
        line += f" (of the last command of the pipeline; all its commands in order: {stages})"
    elif not report.stages and "|" in value.command and not ended.timed_out:
        line += " (of the last command that ran; earlier commands of a pipeline are not known)"
    elif code > 128 and not ended.timed_out and (name := _signal_name(code - 128)):
        line += f" (128 + {code - 128}, which usually means: ended by {name})"
    notes = [line]
    if ended.timed_out:
        most = " (the most there is)" if timeout_s >= MAX_TIMEOUT_MS / 1000 else ""
        notes.append(
            f"Timed out: the limit of {timeout_s:g} s{most} was reached, and the command was killed with every process "
            "it had started. What it had printed by then is above."
        )
    if ended.oom_killed:
        notes.append("Out of memory: the container's memory limit was reached and the system killed a process.")
    if ended.leftover_processes and not ended.timed_out:
        notes.append(
            f"{ended.leftover_processes} process(es) still running when the command ended were killed: nothing "
            "outlives its call, but for a command that is run with run_in_background."
        )
    return notes


def _move(ctx: ToolContext, report: Report) -> list[str]:
    """Take over the directory the shell ended in."""
    if report.cwd is None or report.cwd == ctx.cwd:
        return []
    if not report.cwd:
        ctx.cwd = WORKSPACE_MOUNT
        return [f"The working directory no longer exists; it is {WORKSPACE_MOUNT} again."]
    ctx.cwd = report.cwd
    return [f"Working directory: {ctx.cwd}"]


def _signal_name(number: int) -> str | None:
    try:
        return signal.Signals(number).name
    except ValueError:
        return None


def _subject(value: BashInput, ctx: ToolContext) -> Subject:
    first, *more = value.command.strip().split("\n")
    return Subject(
        summary=first + (f" (+{lines_worded(len(more))})" if more else ""),
        paths=analyse(value.command).accesses(ctx.cwd),
        command=value.command,
        cwd=ctx.cwd,
    )


def _only_reads(value: BashInput) -> bool:
    return analyse(value.command).read_only


def _prepare(value: BashInput) -> None:
    look_again(value.command)  # which remembers


TOOL = build_tool(
    name="Bash",
    description=prompt("tools/bash"),
    input_model=BashInput,
    run=run,
    read_only=_only_reads,
    parallel_safe=_only_reads,
    subject=_subject,
    prepare=_prepare,
    # The command's own limit ends it inside the container, where its processes can be killed with it.
    timeout_s=None,
)
