"""`sandbox-agent run` with far more sub-agents than the caps allow, on the real engine: it keeps to them, says so, and
leaves nothing behind."""

from __future__ import annotations

import json
from typing import Any

import pytest
from program import DONE, Program, containers_of, use

from sandbox_agent.events import AgentFinished, AgentStarted, JobFinished, JobStarted, ToolFinished
from sandbox_agent.tape import read_tape

pytestmark = pytest.mark.docker

WIDTH = 9


def tasks(name: str, *, behind: int = 0) -> dict[str, Any]:
    """So many sub-agents at once, the first of them in the background."""
    calls = [
        use("Task", description=name, prompt=f"[{name}]", run_in_background=number < behind) for number in range(WIDTH)
    ]
    return {"tools": calls}


def test_a_run_that_asks_for_hundreds_of_sub_agents_keeps_to_the_caps(program: Program) -> None:
    """Three levels of nine are asked for, some in the background; 50 are started, two levels deep, each at the lowest
    writes through the one lane and leaves a process, and neither that nor a container is there afterwards."""
    write = {"tools": [use("Bash", command="echo one >> all.txt; sleep 1000 &")]}
    # Agents of one name share a list: each takes the next turn of it, whichever it is.
    agents = {
        "[middle]": [tasks("lower", behind=2)] * WIDTH + [{"text": "middle is done"}] * 60,
        "[lower]": [write] * WIDTH * WIDTH + [{"text": "lower is done"}] * 200,
    }
    model = program.script([tasks("middle"), DONE], agents=agents)
    ended = program.call("run", "-p", "--output", "json", "--mode", "bypassPermissions", "--model", model, "x")
    events = [entry.event for entry in read_tape(program.session() / "events.jsonl").entries]
    started = [event for event in events if isinstance(event, AgentStarted)]

    assert ended.code == 0, ended.stdout + ended.stderr
    assert len({event.agent_id for event in started}) == 50
    assert max(event.agent_id.count(".") for event in started) == 1
    assert len([event for event in events if isinstance(event, AgentFinished)]) == len(started)
    assert len([event for event in events if isinstance(event, JobFinished)]) == len(
        [event for event in events if isinstance(event, JobStarted)]
    )
    said = {str(event.content) for event in events if isinstance(event, ToolFinished) and event.is_error}
    assert any("the limit subagents.total of this session is 50" in text for text in said)
    wrote = [event for event in events if isinstance(event, ToolFinished) and event.tool == "Bash"]
    assert not [event for event in wrote if event.is_error]
    lines = program.call("diff", "last").stdout.count("+one")
    assert lines == len(wrote) >= 41
    assert json.loads(ended.stdout)["usage"] is not None
    assert containers_of(program.session().name) == []
