"""The Python API on a real engine: the documented examples, and every way in which a run can be left."""

from __future__ import annotations

import asyncio
import json
import re
import subprocess
import sys
from contextlib import aclosing
from pathlib import Path
from typing import Any

import pytest
from program import DONE, WRITE, Program, bash, containers_of

import sandbox_agent
from sandbox_agent.events import Notice, ReviewReady, RunFinished, SessionStarted, ToolStarted, UserMessage

pytestmark = pytest.mark.docker

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "examples" / "python"
WAITS = {"text": "I wait.", "tools": [bash("sleep 300", timeout=400_000)]}


@pytest.fixture
def options(program: Program, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """Of a run in this process, on the project, with state of its own."""
    monkeypatch.setenv("XDG_STATE_HOME", str(program.home / "state"))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(program.home / "config"))
    return {"workspace": program.folder, "mode": "acceptEdits", "allow": ["Bash(sleep:*)"]}


def shown(program: Program, name: str) -> list[str]:
    """What an example prints."""
    done = subprocess.run(
        [sys.executable, str(EXAMPLES / name)],
        env=program.environment(),
        cwd=program.folder,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, ""), done.stdout + done.stderr
    return done.stdout.splitlines()


def test_the_page_shows_code_that_is_in_the_examples() -> None:
    """Every block but the first, which needs a key, word for word."""
    blocks = re.findall(r"^```python\n(.*?)^```$", (ROOT / "docs" / "python.md").read_text(), re.DOTALL | re.MULTILINE)
    sources = [path.read_text() for path in EXAMPLES.glob("*.py")]
    assert len(blocks) == 6
    assert [block for block in blocks[1:] if not any(block in source for source in sources)] == []
    compile(blocks[0], "docs/python.md", "exec")


def test_the_examples_do_what_the_page_says(program: Program) -> None:
    """Events, own tools with approver and hook, and a conversation with a word in between."""
    events = shown(program, "events.py")
    assert events[-2:] == ["done after 3 turns, applied: greeting.txt", "greeting.txt: Hello, nice to see you"]
    assert "* Edit /workspace/greeting.txt" in events

    tools = shown(program, "own_tools.py")
    assert "- tools that run in the program, outside the container: close_ticket, look_up_ticket" in tools
    assert "* look_up_ticket: There is no ticket 8; there are 7." in tools
    assert "? close_ticket: allow, says the callback" in tools
    assert tools[-2:] == ["* close_ticket: Closed, with 1 line in notes.txt.", "Ticket 7 is done and closed."]

    said = shown(program, "conversation.py")
    assert said[0] == "done: The haiku is in haiku.txt."
    assert "> Keep a copy in /workspace/backup.txt, too." in said
    assert said[-6:-2] == ["added backup.txt", "added haiku.txt", "added hills.txt", "applied: haiku.txt, hills.txt"]
    assert said[-2].endswith(": backup.txt")
    assert said[-1] == "in the folder: haiku.txt, hills.txt"


async def test_a_run_that_is_left_early_takes_its_container_with_it(program: Program, options: dict[str, Any]) -> None:
    """By break with aclosing, by break alone, by an exception, by cancelling who awaits it."""
    options["model"] = program.script([WAITS, DONE])
    before = asyncio.all_tasks()

    async def until_it_waits(run: sandbox_agent.Run, begun: list[str], how: str) -> None:
        async for event in run:
            if isinstance(event, SessionStarted):
                begun.append(event.session_id)
            if isinstance(event, ToolStarted):
                if how == "raise":
                    raise KeyError("mine")
                return

    for how in ("return", "raise"):
        begun: list[str] = []
        run = sandbox_agent.run("x", **options)
        if how == "raise":
            with pytest.raises(KeyError, match="mine"):
                await until_it_waits(run, begun, how)
        else:
            await until_it_waits(run, begun, how)
        await asyncio.wait(asyncio.all_tasks() - before, timeout=30)
        assert containers_of(begun[0]) == []

    begun = []
    run = sandbox_agent.run("x", **options)
    async with aclosing(aiter(run)) as events:
        async for event in events:
            if isinstance(event, SessionStarted):
                begun.append(event.session_id)
            if isinstance(event, ToolStarted):
                break
    assert containers_of(begun[0]) == []

    waiting = asyncio.Event()

    async def see(told: dict[str, Any]) -> None:
        waiting.set()

    hook = sandbox_agent.ProgramHook("see", sandbox_agent.HookEvent.PRE_TOOL_USE, see)
    run = sandbox_agent.run("x", hooks=[hook], **options)
    awaited = asyncio.ensure_future(run)
    await asyncio.wait_for(waiting.wait(), 30)
    awaited.cancel()
    with pytest.raises(asyncio.CancelledError):
        await awaited
    sessions = [folder.name for folder in (program.home / "state" / "sandbox-agent" / "sessions").iterdir()]
    assert len(sessions) == 4
    assert [name for name in sessions if containers_of(name)] == []


