"""Conformance of ends: time limits, what a command leaves behind, and calls that are given up."""

from __future__ import annotations

import secrets
import time

import anyio

from sandbox_agent.sandboxes.base import KILL_GRACE_S, Sandbox
from sandbox_agent.testing.conformance_check import Need, check, holds, same

_COUNT = """
number=0
for place in /proc/[0-9]*/cmdline; do
    if tr '\\0' ' ' < "$place" 2>/dev/null | grep -q "$1$2"; then number=$((number + 1)); fi
done
echo $number
"""


async def alive(sandbox: Sandbox, mark: str) -> int:
    """How many processes have the mark in their command line. It is given in halves, so as not to count ourselves."""
    half = len(mark) // 2
    result = await sandbox.exec(["sh", "-c", _COUNT, "sh", mark[:half], mark[half:]])
    return int(result.stdout)


def a_mark() -> str:
    """A word that no other process has in its command line."""
    return f"mark{secrets.token_hex(8)}"


@check()
async def a_time_limit_ends_the_command(sandbox: Sandbox) -> None:
    """What it printed by then is kept, and the result says that the time ran out."""
    started_s = time.monotonic()
    result = await sandbox.exec(["sh", "-c", "echo before; sleep 60; echo after"], timeout_s=0.5)
    same((result.stdout, result.timed_out), (b"before\n", True))
    holds(result.exit_code > 128, "the exit code is that of a signal")
    holds(time.monotonic() - started_s < 0.5 + KILL_GRACE_S + 8, "it takes no longer than limit and grace")


@check()
async def a_command_within_its_limit_is_left_alone(sandbox: Sandbox) -> None:
    """No trace of the limit."""
    result = await sandbox.exec(["echo", "quick"], timeout_s=30)
    same((result.exit_code, result.stdout, result.timed_out), (0, b"quick\n", False))


@check(Need.KERNEL)
async def everything_ends_at_once_and_the_next_call_works(sandbox: Sandbox) -> None:
    """Programs that are talked to and what they started; who waits for one learns that it was killed."""
    mark = a_mark()
    sleeper = f"exec -a {mark} sleep 300"
    stream = await sandbox.open(["bash", "-c", f"setsid bash -c '{sleeper}' & echo started; {sleeper}"])
    try:
        same(await stream.receive(), b"started\n")
        await sandbox.end_all()
        same(await alive(sandbox, mark), 0)
        holds(await stream.exit_code() != 0, "the stream has ended as killed")
    finally:
        await stream.aclose()


@check(Need.KERNEL)
async def a_time_limit_ends_the_children_too(sandbox: Sandbox) -> None:
    """Foreground and background, however they were started."""
    mark = a_mark()
    sleeper = f"bash -c 'exec -a {mark} sleep 300'"
    script = f"for i in 1 2 3; do {sleeper} & done; setsid {sleeper} & {sleeper}"
    holds((await sandbox.exec(["bash", "-c", script], timeout_s=1)).timed_out, "it timed out")
    same(await alive(sandbox, mark), 0)


@check(Need.KERNEL)
async def who_ignores_the_first_signal_is_killed(sandbox: Sandbox) -> None:
    """After the grace, for every process of the call."""
    mark = a_mark()
    started_s = time.monotonic()
    script = f"trap '' TERM HUP INT; (exec -a {mark} bash -c 'while :; do sleep 1; done') & while :; do sleep 1; done"
    result = await sandbox.exec(["bash", "-c", script], timeout_s=0.5)
    same((result.timed_out, result.exit_code), (True, 137))
    holds(time.monotonic() - started_s < 0.5 + KILL_GRACE_S + 8, "it takes no longer than limit and grace")
    same(await alive(sandbox, mark), 0)


@check(Need.KERNEL)
async def nothing_outlives_its_call(sandbox: Sandbox) -> None:
    """In the background, in a session of its own, forked twice, without its parent: all end with the command."""
    mark = a_mark()
    sleeper = f"bash -c 'exec -a {mark} sleep 300'"
    ways = (
        f"{sleeper} &",
        f"setsid {sleeper} & disown",
        f"nohup {sleeper} >/dev/null 2>&1 &",
        f"( ( {sleeper} & ) & )",
        f'( setsid sh -c "setsid {sleeper} & sleep 0.1" & )',
    )
    for way in ways:
        started_s = time.monotonic()
        result = await sandbox.exec(["bash", "-c", f"{way}\nsleep 0.2; echo done"])
        same((result.exit_code, result.stdout), (0, b"done\n"))
        holds(time.monotonic() - started_s < 15, f"the call does not wait for it: {way}")
        same((way, await alive(sandbox, mark)), (way, 0))


@check(Need.KERNEL, Need.COUNTS)
async def what_outlived_the_command_is_counted(sandbox: Sandbox) -> None:
    """So that the tool can say so."""
    same((await sandbox.exec(["bash", "-c", "sleep 300 & sleep 300 & true"])).leftover_processes, 2)
    same((await sandbox.exec(["true"])).leftover_processes, 0)


@check(Need.KERNEL)
async def output_at_the_end_is_not_lost(sandbox: Sandbox) -> None:
    """What a child still writes just after the command has ended."""
    result = await sandbox.exec(["bash", "-c", "exec > >(sleep 0.02; cat); echo through a substitution"])
    same(result.stdout, b"through a substitution\n")


@check(Need.KERNEL)
async def a_call_that_is_given_up_is_ended(sandbox: Sandbox) -> None:
    """Cancelling the wait kills the processes; the next call works."""
    mark = a_mark()
    with anyio.move_on_after(0.5):
        await sandbox.exec(["bash", "-c", f"exec -a {mark} sleep 300"])
    same(await alive(sandbox, mark), 0)
    same((await sandbox.exec(["echo", "next"])).stdout, b"next\n")


@check(Need.KERNEL)
async def there_is_no_terminal(sandbox: Sandbox) -> None:
    """Nothing can ask a person."""
    result = await sandbox.exec(["sh", "-c", "[ -t 0 ] || [ -t 1 ] || [ -t 2 ] || echo none; : < /dev/tty"])
    same(result.stdout, b"none\n")
    holds(result.exit_code != 0, "/dev/tty cannot be opened")


@check(Need.KERNEL)
async def a_signal_is_an_exit_code(sandbox: Sandbox) -> None:
    """128 + its number."""
    same((await sandbox.exec(["sh", "-c", "kill -9 $$"])).exit_code, 137)
    same((await sandbox.exec(["sh", "-c", "kill -TERM $$"])).exit_code, 143)


CHECKS = (
    a_time_limit_ends_the_command,
    a_command_within_its_limit_is_left_alone,
    a_time_limit_ends_the_children_too,
    who_ignores_the_first_signal_is_killed,
    nothing_outlives_its_call,
    what_outlived_the_command_is_counted,
    output_at_the_end_is_not_lost,
    a_call_that_is_given_up_is_ended,
    there_is_no_terminal,
    a_signal_is_an_exit_code,
)
