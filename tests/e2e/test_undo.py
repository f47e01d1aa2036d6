"""Steps of a session from the command line: shown, gone back to, forked, and gone on with."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from program import DONE, Ended, Program, bash, containers_of, use

pytestmark = pytest.mark.docker

READ = {"text": "I look.", "tools": [bash("cat a.txt")]}
FIRST = {"text": "First.", "tools": [bash("echo two >> a.txt; mkdir d; echo x > d/x")]}
SECOND = {"text": "Second.", "tools": [bash("rm -r d; chmod 755 a.txt"), bash("echo y > y")]}


def ran(program: Program, *turns: dict[str, Any], more: tuple[str, ...] = ()) -> str:
    """Run these turns; the session's ID."""
    ended = program.call(
        "run", "-p", "--mode", "bypassPermissions", "--model", program.script([*turns, DONE]), *more, "x"
    )
    assert ended.code == 0, ended.stderr
    return sorted(path.name for path in (program.home / "state" / "sandbox-agent" / "sessions").iterdir())[-1]


def events(program: Program, session_id: str) -> list[dict[str, Any]]:
    path = program.home / "state" / "sandbox-agent" / "sessions" / session_id / "events.jsonl"
    return [json.loads(line) for line in path.read_text().splitlines()]


def rows(ended: Ended) -> list[dict[str, Any]]:
    assert ended.code == 0, ended.stderr
    return [json.loads(line) for line in ended.stdout.splitlines()]


def changed(program: Program, session_id: str) -> dict[str, str]:
    """What the session's copy differs in from the folder."""
    return {row["path"]: row["kind"] for row in rows(program.call("diff", session_id, "--json"))}


def test_steps_have_their_calls_and_changes_and_come_before_the_next_change(program: Program) -> None:
    """A step is complete when the next call that may write begins; reading makes none."""
    session_id = ran(program, FIRST, READ, SECOND)
    steps = rows(program.call("sessions", "show", session_id, "--json"))
    seen = [
        event["type"] for event in events(program, session_id) if event["type"] in ("checkpoint_taken", "tool_started")
    ]

    assert [(step["step"], step["origin"], [call["summary"] for call in step["calls"]]) for step in steps] == [
        (0, "base", []),
        (1, "calls", ["echo two >> a.txt; mkdir d; echo x > d/x"]),
        (2, "calls", ["rm -r d; chmod 755 a.txt", "echo y > y"]),
    ]
    assert [(change["path"], change["kind"]) for change in steps[2]["changed"]] == [
        ("a.txt", "mode"),
        ("d", "deleted"),
        ("d/x", "deleted"),
        ("y", "added"),
    ]
    assert seen[0] == "checkpoint_taken"
    assert seen[-3:] == ["tool_started", "tool_started", "checkpoint_taken"]
    assert "step 1" in program.call("sessions", "show", "last").stdout


def test_undo_goes_one_step_back_and_can_be_undone(program: Program) -> None:
    """The copy is what it was; the folder was not touched; no container is left."""
    session_id = ran(program, FIRST, SECOND)
    ended = program.call("undo", session_id, "--no-conversation")

    assert (ended.code, ended.stderr) == (0, "")
    assert ended.stdout.startswith("The workspace is as it was after step 1: 4 paths changed back (now step 3).\n")
    assert changed(program, session_id) == {"a.txt": "modified", "d/x": "added"}
    assert (program.folder / "a.txt").read_text() == "one\n"
    assert containers_of(session_id) == []
    assert program.call("undo", session_id, "--to", "2", "--no-conversation").code == 0
    assert changed(program, session_id) == {"a.txt": "modified", "y": "added"}


def test_the_model_is_told_of_an_undo_unless_the_conversation_goes_back_too(program: Program) -> None:
    """A note in the conversation, or the conversation as it was at that step."""
    session_id = ran(program, FIRST, SECOND)
    program.call("undo", session_id, "--no-conversation")
    ran(program, READ, more=("--resume", session_id))
    noted = [event for event in events(program, session_id) if event["type"] == "user_message"][1:]
    assert "brought the workspace back to what it was after step 1" in noted[0]["content"][0]["text"]

    program.call("undo", session_id, "--to", "1", "--conversation")
    rewound = events(program, session_id)[-1]
    assert (rewound["type"], rewound["step"]) == ("conversation_rewound", 1)
    results = [event for event in events(program, session_id) if event["type"] == "tool_results"]
    assert rewound["to_seq"] == results[0]["seq"]
    assert ran(program, READ, more=("--resume", session_id)) == session_id


def test_a_fork_goes_on_from_a_step_without_the_first_session(program: Program) -> None:
    """Its tree is that of the step, its steps are its own, and the session it comes from is as before."""
    session_id = ran(program, FIRST, SECOND)
    [made] = rows(program.call("fork", session_id, "--at", "1", "--json"))
    assert (made["at"], Path(made["workspace"])) == (1, program.folder.resolve())
    fork_id = ran(
        program, {"text": "On.", "tools": [bash("echo fork > f; rm d/x")]}, more=("--resume", made["session_id"])
    )

    assert fork_id == made["session_id"]
    assert changed(program, fork_id) == {"a.txt": "modified", "d": "added", "f": "added"}
    assert changed(program, session_id) == {"a.txt": "modified", "y": "added"}
    assert [step["origin"] for step in rows(program.call("sessions", "show", fork_id, "--json"))] == ["fork", "calls"]
    said = [event for event in events(program, fork_id) if event["type"] == "assistant_message"]
    assert [event["content"][0]["text"] for event in said] == ["First.", "On.", "All done."]


def test_what_cannot_be_undone_is_one_line(program: Program) -> None:
    """No such session, no such step, nobody to ask, and a workspace that was applied."""
    script = program.script([FIRST, DONE])
    applied = program.call("run", "-p", "--mode", "bypassPermissions", "--apply", "always", "--model", script, "x")
    assert applied.code == 0
    session_id = program.session().name

    gone = program.call("undo", session_id, "--no-conversation")
    assert (gone.code, gone.stderr.count("\n")) == (2, 1)
    assert "keeps no workspace" in gone.stderr
    assert program.call("fork", session_id, "--at", "0").code == 2
    assert "there is no session" in program.call("undo", "nothing").stderr

    kept = ran(
        program,
        {"text": "More.", "tools": [use("Write", file_path="/workspace/n", content="n")]},
        more=("--mode", "acceptEdits"),
    )
    assert "nobody is there to ask" in program.call("undo", kept).stderr
    missing = program.call("undo", kept, "--to", "9", "--no-conversation")
    assert (missing.code, missing.stderr) == (2, "sandbox-agent: there is no step 9; steps are 0 to 1\n")
