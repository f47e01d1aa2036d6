"""Hooks on this machine, as real processes: what they get, what bounds them, and that nothing of them is left."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import anyio
import anyio.to_thread
import pytest

from sandbox_agent.engine.hook_process import MAX_OUTPUT_BYTES, HookEnd, host_environment, run_on_host
from sandbox_agent.policy.hooks import Hook, HookEvent

END_S = 20


def python(text: str, folder: Path, **fields: Any) -> Hook:
    command = (sys.executable, "-I", "-c", text)
    return Hook("h", HookEvent.PRE_TOOL_USE, command, "host", folder=str(folder), **fields)


async def run(hook: Hook, stdin: bytes = b"", *, without: str = "/nowhere") -> HookEnd:
    with anyio.fail_after(END_S):
        return await run_on_host(hook, stdin, without=Path(without))


async def test_it_gets_the_text_and_next_to_no_environment(tmp_path: Path) -> None:
    """PATH, HOME and LANG, a mark of ours, and the folder of its file: nothing of what we have, so no key."""
    assert set(os.environ) - {"HOME", "LANG", "PATH"}
    text = (
        "import os,sys; print(sorted(set(os.environ) - {'LC_CTYPE', 'SANDBOX_AGENT_HOOK'})); "
        "print(os.getcwd()); print(sys.stdin.read()); sys.exit(2)"
    )
    end = await run(python(text, tmp_path), b"told")

    assert end.stdout.decode().splitlines() == ["['HOME', 'LANG', 'PATH']", str(tmp_path), "told"]
    assert (end.exit_code, end.fault) == (2, None)


def test_programs_of_the_workspace_are_not_found(tmp_path: Path) -> None:
    """A virtual environment in the project is on many a PATH, and the agent can write it."""
    venv = tmp_path / "venv" / "bin"
    venv.mkdir(parents=True)
    (tmp_path.parent / "link").symlink_to(venv)
    path = f"{venv}:/usr/bin:.:bin:{tmp_path.parent / 'link'}:/bin"

    assert host_environment({"PATH": path}, tmp_path)["PATH"] == "/usr/bin:/bin"
    assert host_environment({"PATH": str(venv)}, tmp_path)["PATH"] == "/usr/local/bin:/usr/bin:/bin"


async def test_one_that_takes_too_long_is_ended(tmp_path: Path) -> None:
    """With what it started."""
    text = "import subprocess,sys; p = subprocess.Popen(['sleep', '4322']); print(p.pid, flush=True); p.wait()"
    end = await run(python(text, tmp_path, timeout_s=1.0))

    assert (end.exit_code, end.fault) == (None, "did not end within 1 s")
    assert not _lives(int(end.stdout))


@pytest.mark.parametrize("how", ["start_new_session=True", "env={'PATH': '/usr/bin:/bin'}"])
async def test_what_it_leaves_behind_ends_with_it(tmp_path: Path, how: str) -> None:
    """Also what left its session or has another environment, holds its pipes and ignores signals."""
    text = (
        "import subprocess; p = subprocess.Popen(['sh', '-c', 'trap \"\" TERM HUP; sleep 4323'],"
        f" {how}); print(p.pid, flush=True)"
    )
    end = await run(python(text, tmp_path))

    assert (end.exit_code, end.fault) == (0, None)
    assert not _lives(int(end.stdout))


async def test_cancelling_ends_it(tmp_path: Path) -> None:
    """An interrupted run leaves nothing on the machine."""
    begun = tmp_path / "begun"
    os.mkfifo(begun)
    text = f"import os,time; open({str(begun)!r}, 'w').write(str(os.getpid())); time.sleep(4324)"
    async with anyio.create_task_group() as group:
        group.start_soon(run, python(text, tmp_path))
        pid = int(await anyio.to_thread.run_sync(begun.read_text))
        group.cancel_scope.cancel()

    assert not _lives(pid)


@pytest.mark.parametrize("stream", ["stdout", "stderr"])
async def test_one_that_writes_without_end_is_ended(tmp_path: Path, stream: str) -> None:
    """On either stream, and its answer is not used."""
    text = f"import sys\nwhile True: sys.{stream}.write('x' * 65536)"
    end = await run(python(text, tmp_path))

    assert end.fault == f"wrote more than {MAX_OUTPUT_BYTES} bytes"
    assert max(len(end.stdout), len(end.stderr)) < 2 * MAX_OUTPUT_BYTES


async def test_one_that_reads_nothing_is_no_fault(tmp_path: Path) -> None:
    """However much there is to read."""
    end = await run(python("print('x')", tmp_path), b"x" * 5_000_000)

    assert (end.exit_code, end.stdout, end.fault) == (0, b"x\n", None)


@pytest.mark.parametrize("command", [("/nowhere/x",), ("no-such-program-anywhere",)])
async def test_one_that_cannot_be_started_is_a_fault(tmp_path: Path, command: tuple[str, ...]) -> None:
    """And says why."""
    end = await run(Hook("h", HookEvent.STOP, command, "host", folder=str(tmp_path)))

    assert end.exit_code is None
    assert str(end.fault).startswith("could not be started: ")


def _lives(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return Path("/proc", str(pid), "stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
