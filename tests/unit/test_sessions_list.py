"""`sessions list`: what tells one session from another."""

from __future__ import annotations

import io
import json
from contextlib import redirect_stdout
from dataclasses import replace
from pathlib import Path

import pytest
from frontend_events import STARTED, ended

from sandbox_agent.cli import main
from sandbox_agent.events import AssistantMessage, ConversationCompacted, LimitReached, RequestStarted
from sandbox_agent.tape import TapeWriter
from sandbox_agent.types import Usage

PARENT, FORK = "20260101000000abcdef01", "20260101000001abcdef02"


def called(*words: str) -> str:
    out = io.StringIO()
    with redirect_stdout(out), pytest.raises(SystemExit):
        main(["sessions", *words])
    return out.getvalue()


def listed(*options: str) -> str:
    return called("list", *options)


def test_a_fork_says_what_it_comes_from(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also after it was gone on with; its parent says nothing of the sort."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    forked = replace(STARTED, forked_from=PARENT, forked_step=3)
    for session_id, events in {PARENT: [STARTED], FORK: [forked, replace(STARTED, resumed_from=FORK)]}.items():
        folder = tmp_path / "sandbox-agent/sessions" / session_id
        folder.mkdir(parents=True)
        tape = TapeWriter(folder / "events.jsonl")
        for event in events:
            tape.append(event)
        tape.close()

    assert listed().splitlines()[1] == f"    fork of {PARENT} at step 3"
    assert listed().count("fork of") == 1
    rows = {row["session_id"]: row for row in map(json.loads, listed("--json").splitlines())}
    assert (rows[FORK]["forked_from"], rows[FORK]["forked_step"]) == (PARENT, 3)
    assert rows[PARENT]["forked_from"] is None


@pytest.mark.parametrize("command", ["list", "show", "rm", "audit"])
def test_the_help_of_each_command_has_examples(command: str) -> None:
    """Under its options, as every other command's."""
    out = io.StringIO()
    with redirect_stdout(out), pytest.raises(SystemExit):
        main(["sessions", command, "--help"])
    assert f"Examples:\n    sandbox-agent sessions {command}" in out.getvalue()


def test_what_the_runs_of_a_session_used_is_shown_and_summed_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the limit that ended one; of a run that was killed the cost is not known, and so not of all together."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    folder = tmp_path / "sandbox-agent/sessions" / PARENT
    folder.mkdir(parents=True)
    first = [
        RequestStarted(turn=1),
        LimitReached(limit="tokens", value=1_000),
        replace(ended("limit", cost_usd=0.5), usage=Usage(1_000, 200)),
    ]
    compacted = ConversationCompacted(
        messages=(), reason="full", tokens_before=9, tokens_after=1, window_tokens=9, model="m", usage=Usage(3, 1)
    )
    said = AssistantMessage(agent_id="agent-1", content=(), stop_reason="end_turn", model="m", usage=Usage(40, 2))
    killed = [RequestStarted(turn=1), said, compacted]
    tape = TapeWriter(folder / "events.jsonl")
    for event in [STARTED, *first, STARTED, *first]:
        tape.append(event)

    assert called("show", PARENT).splitlines() == [
        *(
            f"run {number}     limit (tokens = 1,000) · 2 turns, 1,000 tokens in, 200 out, 0.50 USD"
            for number in (1, 2)
        ),
        "in all    2 runs · 4 turns, 2,000 tokens in, 400 out, 1.00 USD",
    ]
    for event in killed:
        tape.append(event)
    tape.close()
    assert called("show", PARENT).splitlines()[2:] == [
        "run 3     unfinished · 1 turn, 43 tokens in, 3 out, cost unknown",
        "in all    3 runs · 5 turns, 2,043 tokens in, 403 out, cost unknown",
    ]
    [row] = map(json.loads, called("list", "--json").splitlines())
    assert (row["turns"], row["usage"]["input_tokens"], row["cost_usd"]) == (5, 2_043, None)


def test_a_killed_run_counts_and_what_a_fork_was_given_does_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever comes after them."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    said = AssistantMessage(content=(), stop_reason="end_turn", model="m", usage=Usage(40, 2))
    worked = [RequestStarted(turn=1), said]
    forked = replace(STARTED, forked_from=PARENT, forked_step=3)
    runs = {
        PARENT: [STARTED, *worked, STARTED, *worked, ended("done", cost_usd=0.5)],
        FORK: [forked, *worked, *worked],
        FORK.replace("02", "03"): [forked, *worked, STARTED, *worked],
    }
    for session_id, events in runs.items():
        folder = tmp_path / "sandbox-agent/sessions" / session_id
        folder.mkdir(parents=True)
        tape = TapeWriter(folder / "events.jsonl")
        for event in events:
            tape.append(event)
        tape.close()
    shown = [[line.split(" · ")[0] for line in called("show", name).splitlines()] for name in runs]
    assert shown == [["run 1     unfinished", "run 2     done", "in all    2 runs"], [], ["run 1     unfinished"]]
