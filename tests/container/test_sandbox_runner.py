"""The runner under commands that mean it harm, and under load: right results, bounded memory, and no way in."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from pathlib import Path

import anyio
import pytest
from sandbox_rig import Rig, rig

from sandbox_agent.sandboxes.base import MIB
from sandbox_agent.sandboxes.frames import RunnerKilledError
from sandbox_agent.sandboxes.resident import RUNNER_KILLED
from sandbox_agent.testing.conformance_processes import a_mark, alive

pytestmark = pytest.mark.docker

HOST_GROWTH_BYTES = 48 * MIB
"""For one call that keeps 10 MiB of its output: those, their copy, and the frames on their way."""

LOOK_INSIDE = """
import os, sys
name, found = sys.argv[1], 0
for pid in filter(str.isdigit, os.listdir("/proc")):
    try:
        line = open(f"/proc/{pid}/cmdline", "rb").read()
    except OSError:
        continue
    if not line.startswith(name.encode()) or int(pid) == os.getpid():
        continue
    found += 1
    for what in ("fd/0", "fd/1", "mem", "environ", "maps"):
        try:
            os.close(os.open(f"/proc/{pid}/{what}", os.O_WRONLY if what == "fd/1" else os.O_RDONLY | os.O_NONBLOCK))
            print("OPEN", pid, what)
        except PermissionError:
            pass
print("found", found)
"""


@pytest.fixture(scope="module")
async def box(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Rig]:
    async with rig(tmp_path_factory.mktemp("runner")) as made:
        yield made


def peak_bytes() -> int:
    """The most memory this process has held since `reset_peak`."""
    text = Path("/proc/self/status").read_text()
    return int(re.search(r"VmHWM:\s+(\d+) kB", text)[1]) * 1024  # type: ignore[index]


def reset_peak() -> None:
    Path("/proc/self/clear_refs").write_text("5")


async def test_two_hundred_calls_in_a_row_are_exact(box: Rig) -> None:
    """None empty, none late."""
    results = [await box.sandbox.exec(["sh", "-c", "echo hello"]) for _ in range(200)]

    assert {(result.exit_code, result.stdout, result.stderr) for result in results} == {(0, b"hello\n", b"")}


async def test_a_flood_is_cut_and_bounded(box: Rig) -> None:
    """`yes` until its time is up: head and tail are kept, the total is true, the host's memory is not touched by it."""
    reset_peak()
    before = peak_bytes()
    result = await box.sandbox.exec(["yes"], timeout_s=1)

    assert (result.timed_out, len(result.stdout)) == (True, 10 * MIB)
    assert result.stdout_bytes > 20 * MIB
    assert set(result.stdout) == set(b"y\n")
    assert peak_bytes() - before < HOST_GROWTH_BYTES


async def test_three_hundred_megabytes_are_counted_and_bounded(box: Rig) -> None:
    """To the byte."""
    reset_peak()
    before = peak_bytes()
    result = await box.sandbox.exec(["head", "-c", "300000000", "/dev/zero"])

    assert (result.exit_code, result.stdout_bytes, len(result.stdout)) == (0, 300_000_000, 10 * MIB)
    assert peak_bytes() - before < HOST_GROWTH_BYTES


async def test_a_spill_file_is_bounded(box: Rig) -> None:
    """64 MiB, however much comes."""
    result = await box.sandbox.exec(["head", "-c", "100000000", "/dev/zero"], spill_path="/tmp/spill/flood")

    assert (result.stdout_bytes, result.spill_bytes) == (100_000_000, 64 * MIB)
    assert (await box.sandbox.resolve(["/tmp/spill/flood"]))[0].size_bytes == 64 * MIB


async def test_a_full_disk_does_not_fail_the_call(box: Rig) -> None:
    """The spill file ends early, and says so by its size."""
    await box.sandbox.exec(["bash", "-c", "head -c 60000000 /dev/zero > /var/tmp/fill"])
    result = await box.sandbox.exec(["head", "-c", "20000000", "/dev/zero"], spill_path="/var/tmp/spill/full")
    await box.sandbox.exec(["rm", "-r", "/var/tmp/fill", "/var/tmp/spill"])

    assert (result.exit_code, result.stdout_bytes) == (0, 20_000_000)
    assert 0 < result.spill_bytes < 8 * MIB


async def test_a_write_beyond_the_disk_limit_changes_nothing(box: Rig) -> None:
    """ENOSPC, the old content, and no rest of the attempt; also for a file with two names."""
    made = "cd /var/tmp; mkdir w; cd w; printf old > f; printf old > g; ln g h; head -c 60000000 /dev/zero > ../fill"
    await box.sandbox.exec(["bash", "-c", made])
    for name in ("f", "g"):
        digest = (await box.sandbox.read_file(f"/var/tmp/w/{name}")).sha256
        with pytest.raises(OSError, match="No space left"):
            await box.sandbox.replace_file(f"/var/tmp/w/{name}", bytes(20 * MIB), expected_sha256=digest)

    left = await box.sandbox.exec(["bash", "-c", "cd /var/tmp/w; cat f g h; ls -A; rm -rf /var/tmp/*"])
    assert left.stdout == b"oldoldoldf\ng\nh\n"


