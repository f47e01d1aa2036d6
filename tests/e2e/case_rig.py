"""The engine on a real container for the cases: a scripted model calls the real tools, each request is checked as the
API would, and the results come back in call order."""

from __future__ import annotations

import os
import secrets
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import anyio
import anyio.lowlevel

from sandbox_agent.engine.approval import Approver
from sandbox_agent.engine.late import LateSandbox
from sandbox_agent.engine.lock import SessionLock
from sandbox_agent.engine.loop import run
from sandbox_agent.engine.session import Rights, Session
from sandbox_agent.events import Event, PermissionDecided, RunFinished, ToolFinished, ToolResultsMessage
from sandbox_agent.models.base import ModelRequest
from sandbox_agent.models.outgoing import request_body
from sandbox_agent.models.scripted import ScriptedModel
from sandbox_agent.policy.load import parse_policy
from sandbox_agent.policy.policy import Policy
from sandbox_agent.sandboxes.base import Sandbox
from sandbox_agent.sandboxes.docker import create as create_sandbox
from sandbox_agent.sandboxes.endpoint import resolve_endpoint
from sandbox_agent.sandboxes.spec import SandboxSpec
from sandbox_agent.tape import TapeWriter, read_tape
from sandbox_agent.testing.api_rules import check_request
from sandbox_agent.tools.base import ToolContext
from sandbox_agent.tools.pool import assemble_tool_pool, builtin_tools
from sandbox_agent.types import JsonObject, Limits, Mode
from sandbox_agent.workspaces.base import Workspace
from sandbox_agent.workspaces.opening import create as create_workspace

OWNER = os.getuid() or 1234
"""Whose the workspace is: never root, so that a file of root's would show."""

PATIENCE_S = 60
EVERYTHING = "version: 1\nname: everything\nmode: bypassPermissions\n"
"""The policy of cases that are not about permissions."""

Call = dict[str, Any]


@dataclass(frozen=True)
class Result:
    """What the model was given for one call; `duration_s` is how long the call took."""

    text: str
    is_error: bool
    meta: JsonObject
    duration_s: float
    content: str | tuple[JsonObject, ...] = ""


@dataclass(frozen=True)
class Played:
    """A run: `results` in call order over all turns, `requests` as they would go to the API."""

    events: list[Event]
    requests: list[JsonObject]
    results: list[Result]
    record: Path

    @property
    def end(self) -> RunFinished:
        """The last event."""
        last = self.events[-1]
        assert isinstance(last, RunFinished)
        return last

    @property
    def decisions(self) -> list[PermissionDecided]:
        """What the gate said, in call order."""
        return [event for event in self.events if isinstance(event, PermissionDecided)]

    def finished(self) -> list[ToolFinished]:
        """The calls as the record on disk has them, in the order they ended."""
        return [entry.event for entry in read_tape(self.record).entries if isinstance(entry.event, ToolFinished)]


class _Checked:
    """A scripted model that takes nothing the Messages API would refuse."""

    def __init__(self, turns: Sequence[Mapping[str, Any]], deeds: Mapping[int, Callable[[], None]]) -> None:
        self.bodies: list[JsonObject] = []
        self._deeds = deeds
        self._model = ScriptedModel(turns)

    @property
    def name(self) -> str:
        return self._model.name

    async def stream(self, request: ModelRequest) -> AsyncIterator[Any]:
        body = request_body(request, "claude-test")
        check_request(body)
        if (deed := self._deeds.get(len(self.bodies))) is not None:
            deed()
        self.bodies.append(body)
        async for event in self._model.stream(request):
            yield event

    async def window_tokens(self, used_tokens: int, model: str | None = None) -> int | None:
        return await self._model.window_tokens(used_tokens, model)

    async def aclose(self) -> None:
        await self._model.aclose()


