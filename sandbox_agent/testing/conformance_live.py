"""Conformance of `exec` with `live_path`: output that can be read while it comes, all of it within its bound."""

from __future__ import annotations

from functools import partial

import anyio
import anyio.lowlevel

from sandbox_agent.sandboxes.base import LIVE_MAX_BYTES, Sandbox
from sandbox_agent.testing.conformance_check import Need, check, folder, make, raises, same


@check()
async def live_output_can_be_read_while_it_comes(sandbox: Sandbox) -> None:
    """From the first byte, by offset; the file stays when the call is ended, and the program does not."""
    path = f"{await folder(sandbox, 'live')}/deep/all"
    async with anyio.create_task_group() as group:
        group.start_soon(partial(sandbox.exec, ["sh", "-c", "echo one; echo two; sleep 1000"], live_path=path))
        with anyio.fail_after(20):
            while await _so_far(sandbox, path) != b"one\ntwo\n":
                await anyio.lowlevel.checkpoint()
        same((await sandbox.read_file(path, offset=4)).data, b"two\n")
        same((await sandbox.read_file(path, offset=99)).data, b"")
        group.cancel_scope.cancel()
    same((await sandbox.read_file(path)).data, b"one\ntwo\n")


@check()
async def a_live_file_has_all_output(sandbox: Sandbox) -> None:
    """Also none, and more than is kept; stderr only where it is merged."""
    place = await folder(sandbox, "live-all")
    data = b"".join(b"%06d\n" % number for number in range(10_000))
    result = await sandbox.exec(["cat"], stdin=data, max_output_bytes=1_000, live_path=f"{place}/all")
    same((result.spill_path, result.spill_bytes, len(result.stdout)), (f"{place}/all", len(data), 1_000))
    same((await sandbox.read_file(f"{place}/all")).data, data)
    none = await sandbox.exec(["true"], live_path=f"{place}/none")
    same((none.spill_path, none.spill_bytes), (f"{place}/none", 0))
    same((await sandbox.read_file(f"{place}/none")).data, b"")
    for merged, wanted in ((True, b"out\nerr\n"), (False, b"out\n")):
        path = f"{place}/{merged}"
        await sandbox.exec(["sh", "-c", "echo out; echo err >&2"], merge_stderr=merged, live_path=path)
        same((await sandbox.read_file(path)).data, wanted)
    await raises(ValueError, sandbox.exec(["true"], live_path=f"{place}/a", spill_path=f"{place}/b"))
    await raises(ValueError, sandbox.exec(["true"], live_path="a"))


@check(Need.KERNEL)
async def a_live_file_is_bounded_and_has_the_end(sandbox: Sandbox) -> None:
    """The first 16 MiB, how much is left out, and the last bytes."""
    path = f"{await folder(sandbox, 'live-flood')}/all"
    size = LIVE_MAX_BYTES + 1_000_000
    result = await sandbox.exec(
        ["sh", "-c", f"head -c {size} /dev/zero; echo the end"], max_output_bytes=1_000, live_path=path
    )
    mark = b"\n[... %d bytes are left out here ...]\n" % (1_000_008 - 500)
    same((result.stdout_bytes, result.spill_bytes), (size + 8, LIVE_MAX_BYTES + len(mark) + 500))
    same((await sandbox.read_file(path, offset=LIVE_MAX_BYTES)).data, mark + bytes(492) + b"the end\n")


@check()
async def a_live_file_never_writes_into_what_is_there(sandbox: Sandbox) -> None:
    """A link or a file at the place stays as it is, and there is none."""
    place = await folder(sandbox, "live-link")
    await sandbox.replace_file(f"{place}/target", b"mine", expected_sha256=None)
    await make(sandbox, "ln", "-s", f"{place}/target", f"{place}/link")
    for name in ("link", "target"):
        result = await sandbox.exec(["echo", "x"], live_path=f"{place}/{name}")
        same((result.spill_path, result.stdout), (None, b"x\n"))
    same((await sandbox.read_file(f"{place}/target")).data, b"mine")


async def _so_far(sandbox: Sandbox, path: str) -> bytes:
    """What is in a file that may not be there yet."""
    try:
        return (await sandbox.read_file(path)).data
    except FileNotFoundError:
        return b""


CHECKS = (
    live_output_can_be_read_while_it_comes,
    a_live_file_has_all_output,
    a_live_file_is_bounded_and_has_the_end,
    a_live_file_never_writes_into_what_is_there,
)
