"""Runs of one task beside each other: where they part, what they came to, and how often."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import pytest
from cli_calls import call
from frontend_events import STARTED

from sandbox_agent.cli.repeat_run import _lines
from sandbox_agent.engine.repeating import Comparison, Trace, compare
from sandbox_agent.events import (
    AssistantMessage,
    CheckFinished,
    CheckpointTaken,
    Event,
    ReviewReady,
    RunFinished,
    ToolResultsMessage,
)
from sandbox_agent.types import Usage


def asked(command: str, *, agent: str = "main", call_id: str = "c", said: str = "Now.") -> AssistantMessage:
    use = {"type": "tool_use", "id": call_id, "name": "Bash", "input": {"command": command}}
    content = ({"type": "text", "text": said}, use)
    return AssistantMessage(agent_id=agent, content=content, stop_reason="tool_use", model="m", usage=Usage())


def gave(text: Any, *, agent: str = "main", call_id: str = "c", is_error: bool = False) -> ToolResultsMessage:
    block = {"type": "tool_result", "tool_use_id": call_id, "content": text, "is_error": is_error}
    return ToolResultsMessage(agent_id=agent, content=(block,))


def answered(text: str) -> AssistantMessage:
    return AssistantMessage(content=({"type": "text", "text": text},), stop_reason="end_turn", model="m", usage=Usage())


def ended(status: str = "done", tree: str = "t", *checks: bool) -> list[Event]:
    step = {"step": 1, "origin": "calls", "call_ids": (), "changed": (), "changed_count": 0, "duration_s": 0.1}
    return [
        CheckpointTaken(tree_sha256=tree, **step),  # type: ignore[arg-type]
        RunFinished(status=status, text="", turns=2, usage=Usage(10, 2), duration_s=1.5, cost_usd=0.25),
        ReviewReady(changes=({"path": "a.py"},)),
        *(
            CheckFinished(number=number, command="c", exit_code=0 if passed else 1, duration_s=0.1)
            for number, passed in enumerate(checks, start=1)
        ),
    ]


def compared(*runs: Sequence[Event]) -> Comparison:
    traces = []
    for number, events in enumerate(runs, start=1):
        trace = Trace(number)
        for event in (STARTED, *events):
            trace.feed(event)
        traces.append(trace)
    return compare(traces)


SAME = [asked("ls"), gave("a.py"), answered("Done."), *ended()]


def test_runs_that_agree() -> None:
    """Other words beside a call, other ids, times and durations are no difference."""
    again = [asked("ls", call_id="x", said="Let me look."), gave("a.py", call_id="x"), answered("Done."), *ended()]
    noisy = compared(
        [asked("t"), gave("1 passed in 0.12s"), *ended()], [asked("t"), gave("1 passed in 3.40s"), *ended()]
    )
    found = compared(SAME, again)

    assert (found.parting, found.agreement, found.outcome_agreement) == (None, (1.0, 1.0, 1.0), 1.0)
    assert (found.flake_score, found.pass_rate, noisy.parting) == (0.0, 1.0, None)
    assert _lines(found) == [
        "All 2 runs took the same steps.",
        "passed 100%, same outcome 100%, flake score 0.00 (0 is none)",
    ]


@pytest.mark.parametrize(
    ("other", "step", "ways"),
    [
        ([asked("ls -a"), gave("a.py"), answered("Done.")], 1, ['Bash {"command": "ls"}', 'Bash {"command": "ls -a"}']),
        ([asked("ls"), gave("b.py"), answered("Done.")], 2, ["Bash gave a.py", "Bash gave b.py"]),
        (
            [asked("ls"), gave("a.py", is_error=True), answered("Done.")],
            2,
            ["Bash gave a.py", "Bash gave an error: a.py"],
        ),
        ([asked("ls"), gave([{"type": "text", "text": "x"}])], 2, ["Bash gave a.py", "Bash gave x"]),
        ([asked("ls"), gave("a.py"), answered("Not done.")], 3, ["Done.", "Not done."]),
        ([asked("ls"), gave("a.py")], 3, ["Done.", None]),
    ],
)
def test_the_first_step_that_differs(other: list[Event], step: int, ways: list[str | None]) -> None:
    """A call, its result, the last answer, or nothing more; most runs first."""
    found = compared(SAME, [*other, *ended()], SAME)

    assert found.parting is not None
    assert (found.parting.agent_id, found.parting.step) == ("main", step)
    assert [way.what if way else None for way, _ in found.parting.ways] == ways
    assert [runs for _, runs in found.parting.ways] == [(1, 3), (2,)]
    assert found.agreement[step - 1] == pytest.approx(2 / 3)
    assert found.flake_score == pytest.approx(1 / 3, abs=1e-3)
    assert found.outcome_agreement == 1.0


def test_sub_agents_are_compared_by_themselves() -> None:
    """Their steps come in any order between those of others."""
    inner = [asked("x", agent="agent-1"), gave("1", agent="agent-1")]
    found = compared([*inner, *SAME], [SAME[0], *inner, *SAME[1:]], [asked("y", agent="agent-1"), *SAME])

    assert found.parting is not None
    assert (found.parting.agent_id, found.parting.step) == ("agent-1", 1)
    assert _lines(found)[0] == "The runs part at step 1 of agent-1:"


def test_what_they_came_to() -> None:
    """Status, tree and checks: shares of what most came to, and of those that passed."""
    head = SAME[:3]
    found = compared(
        [*head, *ended("done", "t", True)],
        [*head, *ended("done", "t", True)],
        [*head, *ended("done", "u", False)],
        [*head, *ended("limit", "t")],
    )
    document = found.as_json()

    assert (found.parting, found.pass_rate, found.outcome_agreement, found.flake_score) == (None, 0.5, 0.5, 0.5)
    assert document["trees"] == {"t": [1, 2, 4], "u": [3]}
    assert [(run["status"], run["ok"], run["total_cost_usd"]) for run in document["runs"]] == [
        ("done", True, 0.25),
        ("done", True, 0.25),
        ("done", False, 0.25),
        ("limit", False, 0.25),
    ]
    assert _lines(found)[1:3] == ["They came to different trees:", "  3 of 4 (runs 1, 2, 4): t"]


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--jobs", "2"), "--jobs: goes with --repeat"),
        (("--repeat", "2", "--apply", "always"), "--repeat applies nothing"),
        (("--repeat", "2", "--output", "stream-json"), "--output json or text"),
        (("--repeat", "2", "--workspace-mode", "bind"), "--workspace-mode bind"),
        (("--repeat", "2", "--resume", "x"), "--repeat and --resume exclude each other"),
    ],
)
def test_what_has_no_meaning_for_many_runs_is_refused(options: tuple[str, ...], said: str) -> None:
    """In one line, before anything starts."""
    ended = call("run", "-p", *options, "x")

    assert (ended.code, len(re.findall(r"\n", ended.err))) == (2, 1)
    assert said in ended.err
