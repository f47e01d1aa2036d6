"""The checkpoints part: a folder of 5,000 files and 50 MB on the overlay, 20 of them changed, then 100,000 files.

All in one session, as a run has it. A checkpoint is from the end of the call to the step on disk; a rollback until
the tree stands again and was looked at; a fork until the new session can be gone on with, and until its tree stands in
its own container. Beside the fork stands what people do without it: `git worktree add` of the same folder.
"""

from __future__ import annotations

import os
import secrets
import shutil
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import anyio

from bench.plan import Results
from sandbox_agent.config import sessions_dir
from sandbox_agent.engine.checkpoints import Checkpoints
from sandbox_agent.engine.discarding import discard
from sandbox_agent.engine.forking import fork
from sandbox_agent.engine.past import EVENTS_FILE, new_session_id
from sandbox_agent.errors import SandboxAgentError
from sandbox_agent.events import SessionStarted
from sandbox_agent.sandboxes.base import Sandbox
from sandbox_agent.sandboxes.docker import create as create_sandbox
from sandbox_agent.sandboxes.endpoint import resolve_endpoint
from sandbox_agent.sandboxes.spec import SandboxSpec
from sandbox_agent.tape import TapeWriter
from sandbox_agent.workspaces.base import Workspace
from sandbox_agent.workspaces.opening import create

FILES, FILE_BYTES = 5_000, 10_000
MANY_FILES, MANY_BYTES = 100_000, 100
CHANGED = 20
NEW_FILES = 100_000
CHANGE = f"for i in $(seq 0 {CHANGED - 1}); do echo $RANDOM$RANDOM >> d$((i % 10))/s$((i % 7))/f$i; done"
ADD = f"""
import os
for number in range({NEW_FILES}):
    folder = f"new/{{number // 100}}"
    if number % 100 == 0:
        os.makedirs(folder)
    with open(f"{{folder}}/{{number}}", "w") as file:
        file.write(f"{{number}} " * 15)
"""


async def measure_checkpoints(names: tuple[str, ...], rounds: int, quick: bool, work: Path, results: Results) -> None:
    """Fill in the rows of checkpoints."""
    if "ours" in names:
        os.environ["XDG_STATE_HOME"] = str(work / "checkpoint-state")
        try:
            await _ours(rounds, quick, work, results)
        except (SandboxAgentError, OSError) as exc:
            results.trouble("checkpoint", "ours", str(exc))
    if "git" in names:
        await anyio.to_thread.run_sync(_git, rounds, work, results)


async def _ours(rounds: int, quick: bool, work: Path, results: Results) -> None:
    folder = await anyio.to_thread.run_sync(_folder, work, FILES, FILE_BYTES)
    async with _session(folder) as opened:
        checkpoints, sandbox = opened.checkpoints, opened.sandbox
        for number in range(2 * rounds + 1):
            print(f"bench: checkpoints, {number} of {2 * rounds}", file=sys.stderr, flush=True)
            await sandbox.exec(["bash", "-c", CHANGE], cwd="/workspace")
            checkpoint_s = await _timed(checkpoints.take(("call",), checkpoints.expect()))
            step = checkpoints.steps.numbers()[-1]
            started_s = time.perf_counter()
            made = await anyio.to_thread.run_sync(fork, opened.state.name, step)
            fork_s = time.perf_counter() - started_s
            if number > rounds:
                async with _session(folder, sessions_dir() / made.session_id) as forked:
                    results.add("fork_tree", "ours", fork_s + forked.ready_s)
            else:
                shutil.rmtree(sessions_dir() / made.session_id)
            rollback_s = await _timed(checkpoints.undo(0))
            if number:  # the first of each pays for caches and imports
                results.add("checkpoint", "ours", checkpoint_s)
                results.add("rollback", "ours", rollback_s)
                results.add("fork", "ours", fork_s)
        results.add("fork_none", "ours", opened.ready_s)
        if not quick:
            await _add(opened, results)
    if quick:
        return
    folder = await anyio.to_thread.run_sync(_folder, work, MANY_FILES, MANY_BYTES)
    async with _session(folder) as opened:
        checkpoints, sandbox = opened.checkpoints, opened.sandbox
        for number in range(rounds + 1):
            print(f"bench: checkpoints of {MANY_FILES:,} files, {number} of {rounds}", file=sys.stderr, flush=True)
            await sandbox.exec(["bash", "-c", CHANGE], cwd="/workspace")
            seconds = await _timed(checkpoints.take(("call",), checkpoints.expect()))
            if number:
                results.add("checkpoint100k", "ours", seconds)


