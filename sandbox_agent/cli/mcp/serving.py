"""Serves MCP clients until they are gone or a signal comes; the containers go with us."""

from __future__ import annotations

import gc
import os
import re
import secrets
import signal
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path

import anyio
import anyio.to_thread

from sandbox_agent import registry
from sandbox_agent.cli.faults import say
from sandbox_agent.config import RunConfig
from sandbox_agent.engine.approval import ApprovalAnswer
from sandbox_agent.engine.open import bare, reachable_engine
from sandbox_agent.engine.served import Desk, open_desk
from sandbox_agent.errors import ConfigError
from sandbox_agent.frontends.sanitise import sanitise
from sandbox_agent.types import Mode

TOKEN_VARIABLE = "SANDBOX_AGENT_MCP_TOKEN"
MIN_TOKEN_CHARS = 16


def serve(
    folders: Sequence[Path],
    *,
    port: int | None,
    allow_apply: bool,
    policy: str | None,
    mode: str | None,
    allow: tuple[str, ...],
    deny: tuple[str, ...],
    image: str | None,
    workspace_mode: str,
) -> int:
    """The `mcp serve` command. Returns the exit code.

    Raises:
        ConfigError: the policy, the port or the token cannot be used.
        SandboxUnavailableError: no engine answers.
    """
    config = RunConfig(
        workspace=folders[0],
        policy=policy,
        mode=Mode(mode) if mode else None,
        allow=allow,
        deny=deny,
        image=image,
        workspace_mode=workspace_mode,
    )
    reachable_engine()
    try:
        return anyio.run(partial(_serve, config, folders, port=port, allow_apply=allow_apply))
    except BaseExceptionGroup as group:
        raise bare(group) from None


async def _serve(config: RunConfig, folders: Sequence[Path], *, port: int | None, allow_apply: bool) -> int:
    ended_by: list[signal.Signals] = []

    async def watch(scope: anyio.CancelScope, *, task_status: anyio.abc.TaskStatus[None]) -> None:
        with anyio.open_signal_receiver(signal.SIGINT, signal.SIGTERM, signal.SIGHUP) as received:
            task_status.started()
            async for number in received:
                ended_by.append(number)
                scope.cancel()

    async with anyio.create_task_group() as tasks:
        with anyio.CancelScope() as scope:
            await tasks.start(watch, scope)
            async with open_desk(config, folders, say, allow_apply=allow_apply) as desk:
                await _listen(desk, port)
        tasks.cancel_scope.cancel()
    return 0 if not ended_by else 130 if ended_by[0] is signal.SIGINT else 143


async def _listen(desk: Desk, port: int | None) -> None:
    # In a thread: importing the package takes a second of CPU.
    module = await anyio.to_thread.run_sync(registry.load, "mcp", "serve")
    ways = await anyio.to_thread.run_sync(registry.load, "mcp", "listening")
    server = module.Service(desk, answer, partial(sanitise, newlines=True, tabs=True)).server
    gc.freeze()
    gc.enable()
    if port is None:
        if sys.stdin.isatty():
            say("serving MCP on the standard streams, where a client speaks and not a person; Ctrl-D ends it")
        await ways.serve_stdio(server)
        return
    token = _token()
    sock = ways.listening_socket(port)
    say(f"serving MCP on http://{ways.HOST}:{sock.getsockname()[1]}{ways.PATH}")
    if TOKEN_VARIABLE not in os.environ:
        say(f"clients send the header Authorization: Bearer {token}")
    await ways.serve_http(server, sock, token)


def _token() -> str:
    given = os.environ.get(TOKEN_VARIABLE)
    if given is None:
        return secrets.token_urlsafe(32)
    if len(given) < MIN_TOKEN_CHARS or not re.fullmatch(r"[\x21-\x7e]+", given):
        raise ConfigError(f"{TOKEN_VARIABLE} is to have {MIN_TOKEN_CHARS} characters or more, all of them plain ASCII")
    return given


def answer(scope: str | None, reason: str | None) -> ApprovalAnswer:
    """What the person chose ("once", "session", None for no), and why not."""
    return ApprovalAnswer(scope is not None, scope=scope or "once", reason=reason, by="person")