@dataclass
class Desk:
    """A started sandbox; `workspace` is the host's side of /workspace, `state` is where records go."""

    sandbox: Sandbox
    workspace: Path
    state: Path
    bound: Workspace
    _runs: int = field(default=0)

    def put(self, name: str, data: bytes | str = b"", *, mode: int = 0o644) -> Path:
        """Make a file of the workspace, as its owner's."""
        path = self.workspace / name
        for parent in reversed(path.relative_to(self.workspace).parents[:-1]):
            folder = self.workspace / parent
            if not folder.exists():
                folder.mkdir()
                os.chown(folder, OWNER, OWNER)
        path.write_bytes(data.encode() if isinstance(data, str) else data)
        os.chmod(path, mode)
        os.chown(path, OWNER, OWNER)
        return path

    async def make(self, script: str) -> None:
        """Run a script in the container that must succeed, to set things up."""
        done = await self.sandbox.exec(["bash", "-c", f"set -e\n{script}"], merge_stderr=True, timeout_s=60)
        assert done.exit_code == 0, done.stdout

    async def play(
        self,
        *steps: Sequence[Call] | Call | Callable[[], None],
        policy: Policy | None = None,
        mode: Mode | None = None,
        approver: Approver | None = None,
        limits: Limits | None = None,
        may_fail: bool = False,
    ) -> Played:
        """Run one session in which the model makes these calls: a list is one turn, a mapping a turn of one call or a
        ready turn, a function is done while the model thinks about its next turn."""
        turns, deeds = _turns(steps)
        model = _Checked([*turns, {"text": "All done."}], deeds)
        rules = policy or parse_policy(EVERYTHING, "case")
        self._runs += 1
        folder = self.state / f"run{self._runs}"
        folder.mkdir()
        async with _session(self, folder, model, rules, mode or rules.mode, approver, limits) as session:
            with anyio.fail_after(PATIENCE_S):
                events = [event async for event in run(session, "do it")]
        played = Played(events, model.bodies, gather(events), folder / "events.jsonl")
        assert may_fail or played.end.error is None, played.end.error
        return played

    async def calls(self, *calls: Call) -> list[Result]:
        """One call a turn; the results."""
        return (await self.play(*calls)).results

    async def bash(self, command: str, *, timeout_s: float | None = None) -> Result:
        """One Bash call."""
        [result] = await self.calls(bash(command, timeout_s=timeout_s))
        return result


def use(name: str, /, **fields: Any) -> Call:
    """A tool call."""
    return {"name": name, "input": fields}


def bash(command: str, *, timeout_s: float | None = None) -> Call:
    """A Bash call; its limit in seconds."""
    return use("Bash", command=command, **({} if timeout_s is None else {"timeout": int(timeout_s * 1000)}))


@asynccontextmanager
async def started(folder: Path, **options: Any) -> AsyncIterator[Desk]:
    """A desk whose workspace lies in `folder`; `options` are fields of the sandbox's spec."""
    workspace, state = folder / "workspace", folder / "state"
    for place in (workspace, state):
        place.mkdir()
    os.chown(workspace, OWNER, OWNER)
    spec = SandboxSpec(str(workspace), OWNER, OWNER, f"case-{secrets.token_hex(6)}", str(state), **options)

    async def make() -> Sandbox:
        return create_sandbox(spec, resolve_endpoint(os.environ))

    sandbox = LateSandbox(make, beside=anyio.lowlevel.checkpoint)
    try:
        await sandbox.start()
        yield Desk(sandbox, workspace, state, create_workspace("bind", workspace, folder / "bound"))
    finally:
        await sandbox.close()


@asynccontextmanager
async def _session(
    desk: Desk,
    folder: Path,
    model: _Checked,
    policy: Policy,
    mode: Mode,
    approver: Approver | None,
    limits: Limits | None,
) -> AsyncIterator[Session]:
    async with anyio.create_task_group() as tasks:
        session = Session(
            id=folder.name,
            model=model,
            sandbox=desk.sandbox,
            workspace=desk.bound,
            pool=assemble_tool_pool(builtin_tools()),
            rights=Rights(policy),
            mode=mode,
            limits=limits or Limits(),
            ctx=ToolContext(sandbox=desk.sandbox, workspace_host=str(desk.workspace)),
            system=(),
            tape=TapeWriter(folder / "events.jsonl"),
            lock=SessionLock(folder),
            tasks=tasks,
            approver=approver,
        )
        yield session
        tasks.cancel_scope.cancel()
    session.tape.close()
    session.lock.release()


def _turns(
    steps: Sequence[Sequence[Call] | Call | Callable[[], None]],
) -> tuple[list[Mapping[str, Any]], dict[int, Callable[[], None]]]:
    turns: list[Mapping[str, Any]] = []
    deeds: dict[int, Callable[[], None]] = {}
    for step in steps:
        if callable(step):
            deeds[len(turns)] = step
        elif isinstance(step, Mapping):
            turns.append({"tools": [step]} if "name" in step else step)
        else:
            turns.append({"tools": list(step)})
    return turns, deeds


def gather(events: Sequence[Event]) -> list[Result]:
    """The results of all turns, in call order."""
    finished = {event.call_id: event for event in events if isinstance(event, ToolFinished)}
    found = []
    for event in events:
        if isinstance(event, ToolResultsMessage):
            blocks = [block for block in event.content if block["type"] == "tool_result"]
            found += [_result(block, finished[block["tool_use_id"]]) for block in blocks]
    return found


def _result(block: JsonObject, event: ToolFinished) -> Result:
    content = block["content"]
    text = content if isinstance(content, str) else "\n".join(str(part.get("text", "")) for part in content)
    return Result(text, bool(block.get("is_error")), event.meta, event.duration_s, content)
