"""Requests of the program about the session itself. Each is answered exactly once; what is not known is refused."""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable, Mapping

from sandbox_agent.engine.steering import set_mode, set_model
from sandbox_agent.errors import SandboxAgentError
from sandbox_agent.frontends.sdk.driver_state import State
from sandbox_agent.models.names import full_name
from sandbox_agent.types import JsonObject, Mode


class RefusedError(Exception):
    """The request cannot be done; the text is for the program."""


Control = Callable[[State, JsonObject], Awaitable[JsonObject]]


async def answer(state: State, request: JsonObject) -> JsonObject:
    """Do what is asked.

    Raises:
        RefusedError: it is not known, or cannot be done.
    """
    subtype = str(request.get("subtype"))
    known = CONTROLS.get(subtype)
    if known is None:
        raise RefusedError(f"there is no control request {subtype!r} here")
    return await known(state, request)


async def _interrupt(state: State, request: JsonObject) -> JsonObject:
    if state.running and state.session is not None:
        state.session.interrupt()
    return {"still_queued": []}


async def _set_mode(state: State, request: JsonObject) -> JsonObject:
    try:
        mode = Mode(str(request.get("mode")))
    except ValueError as exc:
        known = ", ".join(one.value for one in Mode)
        raise RefusedError(f"there is no permission mode {request.get('mode')!r}; there are {known}") from exc
    session = await state.opened()
    try:
        set_mode(session, mode)
    except SandboxAgentError as exc:
        raise RefusedError(str(exc)) from exc
    state.wire.send(state.lines.line("system", subtype="status", status=None, permissionMode=mode.value))
    return {"mode": mode.value}


async def _set_model(state: State, request: JsonObject) -> JsonObject:
    session = await state.opened()
    spec = model_spec(request.get("model"), state.settings.config.model)
    if state.running:
        state.next_model = spec  # no agent may be at work
    else:
        try:
            await set_model(session, spec)
        except SandboxAgentError as exc:
            raise RefusedError(str(exc)) from exc
    return {"model": full_name(spec)}


def model_spec(given: object, usual: str) -> str:
    """A model as the program names it, as `--model` takes it; `usual` for none."""
    if not isinstance(given, str) or not given.strip() or given == "default":
        return usual
    return given if given.partition(":")[0] in ("anthropic", "script") else f"anthropic:{full_name(given)}"


async def _mcp_status(state: State, request: JsonObject) -> JsonObject:
    return {"mcpServers": state.lines.servers}


async def _context_usage(state: State, request: JsonObject) -> JsonObject:
    session = await state.opened()
    used = session.window.used(session.messages, (session.system, session.pool))
    most = await session.window.tokens(session.model, used)
    return {
        "categories": [{"name": "Conversation", "tokens": used, "color": "blue"}],
        "totalTokens": used,
        "maxTokens": most,
        "percentage": round(100 * used / most, 1) if most else 0.0,
        "model": full_name(session.model.name),
        "mcpTools": [],
        "memoryFiles": [],
        "agents": [],
    }


async def _stop_task(state: State, request: JsonObject) -> JsonObject:
    session = await state.opened()
    wanted = str(request.get("task_id"))
    job = next((one for one in session.jobs.running() if one.id == wanted), None)
    if job is not None:
        await job.stop("the program stopped it")
    return {}


def server_info(state: State) -> JsonObject:
    """The answer to the initialize request."""
    session = state.session
    mode = session.mode if session is not None else state.settings.config.mode or Mode.DEFAULT
    return {
        "commands": [],
        "agents": [{"name": one.name, "description": one.description} for one in state.agents.values()],
        "models": [],
        "account": {},
        "output_style": "default",
        "available_output_styles": ["default"],
        "pid": os.getpid(),
        "current_permission_mode": mode.value,
        "session_state": "running" if state.running else "idle",
        "capabilities": [],
        "hook_on_failure_supported": True,
        "hooks_applied": True,
    }


CONTROLS: Mapping[str, Control] = {
    "interrupt": _interrupt,
    "set_permission_mode": _set_mode,
    "set_model": _set_model,
    "mcp_status": _mcp_status,
    "get_context_usage": _context_usage,
    "stop_task": _stop_task,
}