async def _add(opened: _Opened, results: Results) -> None:
    """A step of many new files."""
    print(f"bench: checkpoint of {NEW_FILES:,} new files", file=sys.stderr, flush=True)
    await opened.sandbox.exec(["python3", "-c", ADD], cwd="/workspace", timeout_s=600)
    checkpoints = opened.checkpoints
    results.add("checkpoint_new", "ours", await _timed(checkpoints.take(("call",), checkpoints.expect())))


async def _timed(work: object) -> float:
    started_s = time.perf_counter()
    await work  # type: ignore[misc]
    return time.perf_counter() - started_s


@dataclass(frozen=True, slots=True)
class _Opened:
    """`ready_s` is what making the workspace and taking step 0 took, the start of the container left out."""

    checkpoints: Checkpoints
    state: Path
    sandbox: Sandbox
    ready_s: float


@asynccontextmanager
async def _session(folder: Path, forked: Path | None = None) -> AsyncIterator[_Opened]:
    """A session on the folder as a run has it: overlay, hardened container, a record; and its checkpoints, begun."""
    state = forked or sessions_dir() / new_session_id()
    started_s = time.perf_counter()
    workspace: Workspace = await anyio.to_thread.run_sync(create, "overlay", folder, state)
    tape = TapeWriter(state / EVENTS_FILE)
    endpoint = resolve_endpoint(os.environ)
    sandbox = None
    try:
        if forked is None:
            tape.append(_started(state.name, folder))
        await anyio.to_thread.run_sync(workspace.prepare)
        ready_s = time.perf_counter() - started_s
        owner = workspace.owner
        spec = SandboxSpec(
            workspace_source=workspace.mount, uid=owner.uid, gid=owner.gid, session_id=state.name, state_dir=str(state)
        )
        sandbox = create_sandbox(spec, endpoint)
        await sandbox.start()
        checkpoints = Checkpoints(sandbox, workspace, state, emit=tape.append, last_seq=lambda: tape.last_seq)
        ready_s += await _timed(checkpoints.begin(after_seq=tape.last_seq))
        yield _Opened(checkpoints, state, sandbox, ready_s)
    finally:
        with anyio.CancelScope(shield=True):
            if sandbox is not None:
                await sandbox.close()
            tape.close()
            await anyio.to_thread.run_sync(workspace.release)
            await discard(state, endpoint)
            shutil.rmtree(state)


def _started(session_id: str, folder: Path) -> SessionStarted:
    return SessionStarted(
        session_id=session_id,
        model="none",
        workspace=str(folder),
        workspace_mode="overlay",
        image="base",
        policy="default",
        mode="default",
        tools=(),
        version="bench",
    )


def _folder(work: Path, files: int, size: int) -> Path:
    """A git repository of so many files, made once."""
    folder = work / f"checkpoint-{files}"
    if (folder / ".git").exists():
        return folder
    shutil.rmtree(folder, ignore_errors=True)
    for number in range(files):
        place = folder / (f"d{number % 10}/s{number % 7}" if number < CHANGED else f"e{number // 5000}/s{number // 50}")
        place.mkdir(parents=True, exist_ok=True)
        (place / f"f{number}").write_bytes(secrets.token_hex(size // 2).encode())
    _run_git(folder, "init", "-q")
    _run_git(folder, "add", ".")
    _run_git(folder, "commit", "-qm", "All")
    _run_git(folder, "repack", "-adq")  # a file for each object would double the tree
    _run_git(folder, "prune-packed")
    return folder


def _git(rounds: int, work: Path, results: Results) -> None:
    folder = _folder(work, FILES, FILE_BYTES)
    for _ in range(rounds):
        tree = work / f"worktree-{secrets.token_hex(4)}"
        started_s = time.perf_counter()
        _run_git(folder, "worktree", "add", "-q", "--detach", str(tree))
        results.add("fork", "git", time.perf_counter() - started_s)
        _run_git(folder, "worktree", "remove", "--force", str(tree))


def _run_git(folder: Path, *arguments: str) -> None:
    identity = ["-c", "user.name=Bench", "-c", "user.email=bench@example.org", "-c", "gc.auto=0"]
    subprocess.run(["git", *identity, *arguments], cwd=folder, check=True, stdout=subprocess.DEVNULL)
