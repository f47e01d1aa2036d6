"""A recorded session without an engine: an in-memory sandbox, and the same tools as a frozen replay has."""

from __future__ import annotations

import hashlib
import json
import zipfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import anyio
from engine_session import make_session, play, strict

from sandbox_agent.config import RunConfig
from sandbox_agent.engine import offered, session_hooks
from sandbox_agent.engine.agent_types import load_agent_types
from sandbox_agent.engine.child import with_types
from sandbox_agent.engine.frozen import open_frozen
from sandbox_agent.engine.locking import lock_of
from sandbox_agent.engine.loop import run
from sandbox_agent.engine.own_tools import names_of, pool_of
from sandbox_agent.engine.recording import Recording
from sandbox_agent.engine.replaying import Replaying
from sandbox_agent.engine.session import Session
from sandbox_agent.engine.structured import StructuredAnswer
from sandbox_agent.engine.subagents import Team
from sandbox_agent.events import Event, RunFinished, SessionStarted
from sandbox_agent.models.script_file import Script
from sandbox_agent.models.scripted import ScriptedModel
from sandbox_agent.policy.load import load_policy
from sandbox_agent.policy.policy import Policy
from sandbox_agent.records import bundle as bundles
from sandbox_agent.records.steps import canonical, sha256_of
from sandbox_agent.sandboxes.fake import FakeSandbox

ALLOW = ["Bash(echo:*)", "Read", "Edit(/**)", "Task"]


STARTED = SessionStarted(
    session_id="0123456789abcdef",
    model="script:test",
    workspace="/home/me/project",
    workspace_mode="none",
    image="dev",
    policy="default",
    mode="default",
    tools=(),
    version="1",
    sandbox={"seccomp": "debug", "memory_bytes": 2**40, "allow_hosts": [{"host": "evil.example", "port": 443}]},
)
"""As a hostile bundle might have it: wide open."""


async def record(
    turns: Sequence[Mapping[str, Any]],
    folder: Path,
    *,
    policy: Policy | None = None,
    sandbox: FakeSandbox | None = None,
    prepare: Callable[[Session], None] | None = None,
    agents: Mapping[str, Sequence[Mapping[str, Any]]] | None = None,
    schema: dict[str, Any] | None = None,
) -> Path:
    """Record a run of these turns, and of these of sub-agents, with an answer of a form; returns the bundle."""
    policy = policy or load_policy(None, allow=ALLOW)
    types = load_agent_types(folder / "none", names_of(()), folder)
    file = folder / "run.bundle"
    state = folder / "state"
    state.mkdir()
    config = RunConfig(workspace=folder, model="script:test", answer_schema=schema)
    answer = StructuredAnswer(schema) if schema is not None else None
    lock = lock_of(config, policy, types, (), approver=False, ask=False, hooks=False, tools=False)
    recording = Recording(file, lock)
    box = sandbox or FakeSandbox({"/workspace/a.txt": b"one\n"})
    async with make_session(turns, state, policy=policy, sandbox=box) as session:
        session.pool = with_types(pool_of(policy, (answer.tool,) if answer else ()), types)
        offered.attach(session, ask=None, opens=None, planned=False)
        Team(types, policy.limits, session.jobs).attach(session)
        if answer is not None:
            session.answer = answer
            session_hooks.attach(session, (answer.hook,))
        session.ctx.by_name = True
        session.proof = recording
        if agents:
            played = ScriptedModel(script=Script.model_validate({"turns": tuple(turns), "agents": agents}))
            session.model = strict(played)
        session.model = recording.model(session.model)
        session.emit(STARTED)
        if prepare is not None:
            prepare(session)
        await play(session)
        await recording.close(session)
    assert recording.fault is None
    return file


async def replay(file: Path) -> tuple[Replaying, list[Event]]:
    """Replay it frozen."""
    replaying = Replaying(bundles.read(file), frozen=True)
    async with open_frozen(replaying) as session:
        with anyio.fail_after(20):
            events = [event async for event in run(session, replaying.task)]
    assert isinstance(events[-1], RunFinished)
    return replaying, events


Parts = dict[str, bytes]


def parts_of(file: Path) -> Parts:
    """What is in the bundle."""
    with zipfile.ZipFile(file) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def write(file: Path, parts: Parts) -> Path:
    """A bundle of other parts, as somebody would make it who does not care for the chain."""
    changed = file.with_name("changed.bundle")
    with zipfile.ZipFile(changed, "w") as archive:
        for name, data in parts.items():
            archive.writestr(name, data)
    return changed


def steps_of(parts: Parts) -> list[dict[str, Any]]:
    return [json.loads(line) for line in parts[bundles.STEPS].splitlines()]


def forged(file: Path, change: Callable[[dict[str, Any], list[dict[str, Any]]], None]) -> Path:
    """A bundle with another lock or other steps whose whole chain was made anew, so that only a replay can tell."""
    parts = parts_of(file)
    lock, steps = json.loads(parts[bundles.LOCK]), steps_of(parts)
    change(lock, steps)
    head, lines = sha256_of(lock), []
    for number, step in enumerate(steps):
        body = {**{key: step[key] for key in ("agent", "kind", "data")}, "step": number, "prev": head}
        head = sha256_of(body)
        lines.append(canonical({**body, "hash": head}) + b"\n")
    return write(file, {**parts, bundles.LOCK: canonical(lock), bundles.STEPS: b"".join(lines)})


def with_tree(file: Path, listing: list[dict[str, Any]], contents: Sequence[bytes], *changed: dict[str, Any]) -> Path:
    """The bundle with a folder at its beginning, and what the calls changed in it, one after the other."""
    parts = {**parts_of(file), bundles.TREE: canonical(listing)}
    parts |= {bundles.BLOBS + hashlib.sha256(data).hexdigest(): data for data in contents}
    blobs = sorted(name.removeprefix(bundles.BLOBS) for name in parts if name.startswith(bundles.BLOBS))

    def change(lock: dict[str, Any], steps: list[dict[str, Any]]) -> None:
        lock["base"] = {"kept": True, "sha256": None}
        steps[-1]["data"] |= bundles.hashes_of(parts) | {"blobs": blobs}
        left = list(changed)
        for number in reversed([at for at, step in enumerate(steps) if step["kind"] == "result"][: len(changed)]):
            data = {"call": steps[number]["data"]["call_id"], "sha256": "", "changed": left.pop(), "seq": 0}
            steps.insert(number + 1, {"agent": steps[number]["agent"], "kind": "tree", "data": data})

    made = forged(write(file, parts), change)
    return made.replace(file.with_name("tree.bundle"))
