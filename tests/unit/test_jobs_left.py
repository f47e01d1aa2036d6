"""A session that goes on: its jobs are over, its record says so, and the model is told what it has not heard."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from frontend_events import STARTED

from sandbox_agent.engine.jobs_left import KILLED_WITH_IT, NOT_IN_A_FORK, jobs_left
from sandbox_agent.engine.queue import MessageQueue, Priority
from sandbox_agent.events import Event, JobFinished, JobStarted, ToolResultsMessage, UserMessage
from sandbox_agent.tape import TapeWriter, read_tape


def begun(job_id: str, agent_id: str = "main") -> JobStarted:
    return JobStarted(agent_id=agent_id, job_id=job_id, kind="shell", what=f"run {job_id}", call_id="c")


def over(job_id: str, state: str = "exited", agent_id: str = "main") -> JobFinished:
    return JobFinished(
        agent_id=agent_id,
        job_id=job_id,
        kind="shell",
        what=f"run {job_id}",
        call_id="c",
        state=state,
        exit_code=None,
        duration_s=1.0,
    )


def told(text: str) -> UserMessage:
    return UserMessage(content=({"type": "text", "text": text},))


def settled(folder: Path, *events: Event) -> tuple[list[Event], list[str]]:
    """What is added to the record, and what waits for the model."""
    path = folder / "events.jsonl"
    tape = TapeWriter(path)
    for event in events:
        tape.append(event)
    entries = read_tape(path).entries
    queue = MessageQueue()
    jobs_left(entries, [entry.event for entry in entries]).settle(tape, queue)
    tape.close()
    assert not queue.waiting()  # it rides along, nobody is woken for it
    added = [entry.event for entry in read_tape(path).entries[len(entries) :]]
    return added, [str(message.content[0]["text"]) for message in queue.take(Priority.NEXT)]


def test_what_the_model_has_heard_is_not_told_again(tmp_path: Path) -> None:
    """By a message of the queue, or by a result."""
    result = ToolResultsMessage(content=({"type": "tool_result", "tool_use_id": "c", "content": "b ended"},))
    events = (STARTED, begun("a"), begun("b"), over("a"), told("a ended"), over("b", "killed"), result)
    assert settled(tmp_path, *events) == ([], [])


def test_what_ended_with_the_session_is_told_once(tmp_path: Path) -> None:
    """Closed, or ended when nobody listened any more; not what the run between has told, nor another agent's."""
    earlier = (STARTED, begun("old"), over("old", "closed"))
    events = (
        *earlier,
        STARTED,
        told("old is over"),
        begun("a"),
        begun("b"),
        begun("c", "agent-1"),
        told("a and b run"),
    )
    added, [text] = settled(tmp_path, *events, over("a", "closed"), over("b"), over("c", "closed", "agent-1"))
    assert added == []
    assert "a (`run a`), b (`run b`)" in text
    assert "old" not in text
    assert "run c" not in text


def test_a_run_that_was_killed_before_it_told_of_them_tells_nothing_away(tmp_path: Path) -> None:
    """Not even where it has written their ends already."""
    _, [text] = settled(tmp_path, STARTED, begun("a"), STARTED, over("a", "closed"))
    assert "a (`run a`)" in text


def test_a_killed_session_gets_the_ends_that_it_never_wrote(tmp_path: Path) -> None:
    """So that each job has exactly one in its record, whosever it was."""
    added, [text] = settled(tmp_path, STARTED, begun("a"), begun("b", "agent-1"), begun("d"), over("d"), told("d"))
    assert [(event.job_id, event.state, event.note) for event in added if isinstance(event, JobFinished)] == [
        ("a", "closed", KILLED_WITH_IT),
        ("b", "closed", KILLED_WITH_IT),
    ]
    assert "a (`run a`)" in text


def test_a_kill_before_the_ends_were_written_loses_none(tmp_path: Path) -> None:
    """The run between was killed before it could."""
    added, [text] = settled(tmp_path, STARTED, begun("a"), STARTED)
    assert [event.job_id for event in added if isinstance(event, JobFinished)] == ["a"]
    assert "a (`run a`)" in text


def test_a_fork_has_no_jobs(tmp_path: Path) -> None:
    """Its record says what became of those that its conversation speaks of, and the model is told."""
    fork = replace(STARTED, forked_from="s-0", forked_step=2)
    added, [text] = settled(tmp_path, fork, begun("a"), told("a runs"))
    assert [(event.state, event.note) for event in added if isinstance(event, JobFinished)] == [
        ("closed", NOT_IN_A_FORK)
    ]
    assert "a (`run a`)" in text


def test_many_are_counted(tmp_path: Path) -> None:
    """Ten by name."""
    _, [text] = settled(tmp_path, STARTED, *(begun(f"j{number}") for number in range(13)))
    assert "j9 (`run j9`), 3 more" in text
