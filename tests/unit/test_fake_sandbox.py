"""The fake sandbox does what the contract says, so that what is tested on it holds on the real ones."""

from __future__ import annotations

import anyio
import pytest

from sandbox_agent.errors import SandboxDiedError, SandboxUnavailableError
from sandbox_agent.sandboxes.fake import FakeCall, FakeSandbox
from sandbox_agent.sandboxes.fake_shell import ProgramCall, ProgramOutput
from sandbox_agent.testing.conformance import Check, checks
from sandbox_agent.testing.conformance_check import Need


@pytest.mark.parametrize("check", checks(without=[Need.KERNEL]), ids=lambda check: check.name)
async def test_the_fake_conforms(check: Check) -> None:
    """Every check that needs no kernel."""
    await check.run(FakeSandbox())


async def test_a_registered_program_gets_its_call() -> None:
    """Arguments, input and folder; what it returns is the result."""
    seen: list[ProgramCall] = []

    def program(call: ProgramCall) -> ProgramOutput:
        seen.append(call)
        return ProgramOutput(b"out", b"err", 3)

    sandbox = FakeSandbox({"/workspace/sub/file": b""}, {"rg": program})
    result = await sandbox.exec(["/usr/bin/rg", "-n", "x"], stdin=b"in", cwd="/workspace/sub")

    assert (result.exit_code, result.stdout, result.stderr) == (3, b"out", b"err")
    assert [(call.argv, call.stdin, call.cwd) for call in seen] == [
        (("/usr/bin/rg", "-n", "x"), b"in", "/workspace/sub")
    ]


async def test_calls_are_listed() -> None:
    """In order, by verb."""
    sandbox = FakeSandbox({"/workspace/a": b"1"})
    await sandbox.read_file("/workspace/a")
    await sandbox.resolve(["/workspace/a", "/b"])

    assert sandbox.calls == [FakeCall("read_file", ("/workspace/a",)), FakeCall("resolve", ("/workspace/a", "/b"))]


async def test_the_next_call_fails_as_asked() -> None:
    """Once, whatever the verb; then all is well again."""
    sandbox = FakeSandbox({"/workspace/a": b"1"})
    sandbox.fail_next(SandboxUnavailableError("gone"))
    with pytest.raises(SandboxUnavailableError, match="gone"):
        await sandbox.read_file("/workspace/a")

    assert (await sandbox.read_file("/workspace/a")).data == b"1"


async def test_death_ends_open_and_later_calls() -> None:
    """Both raise what it died of."""
    sandbox = FakeSandbox()
    deaths: list[SandboxDiedError] = []

    async def waiting() -> None:
        with pytest.raises(SandboxDiedError) as caught:
            await sandbox.exec(["sleep", "1000"])
        deaths.append(caught.value)

    async with anyio.create_task_group() as group:
        group.start_soon(waiting)
        await anyio.wait_all_tasks_blocked()
        sandbox.die(137, oom_killed=True)
    with pytest.raises(SandboxDiedError):
        await sandbox.resolve(["/"])

    assert [(death.container_exit_code, death.oom_killed) for death in deaths] == [(137, True)]
