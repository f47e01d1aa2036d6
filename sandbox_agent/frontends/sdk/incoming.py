"""What the program sends: its requests are answered at once, its messages wait in the inbox for their turn."""

from __future__ import annotations

import json
from collections.abc import Sequence

from anyio.abc import TaskGroup

from sandbox_agent.engine.agent_types import AgentType
from sandbox_agent.errors import ConfigError
from sandbox_agent.frontends.sdk import controls
from sandbox_agent.frontends.sdk.controls import RefusedError
from sandbox_agent.frontends.sdk.driver_state import State
from sandbox_agent.frontends.sdk.hooks import read_hooks
from sandbox_agent.frontends.sdk.wire import FrameError
from sandbox_agent.types import JsonObject, Mode

_OTHER_NAMES = {"Agent": "Task", "BashOutput": "TaskOutput", "AgentOutputTool": "TaskOutput", "KillShell": "TaskStop"}


async def listen(state: State, tasks: TaskGroup) -> None:
    """Take what comes until the end of the input; `state.begun` is set by the first of it."""
    try:
        async for frame in state.wire.frames():
            match frame.get("type"):
                case "control_request":
                    await _control(state, frame, tasks)
                case "user":
                    state.inbox.append(frame)
                    state.begun.set()
                case _:
                    pass  # of a later protocol, or a sign of life
            state.note()
    except FrameError as exc:
        state.fault = str(exc)
    finally:
        state.begun.set()
        state.note()


async def _control(state: State, frame: JsonObject, tasks: TaskGroup) -> None:
    request_id, request = frame.get("request_id"), frame.get("request")
    if not isinstance(request, dict):
        state.wire.reply(request_id, error="a control request has a request, which is an object")
        return
    if request.get("subtype") == "initialize":
        _initialize(state, request_id, request)
        return

    async def work() -> None:
        try:
            response = await controls.answer(state, request)
        except RefusedError as exc:
            state.wire.reply(request_id, error=str(exc))
        else:
            state.wire.reply(request_id, response)

    if request.get("subtype") == "interrupt":
        await work()  # it never waits, and what comes behind it is meant for afterwards
    else:
        tasks.start_soon(work)


def _initialize(state: State, request_id: object, request: JsonObject) -> None:
    """Answered before the container is there: the program waits no longer than a minute."""
    if state.begun.is_set():
        state.wire.reply(request_id, error="the session has begun already")
        return
    try:
        state.hooks = read_hooks(request.get("hooks"))
        state.agents = read_agents(request.get("agents"))
    except ConfigError as exc:
        state.wire.reply(request_id, error=str(exc))
        state.fault = str(exc)
        state.begun.set()
        return
    state.lines.forward_text = request.get("forwardSubagentText") is True
    state.wire.reply(request_id, controls.server_info(state))
    state.begun.set()


def read_agents(given: object) -> dict[str, AgentType]:
    """The program's types of sub-agents.

    Raises:
        ConfigError: one of them cannot be used.
    """
    found: dict[str, AgentType] = {}
    for name, entry in given.items() if isinstance(given, dict) else ():
        if not isinstance(entry, dict) or not str(entry.get("prompt") or "").strip():
            raise ConfigError(f"the agent {name!r} has no prompt")
        turns, mode, model = entry.get("maxTurns"), entry.get("permissionMode"), entry.get("model")
        if turns is not None and (not isinstance(turns, int) or turns < 1):
            raise ConfigError(f"the agent {name!r}: maxTurns is a whole number of 1 or more")
        try:
            chosen = Mode(mode) if mode else None
        except ValueError as exc:
            raise ConfigError(f"the agent {name!r}: there is no permission mode {mode!r} here") from exc
        tools = entry.get("tools")
        found[name] = AgentType(
            name=name,
            description=str(entry.get("description") or name),
            instruction=str(entry["prompt"]),
            tools=None if tools is None else _names(tools),
            disallowed_tools=_names(entry.get("disallowedTools") or ()),
            model=None if model in (None, "inherit") else str(model),
            mode=chosen,
            max_turns=turns,
            source="the program",
        )
    return found


def _names(names: object) -> tuple[str, ...]:
    given = names if isinstance(names, list | tuple) else ()
    return tuple(_OTHER_NAMES.get(str(name), str(name)) for name in given)


def blocks_of(frame: JsonObject) -> Sequence[JsonObject]:
    """The content of a user's message as the Messages API takes it; nothing where it is empty or no message."""
    message = frame.get("message")
    content = message.get("content") if isinstance(message, dict) else None
    if isinstance(content, str):
        return [{"type": "text", "text": content}] if content.strip() else []
    blocks = [block for block in content if isinstance(block, dict)] if isinstance(content, list) else []
    kinds = ("text", "image", "document")
    return [
        block if block.get("type") in kinds else {"type": "text", "text": json.dumps(block)}
        for block in blocks
        if block.get("type") != "text" or str(block.get("text") or "").strip()
    ]
