"""Conformance of `open`: both directions, the end from either side, and who is held back while nobody listens."""

from __future__ import annotations

import os

import anyio

from sandbox_agent.sandboxes.base import MIB, FileKind, Sandbox, Stream
from sandbox_agent.testing.conformance_check import Need, check, folder, raises, same
from sandbox_agent.testing.conformance_processes import a_mark, alive


@check()
async def a_stream_answers(sandbox: Sandbox) -> None:
    """Word by word, then the end of both directions, then the exit code."""
    stream = await sandbox.open(["cat"])
    try:
        for word in (b"one\n", b"two\n", bytes(range(256))):
            await stream.send(word)
            same(await _exactly(stream, len(word)), word)
        await stream.send_eof()
        same(await stream.receive(), b"")
        same(await stream.exit_code(), 0)
    finally:
        await stream.aclose()


@check()
async def a_stream_has_an_exit_code(sandbox: Sandbox) -> None:
    """Also when nobody received its output."""
    stream = await sandbox.open(["sh", "-c", "echo out; exit 9"])
    try:
        same(await stream.exit_code(), 9)
    finally:
        await stream.aclose()


@check()
async def a_streams_stderr_is_dropped(sandbox: Sandbox) -> None:
    """Only stdout comes."""
    stream = await sandbox.open(["sh", "-c", "echo err >&2; echo out; echo err >&2"])
    try:
        same(await _everything(stream), b"out\n")
    finally:
        await stream.aclose()


@check()
async def a_stream_may_be_closed_twice(sandbox: Sandbox) -> None:
    """And nothing can be sent to it afterwards."""
    stream = await sandbox.open(["cat"])
    await stream.aclose()
    await stream.aclose()
    await raises(BrokenPipeError, stream.send(b"late"))


@check(Need.KERNEL)
async def closing_a_stream_kills_what_it_started(sandbox: Sandbox) -> None:
    """With all descendants."""
    mark = a_mark()
    sleeper = f"bash -c 'exec -a {mark} sleep 300'"
    stream = await sandbox.open(["bash", "-c", f"setsid {sleeper} & {sleeper} & echo up; {sleeper}"])
    same(await _exactly(stream, 3), b"up\n")
    await stream.aclose()
    same(await alive(sandbox, mark), 0)


@check(Need.KERNEL)
async def sending_to_a_program_that_has_ended_is_an_error(sandbox: Sandbox) -> None:
    """BrokenPipeError, at the latest when its end is known."""
    stream = await sandbox.open(["true"])
    try:
        same(await stream.exit_code(), 0)
        await raises(BrokenPipeError, stream.send(b"late"))
    finally:
        await stream.aclose()


@check(Need.KERNEL)
async def much_passes_in_both_directions_at_once(sandbox: Sandbox) -> None:
    """8 MiB through `cat`, sent and received by different tasks."""
    data = os.urandom(8 * MIB)
    stream = await sandbox.open(["cat"])

    async def send() -> None:
        for at in range(0, len(data), 300_000):
            await stream.send(data[at : at + 300_000])
        await stream.send_eof()

    try:
        async with anyio.create_task_group() as group:
            group.start_soon(send)
            came = await _everything(stream)
        same((len(came), came == data), (len(data), True))
    finally:
        await stream.aclose()


@check(Need.KERNEL)
async def a_program_that_nobody_listens_to_is_held_back(sandbox: Sandbox) -> None:
    """It waits with its output, other calls go on, and nothing is lost when somebody listens at last."""
    place = await folder(sandbox, "held-back")
    stream = await sandbox.open(["sh", "-c", f"head -c 30000000 /dev/zero; touch {place}/done"])
    try:
        for number in range(5):
            same((await sandbox.exec(["echo", str(number)])).stdout, b"%d\n" % number)
        same((await sandbox.resolve([f"{place}/done"]))[0].kind, FileKind.MISSING)
        same(len(await _everything(stream)), 30_000_000)
        same(await stream.exit_code(), 0)
    finally:
        await stream.aclose()
    same((await sandbox.resolve([f"{place}/done"]))[0].kind, FileKind.FILE)


@check()
async def a_missing_program_ends_its_stream(sandbox: Sandbox) -> None:
    """With 127 and no output."""
    stream = await sandbox.open(["no-such-program"])
    try:
        same((await _everything(stream), await stream.exit_code()), (b"", 127))
    finally:
        await stream.aclose()


@check()
async def a_stream_needs_a_working_folder(sandbox: Sandbox) -> None:
    """The same errors as for `exec`."""
    await raises(FileNotFoundError, sandbox.open(["cat"], cwd="/workspace/none"))
    await raises(ValueError, sandbox.open([]))


async def _exactly(stream: Stream, size: int) -> bytes:
    data = b""
    while len(data) < size:
        more = await stream.receive()
        if not more:
            break
        data += more
    return data


async def _everything(stream: Stream) -> bytes:
    chunks: list[bytes] = []
    while chunk := await stream.receive():
        chunks.append(chunk)
    return b"".join(chunks)


CHECKS = (
    a_stream_answers,
    a_stream_has_an_exit_code,
    a_streams_stderr_is_dropped,
    a_stream_may_be_closed_twice,
    closing_a_stream_kills_what_it_started,
    sending_to_a_program_that_has_ended_is_an_error,
    much_passes_in_both_directions_at_once,
    a_program_that_nobody_listens_to_is_held_back,
    a_missing_program_ends_its_stream,
    a_stream_needs_a_working_folder,
)
