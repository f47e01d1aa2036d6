"""What people and programs are shown of commands in the background."""

from __future__ import annotations

from frontend_events import STARTED

from sandbox_agent.events import Event, JobFinished, JobStarted
from sandbox_agent.frontends.asides import lines
from sandbox_agent.frontends.stream_json import StreamJson
from sandbox_agent.types import JsonObject

JOB: JsonObject = {"job_id": "bash_1", "kind": "shell", "what": "npm test", "call_id": "t1"}
BEGUN = JobStarted(**JOB, output_path="/tmp/sandbox-agent/job-1.txt", limit_s=1800.0)


def ended(state: str, exit_code: int | None = None, **fields: str) -> JobFinished:
    return JobFinished(**JOB, state=state, exit_code=exit_code, duration_s=2.5, **fields)


def line(event: Event) -> str:
    [text] = lines(event, verbose=False)
    return text.plain


def system(event: Event) -> JsonObject:
    view = StreamJson(new_id=lambda: "u")
    list(view.lines(STARTED))
    [found] = view.lines(event)
    return {key: value for key, value in found.items() if key not in ("session_id", "uuid", "type")}


def test_a_person_sees_a_job_begin_and_end() -> None:
    """With how it ended, and why where that is not plain; hostile text acts on no terminal."""
    assert line(BEGUN) == "& bash_1 in the background: npm test"
    assert line(ended("exited", 0)) == "& bash_1 npm test: exit code 0 · 2.50 s"
    assert line(ended("exited", 3, note="out of memory")) == "& bash_1 npm test: exit code 3 · 2.50 s (out of memory)"
    assert line(ended("timed_out", 143)) == "& bash_1 npm test: killed at its limit · 2.50 s"
    assert line(ended("killed", note="by TaskStop")) == "& bash_1 npm test: stopped · 2.50 s (by TaskStop)"
    assert "\x1b" not in line(ended("failed", note="\x1b[2J"))


def test_an_agent_in_the_background_has_lines_of_its_own_already() -> None:
    """So it gets no second ones."""
    agent = {**JOB, "kind": "agent", "job_id": "agent-1"}
    events = (JobStarted(**agent), JobFinished(**agent, state="exited", exit_code=None, duration_s=1.0))
    assert [list(lines(event, verbose=True)) for event in events] == [[], []]
    assert [list(StreamJson().lines(event)) for event in events] == [[], []]


def test_programs_get_a_line_at_the_start_and_one_at_the_end() -> None:
    """In the words of the field, with ours beside them."""
    assert system(BEGUN) == {
        "subtype": "task_started",
        "task_id": "bash_1",
        "tool_use_id": "t1",
        "task_type": "local_bash",
        "description": "npm test",
        "output_file": "/tmp/sandbox-agent/job-1.txt",
        "timeout_ms": 1_800_000,
    }
    assert system(ended("exited", 0)) == {
        "subtype": "task_notification",
        "task_id": "bash_1",
        "tool_use_id": "t1",
        "status": "completed",
        "run_status": "exited",
        "exit_code": 0,
        "summary": "npm test",
        "note": "",
        "output_file": "",
        "output_bytes": None,
        "duration_ms": 2500,
    }
    states = [("exited", 1), ("timed_out", 143), ("failed", None), ("killed", None), ("closed", None)]
    found = [system(ended(*one))["status"] for one in states]
    assert found == ["failed", "failed", "failed", "stopped", "stopped"]
