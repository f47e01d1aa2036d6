"""Running one hook to its end, in the container or on this machine: JSON goes in, an exit code and two texts come out.

On this machine it gets no environment but PATH, HOME and LANG, starts in the folder of the file it is from, and is a
session of its own; whatever of it is left at its end, by group or by mark, is killed.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import select
import signal
import subprocess
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import anyio
import anyio.to_thread
from anyio.abc import ByteReceiveStream, ByteSendStream, Process

from sandbox_agent.policy.hooks import Hook
from sandbox_agent.sandboxes.base import Sandbox

MAX_OUTPUT_BYTES = 1024 * 1024
"""Per stream; more makes the answer unusable."""

DEFAULT_PATH = "/usr/local/bin:/usr/bin:/bin"
_MARK = "SANDBOX_AGENT_HOOK"
_CHUNK_BYTES = 64 * 1024
_DEATH_MS = 1000


@dataclass(frozen=True, slots=True)
class HookEnd:
    """How a hook ended. `exit_code` is None when it did not end by itself, `fault` why nothing can be made of it."""

    exit_code: int | None
    stdout: bytes = b""
    stderr: bytes = b""
    fault: str | None = None
    duration_s: float = 0.0


async def run_in_container(sandbox: Sandbox, hook: Hook, stdin: bytes) -> HookEnd:
    """Run it beside the tools.

    Raises:
        SandboxError: the sandbox is gone.
    """
    started_s = time.monotonic()
    try:
        done = await sandbox.exec_apart(
            hook.command, stdin=stdin, timeout_s=hook.timeout_s, max_output_bytes=MAX_OUTPUT_BYTES
        )
    except (OSError, ValueError) as exc:
        return HookEnd(None, fault=f"could not be run: {exc}", duration_s=time.monotonic() - started_s)
    duration_s = time.monotonic() - started_s
    if done.timed_out:
        return HookEnd(None, done.stdout, done.stderr, _too_slow(hook), duration_s)
    fault = _too_much() if done.truncated else None
    return HookEnd(done.exit_code, done.stdout, done.stderr, fault, duration_s)


async def run_on_host(hook: Hook, stdin: bytes, *, without: Path) -> HookEnd:
    """Run it on this machine.

    Args:
        hook: the user's own.
        stdin: what it is told.
        without: a folder whose programs are never found by PATH: what the agent can write.
    """
    started_s = time.monotonic()
    mark = secrets.token_hex(16)
    try:
        process = await anyio.open_process(
            hook.command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            cwd=hook.folder,
            env={**host_environment(os.environ, without), _MARK: mark},
            start_new_session=True,
        )
    except (OSError, ValueError) as exc:
        return HookEnd(None, fault=f"could not be started: {exc}", duration_s=time.monotonic() - started_s)
    stdout, stderr = bytearray(), bytearray()
    exit_code: int | None = None
    try:
        with anyio.move_on_after(hook.timeout_s):
            exit_code = await _finished(process, stdin, stdout, stderr, mark)
    finally:
        with anyio.CancelScope(shield=True):
            await anyio.to_thread.run_sync(_kill_all, process.pid, mark)
            await process.aclose()
    duration_s = time.monotonic() - started_s
    too_much = max(len(stdout), len(stderr)) > MAX_OUTPUT_BYTES
    fault = _too_much() if too_much else _too_slow(hook) if exit_code is None else None
    return HookEnd(exit_code, bytes(stdout), bytes(stderr), fault, duration_s)


def host_environment(env: Mapping[str, str], without: Path) -> dict[str, str]:
    """What a hook on this machine finds: HOME, LANG, and of PATH the absolute folders outside the workspace."""
    root = without.resolve()
    entries = [entry for entry in env.get("PATH", DEFAULT_PATH).split(":") if entry.startswith("/")]
    kept = [entry for entry in entries if not Path(entry).resolve().is_relative_to(root)]
    return {"PATH": ":".join(kept) or DEFAULT_PATH, "HOME": str(Path.home()), "LANG": "C.UTF-8"}


async def _finished(process: Process, stdin: bytes, stdout: bytearray, stderr: bytearray, mark: str) -> int | None:
    """Its exit code; None when it had to be stopped because it wrote too much."""
    assert process.stdin is not None
    assert process.stdout is not None
    assert process.stderr is not None
    ended_by_itself = True
    async with anyio.create_task_group() as group:

        async def read(stream: ByteReceiveStream, kept: bytearray) -> None:
            nonlocal ended_by_itself
            with contextlib.suppress(anyio.EndOfStream, anyio.ClosedResourceError, anyio.BrokenResourceError):
                while len(kept) <= MAX_OUTPUT_BYTES:
                    kept += await stream.receive(_CHUNK_BYTES)
                ended_by_itself = False
                group.cancel_scope.cancel()

        group.start_soon(_feed, process.stdin, stdin)
        group.start_soon(read, process.stdout, stdout)
        group.start_soon(read, process.stderr, stderr)
        await process.wait()
        # What it left behind may hold the pipes open, and they are to come to an end.
        await anyio.to_thread.run_sync(_kill_all, process.pid, mark)
    return process.returncode if ended_by_itself else None


async def _feed(stream: ByteSendStream, data: bytes) -> None:
    """A hook need not read what it is told."""
    with contextlib.suppress(anyio.BrokenResourceError, anyio.ClosedResourceError, ConnectionResetError):
        await stream.send(data)
    with contextlib.suppress(BrokenPipeError, ConnectionResetError):
        await stream.aclose()


def _kill_all(pid: int, mark: str) -> None:
    """Its group, and whatever left that and still carries the mark in its environment."""
    with contextlib.suppress(OSError):
        os.killpg(pid, signal.SIGKILL)
    for name in os.listdir("/proc"):
        if name.isdigit():
            _kill_if_marked(int(name), f"{_MARK}={mark}".encode())


def _kill_if_marked(pid: int, mark: bytes) -> None:
    """By a descriptor, so that what is killed is what was looked at, and waited for."""
    with contextlib.suppress(OSError):
        process = os.pidfd_open(pid)
        try:
            if mark in Path("/proc", str(pid), "environ").read_bytes().split(b"\0"):
                signal.pidfd_send_signal(process, signal.SIGKILL)
                poll = select.poll()
                poll.register(process, select.POLLIN)
                poll.poll(_DEATH_MS)
        finally:
            os.close(process)


def _too_slow(hook: Hook) -> str:
    return f"did not end within {hook.timeout_s:g} s"


def _too_much() -> str:
    return f"wrote more than {MAX_OUTPUT_BYTES} bytes"