async def test_a_session_goes_on_is_reviewed_and_can_be_resumed(program: Program, options: dict[str, Any]) -> None:
    """Tasks one after the other, one left in the middle, a text that waited; two sessions at once; an interrupt."""
    script = program.script([WRITE, DONE, WAITS, {"text": "After that."}, {"text": "Resumed."}])
    own = program.folder.parent / "other"
    own.mkdir()
    other_script = program.folder.parent / "other.yaml"
    other_script.write_text(json.dumps([{"text": "Other."}]))
    other = asyncio.ensure_future(sandbox_agent.run("x", workspace=own, model=f"script:{other_script}"))
    async with sandbox_agent.Session(model=script, **options) as session:
        first = await session.ask("one")
        assert (first.status, first.text, first.ok, first.changes) == ("done", "All done.", True, ())
        left = session.run("two")
        async for event in left:
            if isinstance(event, ToolStarted):
                break
        session.send("and this")
        events = [event async for event in session.run("three")]
        said = [event.content[0]["text"] for event in events if isinstance(event, UserMessage)]
        assert said == ["and this", "three"]
        assert isinstance(events[-1], RunFinished)
        assert session.result.text == "After that."
        assert [(one.path, one.kind) for one in await session.changes()] == [("new.txt", "added")]
        with pytest.raises(RuntimeError, match="the changes were asked for"):
            await session.ask("four")
        assert not (program.folder / "new.txt").exists()
        assert (await session.apply()).applied == ("new.txt",)
        assert session.result.applied == ("new.txt",)
        assert containers_of(session.id) == []
    assert (program.folder / "new.txt").read_text() == "new\n"
    assert (await other).text == "Other."
    with pytest.raises(RuntimeError, match="opens once"):
        await session.__aenter__()

    again = program.script([{"text": "Resumed.", "tools": [bash("sleep 300", timeout=400_000)]}, DONE])
    resumed = sandbox_agent.run("five", model=again, resume=first.session_id, **options)
    async for event in resumed:
        if isinstance(event, ToolStarted):
            resumed.interrupt()
    assert (resumed.result.session_id, resumed.result.status) == (first.session_id, "interrupted")
    assert (resumed.result.text, resumed.result.ok, resumed.result.changes) == ("Resumed.", False, ())


async def test_project_instructions_are_given_read_in_the_container_and_not_twice(
    program: Program, options: dict[str, Any]
) -> None:
    """Once a session; a link that leads out of the folder is not followed, in there or here; the switch holds."""
    (program.folder / "AGENTS.md").write_text("Run the tests with make.\n")
    (program.folder / "CLAUDE.md").symlink_to("/etc/hostname")
    options["model"] = program.script([DONE])
    run = sandbox_agent.run("x", **options)
    events = [event async for event in run]
    order = [
        event.type for event in events if event.type in ("project_instructions", "user_message", "request_started")
    ]
    assert order == ["project_instructions", "user_message", "request_started"]
    notices = [event.text for event in events if isinstance(event, Notice)]
    assert "given to the model as untrusted text: AGENTS.md (24 bytes)" in notices
    assert "CLAUDE.md was not given to the model: it is a link that leads out of the folder" in notices
    assert isinstance(events[-1], ReviewReady)

    again = sandbox_agent.run("y", resume=run.result.session_id, **options)
    assert "project_instructions" not in [event.type async for event in again]
    record = run.result.record.read_text()
    assert record.count("Run the tests with make.") == 1

    (program.folder / "CLAUDE.md").unlink()
    off = sandbox_agent.run("z", project_instructions=False, **options)
    assert "project_instructions" not in [event.type async for event in off]
