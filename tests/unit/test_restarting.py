"""A container that had to be started again: who is told, when, and how often."""

from __future__ import annotations

from pathlib import Path

from engine_session import Named, make_session, make_tool, of, play, results, use

from sandbox_agent.engine.restarting import NOTICE
from sandbox_agent.events import Notice
from sandbox_agent.sandboxes.fake import FakeSandbox
from sandbox_agent.tools.base import ToolContext

DONE = {"text": "done"}


async def bomb(value: Named, ctx: ToolContext) -> None:
    """The container is started again while the call runs."""
    assert isinstance(ctx.sandbox, FakeSandbox)
    ctx.sandbox.restarts += 1


async def test_the_call_that_it_happened_in_says_so_once(tmp_path: Path) -> None:
    """To the model behind the result, and to the person."""
    tools = [make_tool("Bomb", bomb), make_tool("Echo")]
    turns = [{"tools": [use("Echo"), use("Bomb"), use("Echo")]}, {"tools": [use("Bomb")]}, DONE]
    async with make_session(turns, tmp_path, tools=tools) as session:
        events = await play(session)

    texts = [text for text, _ in results(events)]
    told = ["started again" in text for text in texts]
    assert told == [False, True, False, True]
    assert texts[1].startswith("Bomb\n\nThe container had to be started again")
    assert "files in /tmp and in the home folder are gone" in texts[1]
    assert [notice.text for notice in of(events, Notice)] == [NOTICE, NOTICE]


async def test_one_between_two_calls_is_told_with_the_next(tmp_path: Path) -> None:
    """What happened before the agent's first call is none of its business."""
    box = FakeSandbox()
    box.restarts = 3
    asked = []

    def model(request: object) -> object:
        asked.append(request)
        if len(asked) == 2:
            box.restarts += 1
        return DONE if len(asked) > 2 else {"tools": [use("Echo")]}

    async with make_session(model, tmp_path, tools=[make_tool("Echo")], sandbox=box) as session:
        events = await play(session)

    assert ["started again" in text for text, _ in results(events)] == [False, True]
    assert len(of(events, Notice)) == 1
