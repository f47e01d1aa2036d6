"""A record folded to a story: nested, attributed, and whole whatever state the record is in."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest
from report_rig import BEGAN_UNIX_S, STARTED, call, entries, everything, long_session, story, text, turn, use

from sandbox_agent.errors import RecordError
from sandbox_agent.events import (
    AssistantMessage,
    ConversationCompacted,
    Event,
    RequestStarted,
    RunFinished,
    ToolStarted,
    UserMessage,
)
from sandbox_agent.prompts import prompt
from sandbox_agent.reports import costs
from sandbox_agent.reports.kinds import KINDS
from sandbox_agent.reports.parts import Aside, Call, Said
from sandbox_agent.reports.telling import read, tell
from sandbox_agent.tape import TapeWriter
from sandbox_agent.types import Usage

GIVEN = {"command": "make"}
DONE = RunFinished(status="done", text="Done.", turns=1, usage=Usage(5, 5), duration_s=2.0, cost_usd=0.5)


def asked(words: str) -> UserMessage:
    return UserMessage(content=(text(words),))


def test_a_whole_session_is_told_in_order_with_everything_in_its_place() -> None:
    """Calls have their decisions, effects and hooks; a sub-agent's work hangs on its call, a job on its own."""
    told = story(everything())
    calls = {one.call_id: one for one in told.calls}
    outcomes = {name: one.outcome for name, one in calls.items()}
    assert outcomes == {
        **dict.fromkeys(("t2", "t3", "a1", "t4", "t6", "t7"), "ok"), "t1": "failed", "t5": "denied", "t8": "discarded",
    }  # fmt: skip
    assert [one.call_id for one in told.items if isinstance(one, Call)] == [f"t{n}" for n in (1, 2, 3, 4, 5, 6, 7, 8)]
    [work] = calls["t3"].works
    assert (work.status, [one.call_id for one in work.items if isinstance(one, Call)]) == ("done", ["a1"])
    assert [one.text for one in work.items if isinstance(one, Said)] == ["I search.", "Two places call it."]
    [job] = calls["t6"].jobs
    assert (job.finished is not None, calls["t4"].hooks[0].hook) == (True, "format")
    assert (calls["t4"].asked is not None, calls["t4"].changed_files) == (True, 1)
    assert calls["t5"].about == "git push"
    assert [one.command for one in told.checks] == ["python3 -m pytest -q", "ruff check ."]
    assert (told.status, told.cost_usd, len(told.requests)) == ("failed", 0.0861, 8)


def test_every_beginning_of_a_record_can_be_told_in_every_form() -> None:
    """A session that still runs, or was killed at any moment."""
    events = everything()
    for size in range(len(events)):
        told = story(events[:size])
        for render in KINDS.values():
            assert render(told)
    assert story([STARTED, asked("x"), *turn(1, use("c", "Bash", GIVEN))]).status == "unfinished"


def test_an_id_that_is_given_again_is_another_call() -> None:
    """By a later request, also after the session was gone on with."""
    once = [*turn(1, use("c1", "Bash", GIVEN)), *call("c1", "Bash", GIVEN, "first")]
    again = [*turn(1, use("c1", "Bash", GIVEN)), *call("c1", "Bash", GIVEN, "second")]
    told = story([STARTED, asked("a"), *once, DONE, STARTED, asked("b"), *again, DONE])
    assert [one.finished.content for one in told.calls if one.finished is not None] == ["first", "second"]
    assert [(task.text, task.status) for task in told.tasks] == [("a", "done"), ("b", "done")]
    assert told.cost_usd == 1.0


def test_what_a_fork_has_from_elsewhere_counts_there() -> None:
    """It is shown, and is none of its calls, tasks or costs."""
    fork = dataclasses.replace(STARTED, session_id="fork", forked_from="other", forked_step=2)
    before = [*turn(1, use("c1", "Bash", GIVEN)), *call("c1", "Bash", GIVEN)]
    after = [*turn(1, use("c2", "Bash", GIVEN)), *call("c2", "Bash", GIVEN)]
    told = story([fork, asked("old"), *before, DONE, STARTED, asked("new"), *after, DONE])
    assert [one.call_id for one in told.calls] == ["c1", "c2"]
    assert [one.call_id for one in told.own_calls] == ["c2"]
    assert [task.text for task in told.own_tasks] == ["new"]
    assert told.usage == sum((one.usage or Usage() for one in told.requests[1:]), Usage())


