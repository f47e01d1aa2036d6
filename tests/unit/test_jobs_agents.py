"""Commands that sub-agents have in the background: their own, heard of by them, and gone when they are."""

from __future__ import annotations

from pathlib import Path

from agents_rig import Part, heard, make_team, say, task, tools
from engine_session import finished, of, play, results, use

from sandbox_agent.engine.agent_types import AgentType
from sandbox_agent.events import JobFinished, JobStarted
from sandbox_agent.models.base import ModelRequest
from sandbox_agent.tools.bash import TOOL as BASH

ENDLESS = use("Bash", command="sleep 1000", run_in_background=True)
SHORT = AgentType("short", "one turn", "You have one turn.", max_turns=1)


async def test_a_sub_agent_hears_of_its_own_job(tmp_path: Path) -> None:
    """And nobody else does: its parent gets its report, and finds no such job."""
    asked: list[str] = []

    def child(request: ModelRequest) -> object:
        asked.append(heard(request))
        answers = [tools(use("Bash", command="echo built", run_in_background=True)), say("waiting"), say("it is built")]
        return answers[len(asked) - 1]

    parts: dict[str, Part] = {"main": [tools(task("child")), say("done")], "child": child}
    async with make_team(parts, tmp_path, own=[BASH]) as session:
        events = await play(session, "main")
        [job] = of(events, JobStarted)

        assert (job.agent_id, session.jobs.get(job.job_id, "main")) == ("agent-1", None)
    assert "ended with exit code 0" in asked[2]
    assert "built" in asked[2]
    assert finished(events).text == "done"
    assert "it is built" in str(results(events))


async def test_the_jobs_of_a_sub_agent_end_with_it(tmp_path: Path) -> None:
    """It reached its limit of turns: what it had running is stopped, for nobody would hear of it."""
    parts = {"main": [tools(task("child", subagent_type="short")), say("done")], "child": [tools(ENDLESS)]}
    async with make_team(parts, tmp_path, own=[BASH], types={"short": SHORT}) as session:
        events = await play(session, "main")

        assert session.jobs.running() == ()
    assert [(event.agent_id, event.state, event.note) for event in of(events, JobFinished)] == [
        ("agent-1", "killed", "the sub-agent that had started it ended")
    ]
