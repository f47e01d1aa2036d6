"""A program at the other end of the wire of `sandbox-agent-sdk`, and what is driven over it."""

from __future__ import annotations

import json
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio

from sandbox_agent.config import RunConfig
from sandbox_agent.frontends.sdk.driver_state import State
from sandbox_agent.frontends.sdk.lines import Lines
from sandbox_agent.frontends.sdk.settings import SdkSettings
from sandbox_agent.frontends.sdk.wire import Wire


class Program:
    """The other end of the wire."""

    def __init__(self, wire: Wire, say: int, hear: int) -> None:
        self.wire = wire
        self._say = say
        self._hear = os.fdopen(hear, "rb")

    def send(self, frame: object) -> None:
        os.write(self._say, (frame if isinstance(frame, bytes) else json.dumps(frame).encode()) + b"\n")

    def close(self) -> None:
        os.close(self._say)
        self._say = -1

    async def read(self) -> dict[str, Any]:
        line = await anyio.to_thread.run_sync(self._hear.readline)
        assert len(line) <= 1_048_576
        frame: dict[str, Any] = json.loads(line)
        return frame

    def end(self) -> None:
        self._hear.close()
        if self._say >= 0:
            self.close()


@asynccontextmanager
async def connected() -> AsyncIterator[Program]:
    """A wire whose lines are written, and the program at its other end."""
    (ours_in, say), (hear, ours_out) = os.pipe(), os.pipe()
    program = Program(Wire(ours_in, ours_out), say, hear)
    try:
        with anyio.fail_after(20):
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(program.wire.write)
                yield program
                tasks.cancel_scope.cancel()
    finally:
        program.end()
        os.close(ours_in)
        os.close(ours_out)


def state_of(wire: Wire) -> State:
    lines = Lines("s-1")
    return State(wire, lines, SdkSettings(config=RunConfig(workspace=Path("/nowhere")), reads_state=True))


async def answered(program: Program, state: State, request: dict[str, Any]) -> dict[str, Any]:
    """The response to a control request."""
    program.send({"type": "control_request", "request_id": "r1", "request": request})
    frame = await program.read()
    assert frame["type"] == "control_response"
    assert frame["response"]["request_id"] == "r1"
    response: dict[str, Any] = frame["response"]
    return response