def test_a_call_that_ran_before_its_answer_was_whole_is_one_call() -> None:
    """Its start comes before the message that has it."""
    early = [RequestStarted(turn=1), *call("c1", "Read", {"file_path": "a"})]
    answer = AssistantMessage(
        content=(use("c1", "Read", {"file_path": "a"}),), stop_reason="tool_use", model="m", usage=Usage()
    )
    told = story([STARTED, asked("x"), *early, answer])
    assert [(one.call_id, one.outcome) for one in told.calls] == [("c1", "ok")]


def test_a_call_without_an_end_is_unfinished() -> None:
    """So it was when the run was killed."""
    started = ToolStarted(call_id="c1", tool="Bash", summary="make", input=GIVEN, batch=0)
    told = story([STARTED, asked("x"), *turn(1, use("c1", "Bash", GIVEN)), started])
    assert [one.outcome for one in told.calls] == ["unfinished"]


def test_an_event_without_words_of_its_own_is_told_all_the_same() -> None:
    """By its name and its fields."""

    class Strange(Event):
        type = "something_new"

    told = tell(entries([STARTED, Strange()]))
    assert [(one.kind, one.title) for one in told.items if isinstance(one, Aside)][1:] == [
        ("something new", "Something new")
    ]


def test_a_damaged_record_is_told_as_far_as_it_goes(tmp_path: Path) -> None:
    """And says that it is damaged; one that is gone is an error."""
    path = tmp_path / "events.jsonl"
    tape = TapeWriter(path)
    for event in everything():
        tape.append(event)
    tape.close()
    lines = path.read_bytes().splitlines()
    path.write_bytes(b"\n".join([*lines[:20], b'{"seq": 20, "rubbish"', *lines[21:]]))
    told = read(path)
    assert (told.damaged_lines, told.chain_ok, told.status) == (1, False, "failed")
    assert "1 damaged line" in KINDS["html"](told)
    assert "- record: damaged" in KINDS["markdown"](told)
    with pytest.raises(RecordError):
        read(tmp_path / "nothing")


def test_costs_are_by_request_and_by_call_and_in_all() -> None:
    """What a summary used counts in the sum; what nobody knows is None."""
    summary = ConversationCompacted(
        messages=(), reason="full", tokens_before=9, tokens_after=2, window_tokens=9, model="m", usage=Usage(7, 3)
    )
    told = story([*everything(), summary])
    rows = [*costs.calls(told)]
    install = next(row for row in rows if row.call_id == "t6")
    assert (install.cpu_s, install.max_rss_bytes, install.sent_bytes, install.received_bytes) == (
        2.2,
        71e6,
        2_400,
        81_000,
    )
    assert (install.output_bytes, install.duration_s) == (len("job-1 runs"), 0.24)
    assert next(row for row in rows if row.call_id == "t5").duration_s is None
    requests = [*costs.requests(told)]
    assert requests[0].cost_usd == 0.0041
    assert requests[0].duration_s == pytest.approx(0.4)
    totals = costs.totals(told)
    assert totals.usage == sum((one.usage or Usage() for one in told.requests), Usage(7, 3))
    assert (totals.cpu_s, totals.max_rss_bytes, totals.received_bytes) == (pytest.approx(3.62), 71e6, 81_000)
    assert story([STARTED]).first_unix_s == BEGAN_UNIX_S


def test_a_session_that_was_killed_costs_what_its_answers_cost() -> None:
    """No end says it; where one answer has no known price, it is not known."""
    told = story(long_session(40))
    assert told.tasks[-1].finished is None
    costs = [one.cost_usd for one in told.requests]
    assert told.cost_usd == pytest.approx(sum(cost for cost in costs if cost is not None))
    unpriced = [
        dataclasses.replace(one, cost_usd=None) if isinstance(one, AssistantMessage) else one
        for one in long_session(40)
    ]
    assert story(unpriced).cost_usd is None


def test_only_what_a_person_said_is_theirs() -> None:
    """A sub-agent hears its parent, and what comes during a task may be the engine's."""
    told = story(
        [
            STARTED,
            asked("Do it."),
            asked("Only a few tokens are left."),
            dataclasses.replace(asked("Look around."), agent_id="agent-1", parent_id="main"),
            DONE,
            asked(prompt("engine/job_ended")),
            DONE,
        ]
    )
    said = [(one.who, one.text.partition(" ")[0]) for one in told.items if isinstance(one, Said)]
    assert said == [("user", "Do"), ("told", "Only"), ("told", "Look"), ("told", "Note")]
    assert "To the model" in KINDS["html"](told)