@pytest.mark.parametrize("way", ["kill -9 -1", "pkill -9 -f python3", "pkill -9 python3; pkill -9 sandbox-runner"])
async def test_a_killed_runner_is_told_and_replaced(box: Rig, way: str) -> None:
    """The call that did it and the one beside it get an error; nothing survives; the next call works."""
    mark = a_mark()
    beside: list[tuple[int, bytes]] = []

    async def other() -> None:
        result = await box.sandbox.exec(["bash", "-c", f"touch up; exec -a {mark} sleep 300"])
        beside.append((result.exit_code, result.stderr))

    async with anyio.create_task_group() as group:
        group.start_soon(other)
        await box.until("up")
        result = await box.sandbox.exec(["bash", "-c", f"{way}; sleep 5"])
    (box.workspace / "up").unlink()
    for code, stderr in [(result.exit_code, result.stderr), *beside]:
        assert code == 137
        assert stderr.decode().startswith(RUNNER_KILLED)

    assert await alive(box.sandbox, mark) == 0
    assert (await box.sandbox.exec(["echo", "next"])).stdout == b"next\n"


async def test_a_file_verb_beside_a_killed_runner_is_an_error(box: Rig) -> None:
    """Its own, so that a caller can look before it tries again; the file is whole, old or new."""
    large = bytes(60 * MIB)
    failures: list[OSError] = []

    async def write() -> None:
        try:
            await box.sandbox.replace_file("/workspace/large", large, expected_sha256=None)
        except RunnerKilledError as exc:
            failures.append(exc)

    async with anyio.create_task_group() as group:
        group.start_soon(write)
        await box.sandbox.exec(["bash", "-c", "kill -9 -1"])
    written = await box.sandbox.exec(["bash", "-c", "stat -c %s large || echo none; rm -f large"])

    assert written.stdout.strip() in ((b"none",) if failures else (b"62914560",))


@pytest.mark.parametrize("name", ["TERM", "HUP", "INT", "USR1", "PIPE", "ALRM", "QUIT", "TSTP"])
async def test_the_runner_shrugs_off_what_can_be_ignored(box: Rig, name: str) -> None:
    """No restart; the command's own default for the signal is the system's."""
    restarts = await runner_restarts(box)
    await box.sandbox.exec(["bash", "-c", f"trap '' {name}; kill -{name} -1; sleep 0.1"])
    own = await box.sandbox.exec(["sh", "-c", f"kill -{name} $$; echo ignored"], timeout_s=0.5)

    assert own.stdout == b""
    assert await runner_restarts(box) == restarts


async def test_a_stopped_keeper_is_an_error_and_not_a_hang(box: Rig) -> None:
    """A command that stops the process which keeps its own call."""
    with anyio.fail_after(20):
        result = await box.sandbox.exec(["bash", "-c", "kill -STOP $PPID; sleep 300"])

    assert (result.exit_code, b"killed" in result.stderr) == (137, True)
    assert (await box.sandbox.exec(["echo", "next"])).stdout == b"next\n"


async def test_a_stream_ends_with_its_runner(box: Rig) -> None:
    """End of output, exit code 137, and the next stream works."""
    stream = await box.sandbox.open(["cat"])
    await box.sandbox.exec(["bash", "-c", "kill -9 -1"])
    assert (await stream.receive(), await stream.exit_code()) == (b"", 137)
    await stream.aclose()
    again = await box.sandbox.open(["cat"])
    await again.send(b"x")
    assert await again.receive() == b"x"
    await again.aclose()


async def test_no_command_can_look_into_the_runner(box: Rig) -> None:
    """Neither its descriptors nor its memory, though it has the same uid; a plain process of that uid can be."""
    runner = await box.sandbox.exec(["python3", "-c", LOOK_INSIDE, "/usr/lib/sandbox-agent/python3"])
    plain = await box.sandbox.exec(["bash", "-c", 'sleep 5 & exec python3 -c "$0" sleep', LOOK_INSIDE])

    assert int(runner.stdout.split()[-1]) >= 2
    assert b"OPEN" not in runner.stdout
    assert plain.stdout.count(b"OPEN") == 5


async def test_a_fork_bomb_ends_with_its_call(tmp_path: Path) -> None:
    """In bounded time; afterwards the sandbox works."""
    async with rig(tmp_path, pids=128) as box:
        with anyio.fail_after(60):
            bomb = await box.sandbox.exec(["bash", "-c", "bomb() { bomb | bomb & }; bomb; sleep 300"], timeout_s=1)
            after = await box.sandbox.exec(["bash", "-c", "echo after; ps -u $(id -u) -o comm= | grep -c bash"])

    assert bomb.timed_out or bomb.exit_code == 137
    assert after.stdout == b"after\n1\n"


