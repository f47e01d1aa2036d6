"""The fallback where there are several agents: each falls back for itself, and to the same model."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from agents_rig import by_agent, make_team, say, task, tools
from engine_session import finished, play, read_like, use

from sandbox_agent.errors import ModelError, ModelOverloadedError, ModelRejectedError
from sandbox_agent.events import ModelSwitched
from sandbox_agent.models.base import ModelRequest


@pytest.mark.parametrize(
    "fault",
    [
        ModelOverloadedError("no answer from the model after 10 tries", status=529),
        ModelRejectedError("not known", status=404),
        ModelRejectedError("not known", kind="not_found_error"),
    ],
    ids=["overloaded", "status", "kind"],
)
async def test_a_sub_agent_falls_back_for_itself(tmp_path: Path, fault: ModelError) -> None:
    """Its own model fails, its parent's does not: one switch, and the parent goes on with its own."""

    def helper(request: ModelRequest) -> Any:
        if request.model != "other":
            raise fault
        return tools(use("Read", name="x")) if len(request.messages) == 1 else say("found")

    asked: list[str | None] = []

    def main(request: ModelRequest) -> Any:
        asked.append(request.model)
        return tools(task("helper")) if len(request.messages) == 1 else say("all done")

    async with make_team({"do it": main, "helper": helper}, tmp_path, own=[read_like("Read")]) as session:
        session.fallback = "other"
        events = await play(session)

    assert finished(events).status == "done"
    assert asked == [None, None]
    [(agent, switched)] = by_agent(events, ModelSwitched)
    assert (agent, switched.model, switched.before) == ("agent-1", "function:other", "function")
    assert str(fault) in switched.reason


async def test_an_agent_whose_model_is_the_fallback_has_none(tmp_path: Path) -> None:
    """To ask the same model once more would be a lie about a switch."""

    def helper(request: ModelRequest) -> Any:
        assert request.model == "claude-opus-5-5"
        raise ModelOverloadedError("no answer")

    def main(request: ModelRequest) -> Any:
        return tools(task("helper", model="opus")) if len(request.messages) == 1 else say("all done")

    async with make_team({"do it": main, "helper": helper}, tmp_path) as session:
        session.fallback = "claude-opus-5-5"
        events = await play(session)

    assert finished(events).status == "done"
    assert by_agent(events, ModelSwitched) == []
