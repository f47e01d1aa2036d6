"""Conformance of `exec`: output, exit codes, input, arguments, environment, folder, and what is kept of much output."""

from __future__ import annotations

import os
import time

import anyio

from sandbox_agent.sandboxes.base import KIB, MIB, ExecResult, Sandbox
from sandbox_agent.sandboxes.hardening import ENV
from sandbox_agent.testing.conformance_check import Need, check, folder, holds, make, raises, same

SPECIALS = "'single' \"double\" $HOME `id` $(id) \\ ! # & ; | < > ( ) [ ] { } * ? ~ %s\n\ttab é 日本\n"


@check()
async def output_is_exact(sandbox: Sandbox) -> None:
    """stdout as printed, nothing on stderr, exit code 0, honest totals."""
    result = await sandbox.exec(["echo", "hello"])
    same(_seen(result), (0, b"hello\n", b""))
    same((result.stdout_bytes, result.stderr_bytes, result.truncated, result.timed_out), (6, 0, False, False))


@check()
async def stderr_is_apart(sandbox: Sandbox) -> None:
    """Each stream in its own field."""
    result = await sandbox.exec(["sh", "-c", "echo out; echo err >&2"])
    same(_seen(result), (0, b"out\n", b"err\n"))


@check()
async def merged_streams_keep_write_order(sandbox: Sandbox) -> None:
    """With merge_stderr everything is in stdout, as it was written."""
    script = "; ".join(f"echo o{number}; echo e{number} >&2" for number in range(20))
    result = await sandbox.exec(["sh", "-c", script], merge_stderr=True)
    same(_seen(result), (0, b"".join(b"o%d\ne%d\n" % (number, number) for number in range(20)), b""))


@check()
async def utf8_output_is_exact(sandbox: Sandbox) -> None:
    """Bytes come through, they are not text."""
    same((await sandbox.exec(["printf", "caf\\303\\251\\n"])).stdout, "café\n".encode())
    same((await sandbox.exec(["sh", "-c", "printf 'caf\\303\\251\\n' >&2"])).stderr, "café\n".encode())


@check()
async def output_that_is_not_utf8_is_exact(sandbox: Sandbox) -> None:
    """Nothing is replaced, on either stream."""
    same((await sandbox.exec(["printf", "ok \\377\\376 end\\n"])).stdout, b"ok \xff\xfe end\n")
    same((await sandbox.exec(["sh", "-c", "printf 'ok \\377\\376 end\\n' >&2"])).stderr, b"ok \xff\xfe end\n")


@check()
async def exit_codes_are_values(sandbox: Sandbox) -> None:
    """No code is an exception."""
    for code in (0, 1, 2, 7, 124, 255):
        same((await sandbox.exec(["sh", "-c", f"exit {code}"])).exit_code, code)
    same((await sandbox.exec(["false"])).exit_code, 1)


@check()
async def a_missing_program_is_127(sandbox: Sandbox) -> None:
    """With the reason in stderr, or in stdout where the streams are merged."""
    result = await sandbox.exec(["no-such-program"])
    same((result.exit_code, result.stdout), (127, b""))
    holds(b"no-such-program" in result.stderr, "stderr names the program")
    merged = await sandbox.exec(["no-such-program"], merge_stderr=True)
    same((merged.exit_code, merged.stderr), (127, b""))
    holds(b"no-such-program" in merged.stdout, "stdout names the program")


@check(Need.KERNEL)
async def what_cannot_be_executed_is_126(sandbox: Sandbox) -> None:
    """A file without the bit, and a folder."""
    place = await folder(sandbox, "exec126")
    await sandbox.replace_file(f"{place}/plain", b"#!/bin/sh\necho ran\n", expected_sha256=None)
    same((await sandbox.exec([f"{place}/plain"])).exit_code, 126)
    same((await sandbox.exec([place])).exit_code, 126)
    same((await sandbox.exec([f"{place}/nothing"])).exit_code, 127)


@check()
async def input_comes_as_given(sandbox: Sandbox) -> None:
    """Text, every byte value, and what a shell would act on."""
    for data in (b"line\n", bytes(range(256)), SPECIALS.encode()):
        same(_seen(await sandbox.exec(["cat"], stdin=data)), (0, data, b""))


@check()
async def without_input_there_is_an_end_of_file(sandbox: Sandbox) -> None:
    """A program that reads does not wait."""
    started_s = time.monotonic()
    same(_seen(await sandbox.exec(["cat"])), (0, b"", b""))
    holds(time.monotonic() - started_s < 10, "cat ends at once")


