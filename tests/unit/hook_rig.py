"""Sessions with hooks for engine tests: each hook is a small program of the in-memory sandbox. Not a test file."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from engine_session import make_session, make_tool, use

from sandbox_agent.engine import session_hooks
from sandbox_agent.engine.hooks import ProgramHook
from sandbox_agent.engine.session import Session
from sandbox_agent.policy.hooks import Hook, HookEvent, parse_matcher
from sandbox_agent.policy.load import load_policy
from sandbox_agent.policy.policy import Policy
from sandbox_agent.sandboxes.fake import FakeSandbox
from sandbox_agent.sandboxes.fake_shell import Program, ProgramCall, ProgramOutput
from sandbox_agent.tools.base import Tool

PRE, ASKED, POST = HookEvent.PRE_TOOL_USE, HookEvent.PERMISSION_REQUEST, HookEvent.POST_TOOL_USE

DONE = {"text": "done"}
ECHO = make_tool("Echo", edits=True)
TURNS = [{"tools": [use("Echo", name="one")]}, DONE]
"""One call of that tool, then the end."""


def hook(event: HookEvent, name: str, matcher: str | None = None, **fields: Any) -> Hook:
    """A hook that runs the program of its name."""
    fields.setdefault("command", (name,))
    return Hook(name, event, matcher=parse_matcher(matcher, event), **{"location": f"p.yaml:{name}", **fields})


def saying(
    stdout: str | Mapping[str, Any] = "", *, exit_code: int = 0, stderr: str = "", told: list[Any] | None = None
) -> Program:
    """A program that says this, and keeps what it was told."""

    def program(call: ProgramCall) -> ProgramOutput:
        if told is not None:
            told.append(json.loads(call.stdin))
        text = stdout if isinstance(stdout, str) else json.dumps(stdout)
        return ProgramOutput(text.encode(), stderr.encode(), exit_code)

    return program


def changing(change: Callable[[dict[str, Any]], dict[str, Any]]) -> Program:
    """A program that answers with the input it was told of, changed."""

    def program(call: ProgramCall) -> ProgramOutput:
        given = json.loads(call.stdin)["tool_input"]
        return ProgramOutput(json.dumps({"updated_input": change(given)}).encode())

    return program


@asynccontextmanager
async def hooked(
    turns: Any,
    folder: Path,
    hooks: Sequence[Hook | ProgramHook],
    programs: Mapping[str, Program] | None = None,
    *,
    tools: Sequence[Tool],
    policy: Policy | None = None,
    **options: Any,
) -> AsyncIterator[Session]:
    """A session with these hooks; everything is allowed unless a policy is given."""
    rules = policy or load_policy(None, allow=[tool.name for tool in tools])
    commands = tuple(one for one in hooks if isinstance(one, Hook))
    box = FakeSandbox(programs=programs)
    async with make_session(
        turns, folder, tools=tools, policy=replace(rules, hooks=commands), sandbox=box, **options
    ) as session:
        session_hooks.attach(session, [one for one in hooks if isinstance(one, ProgramHook)])
        yield session
