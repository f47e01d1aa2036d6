"""MCP servers in a chat: how it is with each, and their prompts, which are said after a look and a yes."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, cast

import anyio
import pytest
from mcp_rig import hostile
from test_chat_commands import At, desk

from sandbox_agent.engine.servers import start_servers
from sandbox_agent.mcp import prompts
from sandbox_agent.mcp.names import tool_name


@asynccontextmanager
async def _at(folder: Path, *modes: str, **fields: Any) -> AsyncIterator[At]:
    (folder / "session").mkdir()
    async with desk(folder / "session") as at:
        start_servers(at.session, [hostile(*modes, **fields), hostile("die_at_once", name="dead")], cast(Any, None))
        servers = at.session.servers
        assert servers is not None
        try:
            yield at
        finally:
            with anyio.fail_after(5, shield=True):
                await servers.close()


@pytest.fixture(autouse=True)
def _state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))


async def test_servers_and_prompts_are_listed(tmp_path: Path) -> None:
    """Cleaned, with what each takes; one that failed says why."""
    odd = tool_name("evil", "odd name")

    async with _at(tmp_path, "prompts") as at:
        shown = await at.does("/mcp")

    lines = [line.strip() for line in shown.splitlines()]
    assert lines[0] == "evil  outside  1 tool"
    assert lines[1].startswith("dead  outside  failed: its program ended with exit code 1")
    assert lines[2:] == ["/mcp__evil__review LANG [TONE]  Look\ufffd[2J at it", f"/{odd}"]


async def test_a_prompt_is_shown_and_said_after_a_yes(tmp_path: Path) -> None:
    """Each line of it is marked, so that none looks like ours; with any other answer it is not said."""
    async with _at(tmp_path, "prompts") as at:
        at.paper.answers += ["", "y"]
        shown = await at.does("/mcp__evil__review python 'very kind'")
        assert "Nothing was said." in shown
        assert at.desk.talk.texts_waiting() == []
        shown = await at.does("/mcp__evil__review python 'very kind'")
        (said,) = at.desk.talk.texts_waiting()

    assert said.startswith('Review\ufffd[2J this {"lang": "python", "tone": "very kind"}\n')
    assert said.endswith("(assistant:) Done.\n\n(image; it cannot be given as text)")
    assert "The MCP server evil would have you say:" in shown
    assert "\n? the agent asks" not in shown
    assert "\x1b" not in shown


@pytest.mark.parametrize(
    ("typed", "said"),
    [
        ("review", "write /mcp__evil__review LANG [TONE]"),
        ("review a b c", "write /mcp__evil__review LANG [TONE]"),
        ("review 'a", "a quote is open"),
        ("nope", "there is no such prompt"),
        (tool_name("evil", "odd name").removeprefix("mcp__evil__"), "has nothing to say for it"),
    ],
)
async def test_a_prompt_that_cannot_be_said(tmp_path: Path, typed: str, said: str) -> None:
    """In one line; nobody is asked."""
    async with _at(tmp_path, "prompts") as at:
        assert said in await at.does(f"/mcp__evil__{typed}")
        assert at.desk.talk.texts_waiting() == []


async def test_a_server_that_does_not_say_its_prompts_holds_up_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The list has the servers, and why there are no prompts of that one."""
    monkeypatch.setattr(prompts, "WAIT_S", 0.2)

    async with _at(tmp_path, "prompts=hang") as at:
        shown = await at.does("/mcp")

    assert "evil  outside  1 tool" in shown
    assert "the server evil did not say within 0.2 s which prompts it has" in shown


async def test_without_servers_there_are_none(tmp_path: Path) -> None:
    """And no prompt of one."""
    async with desk(tmp_path) as at:
        assert await at.does("/mcp") == "There are no MCP servers.\n"
        assert "there are no MCP servers" in await at.does("/mcp__a__b")