@check()
async def large_input_comes_whole(sandbox: Sandbox) -> None:
    """5 MiB through a program and back."""
    data = os.urandom(5 * MIB)
    result = await sandbox.exec(["cat"], stdin=data, max_output_bytes=6 * MIB)
    same((result.exit_code, len(result.stdout), result.stdout == data), (0, len(data), True))


@check()
async def input_that_is_not_read_does_no_harm(sandbox: Sandbox) -> None:
    """A program may end before it has read everything."""
    same(_seen(await sandbox.exec(["true"], stdin=bytes(2 * MIB))), (0, b"", b""))


@check()
async def arguments_come_as_given(sandbox: Sandbox) -> None:
    """No shell of ours looks at them."""
    same((await sandbox.exec(["printf", "%s", SPECIALS])).stdout, SPECIALS.encode())
    same((await sandbox.exec(["printf", "%s", "bad \udcff byte"])).stdout, b"bad \xff byte")


@check()
async def a_large_argument_comes_whole(sandbox: Sandbox) -> None:
    """Just below the kernel's limit of 128 KiB for one."""
    text = "x" * (128 * KIB - 1)
    same((await sandbox.exec(["printf", "%s", text])).stdout_bytes, len(text))


@check()
async def arguments_beyond_the_limits_are_refused(sandbox: Sandbox) -> None:
    """One too long, a NUL, or none at all: ValueError; too much altogether: 126, as a shell says it."""
    for argv in (["printf", "%s", "x" * 128 * KIB], ["echo", "a\0b"], []):
        await raises(ValueError, sandbox.exec(argv))
    result = await sandbox.exec(["printf", "%s", *["x" * 100_000] * 40])
    same(result.exit_code, 126)
    holds(b"too long" in result.stderr, "stderr says that it is too long")


@check()
async def the_environment_is_added_to(sandbox: Sandbox) -> None:
    """Values come as given, beside the sandbox's own."""
    result = await sandbox.exec(["env"], env={"GREETING": 'it\'s $HOME "x"'})
    lines = result.stdout.decode().splitlines()
    holds('GREETING=it\'s $HOME "x"' in lines, "the variable is there")
    holds("HOME=/home/agent" in lines, "the sandbox's own variables are there")


@check()
async def the_hosts_environment_stays_outside(sandbox: Sandbox) -> None:
    """Not one variable comes through with the value it has there, but for what the sandbox sets itself."""
    inside = set((await sandbox.exec(["env"])).stdout.decode("utf-8", "surrogateescape").splitlines())
    outside = {f"{name}={value}" for name, value in os.environ.items() if name not in {*ENV, "PWD", "SHLVL", "_"}}
    same(inside & outside, set())


@check()
async def the_working_folder_is_the_workspace_or_as_given(sandbox: Sandbox) -> None:
    """None is the workspace."""
    place = await folder(sandbox, "cwd dir")
    same((await sandbox.exec(["pwd"])).stdout, b"/workspace\n")
    same((await sandbox.exec(["pwd"], cwd=place)).stdout, f"{place}\n".encode())


@check()
async def a_working_folder_that_is_none_is_an_error(sandbox: Sandbox) -> None:
    """Missing, and a file."""
    place = await folder(sandbox, "cwd-errors")
    await sandbox.replace_file(f"{place}/file", b"", expected_sha256=None)
    await raises(FileNotFoundError, sandbox.exec(["pwd"], cwd=f"{place}/none"))
    await raises(NotADirectoryError, sandbox.exec(["pwd"], cwd=f"{place}/file"))


@check()
async def output_is_cut_exactly_at_the_limit(sandbox: Sandbox) -> None:
    """9,999 and 10,000 bytes are whole at a limit of 10,000, 10,001 are not; the totals are true."""
    for size in (9_999, 10_000, 10_001):
        result = await sandbox.exec(["head", "-c", str(size), "/dev/zero"], max_output_bytes=10_000)
        same((len(result.stdout), result.stdout_bytes, result.exit_code), (min(size, 10_000), size, 0))
        same(result.truncated, size > 10_000)


@check()
async def head_and_tail_are_kept(sandbox: Sandbox) -> None:
    """The first half and the last half, also of an odd limit, and nothing of a limit of 0."""
    data = b"".join(b"%06d\n" % number for number in range(100_000))
    for limit in (1_000, 1_001, 1, 0):
        result = await sandbox.exec(["cat"], stdin=data, max_output_bytes=limit)
        head, tail = limit // 2, limit - limit // 2
        same((result.stdout, result.stdout_bytes), (data[:head] + data[len(data) - tail :], len(data)))