ESCAPING = """
import os
while True:
    try:
        if os.fork() == 0:
            os.setsid()
    except OSError:
        pass
"""


async def test_a_bomb_that_keeps_every_processor_busy_ends_with_its_call(tmp_path: Path) -> None:
    """Its keeper has the processor before all of it; nothing of it is left, also where the runner had to go with it."""
    async with rig(tmp_path) as box:
        bomb = await box.sandbox.exec(["python3", "-c", ESCAPING], timeout_s=0.5)
        after = await box.sandbox.exec(["bash", "-c", "ps -u $(id -u) -o comm= | grep -c python3; nice"])

    assert bomb.timed_out or bomb.exit_code == 137
    assert after.stdout == b"0\n10\n"


async def test_a_bomb_that_fills_the_process_limit_is_cleared(tmp_path: Path) -> None:
    """Started past the runner, it leaves no room for any exec: the limit is raised, all killed, the limit restored."""
    async with rig(tmp_path, pids=64) as box:
        before = await box.inspect()
        await box.start_outside(["bash", "-c", "kill -9 -1; trap '' TERM; while :; do sleep 300 & done 2>/dev/null"])
        with anyio.fail_after(90):
            result = await box.sandbox.exec(["echo", "one"])
            while result.exit_code != 0:
                result = await box.sandbox.exec(["echo", "one"])
        inspected = await box.inspect()

        assert result.stdout == b"one\n"
        assert inspected["HostConfig"]["PidsLimit"] == 64
        # Not by the last resort, which would lose /tmp and the home folder.
        assert inspected["State"]["StartedAt"] == before["State"]["StartedAt"]


MANY_SMALL = """
for i in $(seq 120); do bash -c 'x=$(printf %2000000s); sleep 20; echo ${#x}' & done
sleep 20
"""
"""None of them is as large as the runner, so it is the first that the kernel takes."""

FILL = """
for place in /tmp ~ /var/tmp /dev/shm; do head -c 300M /dev/zero > $place/fill; stat -c %s $place/fill; done 2>/dev/null
"""


async def test_memory_that_many_small_processes_use_up_is_named(tmp_path: Path) -> None:
    """Also where it is the runner that the kernel ends; the next call works, under the same limits."""
    async with rig(tmp_path, memory_bytes=96 * MIB) as box:
        bomb = await box.sandbox.exec(["bash", "-c", MANY_SMALL], timeout_s=60)
        with anyio.fail_after(5):
            after = await box.sandbox.exec(["bash", "-c", "echo after; ps -u $(id -u) -o comm= | grep -c bash"])
        inspected = await box.inspect()

    assert (bomb.exit_code, bomb.oom_killed) == (137, True)
    assert (after.stdout, after.oom_killed) == (b"after\n1\n", False)
    assert inspected["HostConfig"]["Memory"] == inspected["HostConfig"]["MemorySwap"] == 96 * MIB


async def test_full_temporary_places_leave_memory_to_go_on_with(tmp_path: Path) -> None:
    """Together they are smaller than the memory: who fills them gets an error, and nothing is killed."""
    async with rig(tmp_path, memory_bytes=256 * MIB) as box:
        filled = await box.sandbox.exec(["bash", "-c", FILL])
        after = await box.sandbox.exec(["python3", "-c", "print(len(b'x' * 2_000_000))"])

    assert filled.stdout.split() == [str(size * MIB).encode() for size in (128, 64, 8, 16)]
    assert (after.stdout, filled.oom_killed, after.oom_killed) == (b"2000000\n", False, False)


async def runner_restarts(box: Rig) -> str:
    """Changes when the runner was restarted."""
    result = await box.sandbox.exec(["bash", "-c", "ps -o ppid= -p $PPID"])
    return result.stdout.decode().strip()


async def test_what_a_call_used_is_told(box: Rig) -> None:
    """CPU time of all its processes, waited for or not, and the memory of the largest."""
    burn = "python3 -c 'import time\nwhile time.process_time() < 0.15: pass'"
    spent = await box.sandbox.exec(["bash", "-c", f"{burn} & {burn}; wait"])
    assert spent.cpu_s is not None
    assert 0.3 <= spent.cpu_s < 2.0

    idle = await box.sandbox.exec(["bash", "-c", "sleep 0.3"])
    assert idle.cpu_s is not None
    assert idle.cpu_s < 0.15

    large = await box.sandbox.exec(["python3", "-c", "print(len(b'x' * 200_000_000))"])
    assert large.max_rss_bytes is not None
    assert 200_000_000 < large.max_rss_bytes < 400_000_000
