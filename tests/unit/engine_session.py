"""A session for engine tests: scripted model, in-memory sandbox, small tools, each request checked as the API would."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Collection, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import anyio

from sandbox_agent.engine.approval import Approver
from sandbox_agent.engine.lock import SessionLock
from sandbox_agent.engine.loop import run
from sandbox_agent.engine.session import Rights, Session
from sandbox_agent.events import Event, RunFinished, ToolFinished
from sandbox_agent.models.base import Model, ModelRequest
from sandbox_agent.models.scripted import FunctionModel, ScriptedModel
from sandbox_agent.policy.load import load_policy
from sandbox_agent.policy.policy import Policy
from sandbox_agent.sandboxes.fake import FakeSandbox
from sandbox_agent.tape import TapeWriter, read_tape
from sandbox_agent.testing.api_rules import check_request
from sandbox_agent.tools.base import Tool, ToolContext, ToolInput, build_tool
from sandbox_agent.tools.pool import ToolPool, assemble_tool_pool
from sandbox_agent.types import Limits, PathAccess, Subject, ToolResult
from sandbox_agent.workspaces.base import ApplyOutcome, Change, Drift, Owner
from sandbox_agent.workspaces.hunks import Span


class Named(ToolInput):
    """Input of the test tools: a name, and a path that makes them a matter of permission."""

    name: str = ""
    file_path: str | None = None


class NoWorkspace:
    """A workspace in which nothing ever changes."""

    mode = "copy"
    host = Path("/home/me/project")
    source = Path("/nowhere")
    owner = Owner(1000, 1000)
    notes: tuple[str, ...] = ()
    commits: tuple[str, ...] = ()

    def prepare(self, progress: Callable[[int], None] | None = None) -> None:
        pass

    def changes(self) -> tuple[Change, ...]:
        return ()

    def apply(
        self, paths: Collection[str] | None = None, hunks: Mapping[str, Collection[Span]] | None = None
    ) -> ApplyOutcome:
        return ApplyOutcome()

    def drift(self) -> tuple[Drift, ...]:
        return ()

    def discard(self) -> None:
        pass


Body = Callable[[Named, ToolContext], Any]


def make_tool(name: str, body: Body | None = None, *, parallel_safe: bool = False, **options: Any) -> Tool:
    """A tool that says its name; `body` may do more."""

    async def run_tool(value: Named, ctx: ToolContext) -> ToolResult:
        if body is None:
            return ToolResult(f"{name} {value.name}".strip())
        result = await body(value, ctx)
        return result if isinstance(result, ToolResult) else ToolResult(f"{name} {value.name}".strip())

    def subject(value: Named, ctx: ToolContext) -> Subject:
        paths = () if value.file_path is None else (PathAccess(value.file_path, write=not options.get("read_only")),)
        return Subject(summary=value.name, paths=paths)

    options = {"subject": subject, **options}
    return build_tool(
        name=name, description=name, input_model=Named, run=run_tool, parallel_safe=parallel_safe, **options
    )


def read_like(name: str, body: Body | None = None) -> Tool:
    return make_tool(name, body, parallel_safe=True, read_only=True)


def strict(model: Model) -> Model:
    """The same model; a request that the Messages API would refuse fails the test."""

    class Strict:
        name = model.name

        async def stream(self, request: ModelRequest) -> AsyncIterator[Any]:
            body = {
                "model": "m",
                "max_tokens": request.max_tokens,
                "messages": list(request.messages),
                "tools": list(request.tools),
            }
            check_request(body)
            async for event in model.stream(request):
                yield event

        async def window_tokens(self, used_tokens: int, name: str | None = None) -> int | None:
            return await model.window_tokens(used_tokens, name)

        async def aclose(self) -> None:
            await model.aclose()

    return Strict()


@asynccontextmanager
async def make_session(
    model: Sequence[Mapping[str, Any]] | Callable[[ModelRequest], Any],
    folder: Path,
    *,
    tools: Sequence[Tool] = (),
    policy: Policy | None = None,
    approver: Approver | None = None,
    limits: Limits | None = None,
    sandbox: FakeSandbox | None = None,
) -> AsyncIterator[Session]:
    """A session that allows everything unless a policy is given."""
    played: Model = FunctionModel(model) if callable(model) else ScriptedModel(model)
    box = sandbox or FakeSandbox()
    policy = policy or load_policy(None, allow=[tool.name for tool in tools])
    async with anyio.create_task_group() as tasks:
        session = Session(
            id="s",
            model=strict(played),
            sandbox=box,
            workspace=NoWorkspace(),
            pool=assemble_tool_pool(tools) if tools else ToolPool(()),
            rights=Rights(policy),
            mode=policy.mode,
            limits=limits or Limits(),
            ctx=ToolContext(sandbox=box, workspace_host="/home/me/project"),
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


async def play(session: Session, task: str = "do it") -> list[Event]:
    """All events of a run, which must end within the test's patience."""
    with anyio.fail_after(20):
        return [event async for event in run(session, task)]


def finished(events: Sequence[Event]) -> RunFinished:
    assert isinstance(events[-1], RunFinished)
    return events[-1]


def of(events: Sequence[Event], kind: type[Any]) -> list[Any]:
    return [event for event in events if isinstance(event, kind)]


def results(events: Sequence[Event]) -> list[tuple[str, bool]]:
    """Content and is_error of every finished call, in the order they finished."""
    return [(str(event.content), event.is_error) for event in of(events, ToolFinished)]


def recorded(folder: Path) -> list[Event]:
    """The record, without what says when."""
    return [replace(entry.event) for entry in read_tape(folder / "events.jsonl").entries]


def use(name: str, /, **fields: Any) -> dict[str, Any]:
    return {"name": name, "input": fields}