@check(Need.SPILL)
async def full_output_is_spilled(sandbox: Sandbox) -> None:
    """Only when it is too long; the file holds all of it."""
    place = await folder(sandbox, "spill")
    data = b"".join(b"%06d\n" % number for number in range(10_000))
    short = await sandbox.exec(["cat"], stdin=data, spill_path=f"{place}/short")
    same((short.spill_path, short.spill_bytes), (None, 0))
    result = await sandbox.exec(
        ["cat"], stdin=data, max_output_bytes=1_000, merge_stderr=True, spill_path=f"{place}/deep/all"
    )
    same((result.spill_path, result.spill_bytes), (f"{place}/deep/all", len(data)))
    same((await sandbox.read_file(f"{place}/deep/all")).data, data)


@check(Need.SPILL, Need.KERNEL)
async def a_spill_never_writes_into_what_is_there(sandbox: Sandbox) -> None:
    """A link or a file at the place stays as it is, and there is no spill."""
    place = await folder(sandbox, "spill-link")
    await sandbox.replace_file(f"{place}/target", b"mine", expected_sha256=None)
    await make(sandbox, "ln", "-s", f"{place}/target", f"{place}/link")
    for name in ("link", "target"):
        result = await sandbox.exec(["cat"], stdin=bytes(5_000), max_output_bytes=100, spill_path=f"{place}/{name}")
        same((result.spill_path, result.stdout_bytes), (None, 5_000))
    same((await sandbox.read_file(f"{place}/target")).data, b"mine")


@check()
async def calls_at_once_do_not_mix(sandbox: Sandbox) -> None:
    """50 calls, 8 at a time, each with its own output."""
    results: dict[int, ExecResult] = {}
    limit = anyio.CapacityLimiter(8)

    async def one(number: int) -> None:
        async with limit:
            results[number] = await sandbox.exec(["sh", "-c", f"echo out{number}; echo err{number} >&2; exit {number}"])

    async with anyio.create_task_group() as group:
        for number in range(50):
            group.start_soon(one, number)
    wanted = {number: (number, b"out%d\n" % number, b"err%d\n" % number) for number in range(50)}
    same({number: _seen(result) for number, result in sorted(results.items())}, wanted)


@check()
async def what_runs_apart_is_a_call_like_any_other(sandbox: Sandbox) -> None:
    """Input, streams, exit code, time limit and cut are as for `exec`."""
    same(_seen(await sandbox.exec_apart(["cat"], stdin=b"given\n")), (0, b"given\n", b""))
    same(_seen(await sandbox.exec_apart(["sh", "-c", "echo out; echo err >&2; exit 2"])), (2, b"out\n", b"err\n"))
    same((await sandbox.exec_apart(["no-such-program"])).exit_code, 127)
    holds((await sandbox.exec_apart(["sleep", "60"], timeout_s=0.2)).timed_out, "the time limit ends it")
    cut = await sandbox.exec_apart(["echo", "x" * 99], max_output_bytes=10)
    same((len(cut.stdout), cut.stdout_bytes), (10, 100))


def _seen(result: ExecResult) -> tuple[int, bytes, bytes]:
    return result.exit_code, result.stdout, result.stderr


CHECKS = (
    output_is_exact,
    stderr_is_apart,
    merged_streams_keep_write_order,
    utf8_output_is_exact,
    output_that_is_not_utf8_is_exact,
    exit_codes_are_values,
    a_missing_program_is_127,
    what_cannot_be_executed_is_126,
    input_comes_as_given,
    without_input_there_is_an_end_of_file,
    large_input_comes_whole,
    input_that_is_not_read_does_no_harm,
    arguments_come_as_given,
    a_large_argument_comes_whole,
    arguments_beyond_the_limits_are_refused,
    the_environment_is_added_to,
    the_hosts_environment_stays_outside,
    the_working_folder_is_the_workspace_or_as_given,
    a_working_folder_that_is_none_is_an_error,
    output_is_cut_exactly_at_the_limit,
    head_and_tail_are_kept,
    full_output_is_spilled,
    a_spill_never_writes_into_what_is_there,
    calls_at_once_do_not_mix,
    what_runs_apart_is_a_call_like_any_other,
)
