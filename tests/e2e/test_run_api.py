"""Runs through the real SDK against a strict double of the Messages API."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import anyio
import pytest
from program import DONE, Ended, Program

from sandbox_agent.events import CallDiscarded, ToolStarted
from sandbox_agent.models.script_file import read_script
from sandbox_agent.tape import read_tape
from sandbox_agent.testing.api_double import ApiDouble
from sandbox_agent.testing.api_turns import DoubleScript

pytestmark = pytest.mark.docker

DEMO = Path(__file__).parents[2] / "examples" / "demo.yaml"
KEY = "CANARY-KEY-0123456789"


async def call(api: ApiDouble, program: Program, *arguments: str) -> Ended:
    """Call the program with the double as its API."""
    return await anyio.to_thread.run_sync(
        lambda: program.call(*arguments, ANTHROPIC_API_KEY=KEY, ANTHROPIC_BASE_URL=api.base_url)
    )


async def test_the_demo_runs_through_the_sdk(program: Program) -> None:
    """The same turns as in the scripted demo, every request checked as the API checks it."""
    kept = program.folder.parent / "kept"
    async with ApiDouble(read_script(DEMO, DoubleScript)) as api:
        done = await call(api, program, "demo", "--keep", str(kept), "--model", "anthropic:claude-test")

    assert done.code == 0, done.stderr
    assert [received.refusal for received in api.requests if received.refusal] == []
    assert api.turns_left == 0
    assert "if weight_kg <= band.limit_kg" in (kept / "parcels" / "tariff.py").read_text()


async def test_a_retry_is_told_and_survived(program: Program) -> None:
    """An overloaded API is asked again; stdout still is one document."""
    turns: list[dict[str, Any]] = [{"text": "x", "status": 529, "headers": {"retry-after": "0"}}, DONE]
    async with ApiDouble(turns) as api:
        ended = await call(api, program, "run", "--output", "json", "-v", "--model", "anthropic:claude-test", "x")

    assert (ended.code, ended.document["result"]) == (0, "All done.")
    assert "trying again" in ended.stderr


READ: dict[str, Any] = {"Read": {"file_path": "a.txt"}}
GREP: dict[str, Any] = {"Grep": {"pattern": "one"}}


async def test_reads_begin_early_a_broken_answer_is_survived_and_the_fallback_is_told(program: Program) -> None:
    """One run on a real container: the first model is not known, the fallback's answer breaks off behind its reads, and
    the record of it all proves to be in order."""
    slow: dict[str, Any] = {"text": "I look.", "tools": [READ, GREP, GREP], "pace_s": 0.2}
    turns = [{"tools": [READ]}, {**slow, "fault": "eof", "after": 14}, slow, DONE]
    async with ApiDouble(turns, models=["claude-other"]) as api:
        options = ("--model", "anthropic:claude-test", "--fallback-model", "anthropic:claude-other")
        ended = await call(api, program, "run", "--output", "stream-json", "-v", *options, "x")
    lines = [json.loads(line) for line in ended.stdout.splitlines()]
    entries = read_tape(program.session() / "events.jsonl").entries
    audited = program.call("sessions", "audit", "last")

    assert ended.code == 0, ended.stderr
    assert "the rest of this run asks anthropic:claude-other" in ended.stderr
    [switched] = [line for line in lines if line.get("subtype") == "model_switched"]
    assert "claude-test" in switched["reason"]
    _, *started = [entry.event for entry in entries if isinstance(entry.event, ToolStarted)]
    gone = [entry.event.call_id for entry in entries if isinstance(entry.event, CallDiscarded)]
    assert [event.early for event in started if event.call_id in gone] == [True] * len(gone)
    assert gone
    kept = [event for event in started if event.call_id not in gone]
    assert [event.tool for event in kept] == ["Read", "Grep", "Grep"]
    assert kept[0].early
    results = api.message_bodies[-1]["messages"][-1]["content"]
    given = [str(block["content"]) for block in results if block["type"] == "tool_result"]
    assert [word in text for word, text in zip(("one", "a.txt", "a.txt"), given, strict=True)] == [True] * 3
    assert audited.code == 0, audited.stdout + audited.stderr


async def test_a_run_killed_while_an_answer_streams_is_gone_on_with(program: Program) -> None:
    """What had been read for the answer that never came is no part of the conversation."""
    stalled = {"tools": [READ], "fault": "stall", "after": 6}
    options = ("run", "--output", "json", "-v", "--model", "anthropic:claude-test")

    def kill_after_the_read(api: ApiDouble) -> None:
        env = program.environment(ANTHROPIC_API_KEY=KEY, ANTHROPIC_BASE_URL=api.base_url)
        with subprocess.Popen(
            [*program.command(), *options, "x"],
            env=env,
            cwd=program.folder,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
        ) as process:
            assert process.stderr is not None
            for line in process.stderr:
                if b"ok 1 line" in line:
                    process.kill()

    async with ApiDouble([stalled, {"tools": [READ]}, DONE]) as api:
        await anyio.to_thread.run_sync(kill_after_the_read, api)
        gone_on = await call(api, program, *options, "-c", "go on")

    assert (gone_on.code, gone_on.document["result"]) == (0, "All done."), gone_on.stderr
    assert [received.refusal for received in api.requests if received.refusal] == []
    assert [message["role"] for message in api.message_bodies[1]["messages"]] == ["user"]
    assert program.call("sessions", "audit", "last").code == 0
