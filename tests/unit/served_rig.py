"""A desk whose sessions are in memory, with tools of the test."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from engine_session import make_session

from sandbox_agent.config import RunConfig
from sandbox_agent.engine import served, serving
from sandbox_agent.engine.served import Desk, open_desk
from sandbox_agent.engine.session import Session
from sandbox_agent.models.base import Model
from sandbox_agent.policy.policy import Policy
from sandbox_agent.tools.base import Tool


class Rig:
    """`sessions` are those that were opened, `told` what the person was told."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, folder: Path, tools: Sequence[Tool], policy: Policy | None):
        self.sessions: list[Session] = []
        self.told: list[str] = []
        self.folder = folder
        self._tools = tools
        self._policy = policy
        monkeypatch.setattr(served, "open_session", self._session)
        monkeypatch.setattr(serving, "GATHER_S", 0.0)

    @asynccontextmanager
    async def _session(self, config: RunConfig, *, approver: Any, caller: Model) -> AsyncIterator[Session]:
        state = self.folder / f"session-{len(self.sessions)}"
        state.mkdir()
        async with make_session(
            [{"text": "x"}], state, tools=self._tools, policy=self._policy, approver=approver
        ) as session:
            session.id = state.name
            session.model = caller
            self.sessions.append(session)
            yield session

    @asynccontextmanager
    async def desk(self, *others: Path, allow_apply: bool = False, mode: str = "auto") -> AsyncIterator[Desk]:
        """One on the folder, and on others."""
        config = RunConfig(workspace=self.folder, workspace_mode=mode)
        async with open_desk(config, others, self.told.append, allow_apply=allow_apply) as desk:
            yield desk


MakeRig = Callable[..., Rig]
