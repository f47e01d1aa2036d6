"""Runs through the real SDK against a strict double of the Messages API."""

from __future__ import annotations

from pathlib import Path

import anyio
import pytest
from program import DONE, Ended, Program

from sandbox_agent.models.script_file import read_script
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
    turns = [{"text": "x", "status": 529, "headers": {"retry-after": "0"}}, DONE]
    async with ApiDouble(turns) as api:
        ended = await call(api, program, "run", "--output", "json", "-v", "--model", "anthropic:claude-test", "x")

    assert (ended.code, ended.document["result"]) == (0, "All done.")
    assert "trying again" in ended.stderr
