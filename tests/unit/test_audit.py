"""The audit of a record: what it proves, what it lists, and that nothing in its place makes it hang or fail."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from test_cli import Ended, call

from sandbox_agent.config import sessions_dir
from sandbox_agent.engine.requests import digest
from sandbox_agent.events import (
    AssistantMessage,
    CallEffects,
    ChangesApplied,
    Event,
    HookRan,
    PermissionAsked,
    PermissionDecided,
    RunFinished,
    SessionStarted,
    ToolStarted,
)
from sandbox_agent.tape import TapeWriter
from sandbox_agent.types import Usage

ID = "20260101000000abcdef01"
INPUT = {"command": "make \x1b[31mall"}
STARTED = SessionStarted(
    session_id=ID,
    model="script:x",
    workspace="/home/me/p",
    workspace_mode="overlay",
    image="base",
    policy="default",
    mode="default",
    tools=("Bash",),
    version="1",
)
ASKED = PermissionAsked(
    call_id="c1",
    tool="Bash",
    summary="make \x1b[31mall",
    reason="not covered.",
    rule=None,
    location=None,
    input_sha256="",
    suggested_rules=("Bash(make all)",),
)
ALLOWED = PermissionDecided(
    call_id="c1",
    tool="Bash",
    verdict="allow",
    reason="the person said yes.",
    rule=None,
    location=None,
    input_sha256=digest("Bash", INPUT),
    asked=True,
    mode="default",
    answered_by="person",
    scope="always",
    saved_rules=("Bash(make all)",),
)
RAN = ToolStarted(call_id="c1", tool="Bash", summary="make \x1b[31mall", input=INPUT, batch=0)
DID = CallEffects(
    call_id="c1",
    tool="Bash",
    read_only=True,
    batch=0,
    duration_s=1.0,
    changed=({"path": "a.txt", "kind": "modified"},),
    changed_count=1,
    hosts=("example.org:443",),
    contradictions=("changed_files",),
)
DENIED = PermissionDecided(
    call_id="c2",
    tool="Bash",
    verdict="deny",
    reason="Publishing is for people.",
    rule="Bash(git push:*)",
    location="/p/policy.yaml:7",
    input_sha256="",
    mode="default",
    layer="user",
)
ASKS = AssistantMessage(
    content=({"type": "tool_use", "id": "c2", "name": "Bash", "input": {"command": "git push"}},),
    stop_reason="tool_use",
    model="m",
    usage=Usage(),
)
HOOK = HookRan(hook="lint", event="pre_tool_use", place="container", exit_code=2, duration_s=0.1, reason="no")
APPLIED = ChangesApplied(applied=("a.txt",), unapplied=("b.txt",), conflicts={"b.txt": "changed meanwhile"})
ENDED = RunFinished(status="denied", text="", turns=1, usage=Usage(), duration_s=1.0)
ALL: list[Event] = [STARTED, ASKED, ALLOWED, RAN, DID, ASKS, DENIED, HOOK, ENDED, APPLIED]


@pytest.fixture
def record(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The place of the record of the only session there is."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    folder = sessions_dir() / ID
    folder.mkdir(parents=True)
    return folder / "events.jsonl"


def write(path: Path, events: list[Event]) -> str:
    writer = TapeWriter(path)
    for event in events:
        writer.append(event)
    writer.close()
    return writer.head


def audited(*more: str) -> Ended:
    return call("sessions", "audit", ID, *more)


def document(*more: str) -> dict[str, Any]:
    value: dict[str, Any] = json.loads(audited("--json", *more).out)
    return value


def test_an_audit_lists_what_matters(record: Path) -> None:
    """Each with its entry in the record, and the question with its answer."""
    write(record, ALL)
    found = document()

    assert (found["ok"], found["calls"], found["calls_untold"], found["hosts"]) == (True, 1, 0, ["example.org:443"])
    [run], [denial], [question] = found["runs"], found["denials"], found["questions"]
    assert (run["workspace"], run["status"]) == ("/home/me/p", "denied")
    assert (denial["entry"], denial["about"], denial["location"], denial["layer"]) == (
        6,
        "git push",
        "/p/policy.yaml:7",
        "user",
    )
    assert (question["entry"], question["answer"]["answered_by"], question["answer"]["scope"]) == (
        1,
        "person",
        "always",
    )
    [contradiction], [hook], [rule], [applied] = (
        found["contradictions"],
        found["hooks"],
        found["saved_rules"],
        found["applied"],
    )
    assert (contradiction["entry"], contradiction["changed"]) == (4, ["a.txt"])
    assert (hook["hook"], hook["exit_code"], rule["rule"], rule["by"]) == ("lint", 2, "Bash(make all)", "person")
    assert (applied["applied"], applied["conflicts"]) == (["a.txt"], {"b.txt": "changed meanwhile"})


def test_for_people_all_of_it_is_plain_text_in_a_pipe(record: Path) -> None:
    """What the record holds never reaches a terminal as it is."""
    write(record, ALL)
    code, out, err = audited()
    assert (code, err) == (0, "")
    assert "\x1b" not in out
    for part in (
        "chain     holds",
        "denied (1)",
        "Bash(git push:*), user, /p/policy.yaml:7",
        "yes by person, always",
        "was to read only, and changed a.txt",
        "b.txt (changed meanwhile)",
        "lint for pre_tool_use",
        "hosts asked: example.org:443",
    ):
        assert part in out


def test_a_quiet_record_says_that_there_is_nothing(record: Path) -> None:
    """Each list is named."""
    write(record, [STARTED])
    code, out, _ = audited()
    assert code == 0
    assert "unfinished" in out
    assert "none: denied, asked, did other than declared, applied" in out


@pytest.mark.parametrize("line", [0, 3, 8])
def test_a_broken_chain_is_told_with_its_line_and_ends_with_one(record: Path, line: int) -> None:
    """For people and for machines."""
    write(record, ALL)
    lines = record.read_bytes().splitlines(keepends=True)
    lines[line] = lines[line].replace(b'"agent_id":"main"', b'"agent_id":"mein"')
    record.write_bytes(b"".join(lines))

    code, out, _ = audited()
    assert (code, f"BROKEN at line {line + 2}:" in out) == (1, True)
    found = document()
    assert (found["ok"], found["chain"]["breaks"][0]["line"]) == (False, line + 2)


def test_a_kept_head_is_looked_for(record: Path) -> None:
    """It holds when the record went on behind it, and not when anything up to it is other than it was."""
    head = write(record, ALL)
    assert (audited("--head", head.upper()).code, document("--head", head)["kept_head"]["entries_since"]) == (0, 0)
    write(record, [STARTED, ENDED])
    assert (audited("--head", head).code, document("--head", head)["kept_head"]["entries_since"]) == (0, 2)

    record.unlink()
    write(record, ALL[:-1])
    code, out, _ = audited("--head", head)
    assert (code, "NOT in this record" in out) == (1, True)


def test_a_head_that_is_none_is_a_usage_error(record: Path) -> None:
    """Before anything is read."""
    assert audited("--head", "abc").code == 2


@pytest.mark.parametrize(
    "events",
    [
        [STARTED, RAN],
        [STARTED, DENIED, RAN],
        [STARTED, ALLOWED, ToolStarted(call_id="c1", tool="Bash", summary="", input={"command": "x"}, batch=0)],
        [STARTED, ALLOWED, RAN, RAN],
    ],
)
def test_a_call_that_ran_without_a_decision_for_exactly_it_is_told(record: Path, events: list[Event]) -> None:
    """No decision, one of another input, or one that was used up."""
    write(record, events)
    code, out, _ = audited()
    assert (code, "ran with no decision that allows exactly this" in out) == (1, True)
    assert [one["tool"] for one in document()["calls_unjudged"]] == ["Bash"]


def test_a_cut_last_line_is_told_and_nothing_else(record: Path) -> None:
    """As a killed process leaves it."""
    write(record, ALL)
    os.truncate(record, record.stat().st_size - 20)
    code, out, _ = audited()
    assert (code, "line 10 was not written to its end" in out) == (0, True)


@pytest.mark.parametrize(
    "place", ["garbage", "empty", "huge line", "deep", "missing", "fifo", "link", "folder", "zeros"]
)
def test_whatever_lies_in_its_place_is_one_clear_end(record: Path, place: str) -> None:
    """Exit code 1, never a hang and never a trace; the JSON says so too, and the list of sessions goes on."""
    match place:
        case "garbage":
            record.write_bytes(bytes(range(256)) * 400)
        case "empty":
            record.write_bytes(b"")
        case "huge line":
            record.write_bytes(b"x" * 3_000_000)
        case "deep":
            record.write_bytes(b'{"seq":0,"a":' + b"[" * 200_000)
        case "fifo":
            os.mkfifo(record)
        case "link":
            record.symlink_to("/dev/zero")
        case "folder":
            record.mkdir()
        case "zeros":
            with record.open("wb") as file:
                file.truncate(1_000_000)
        case _:
            pass
    code, out, err = audited()
    assert (code, "Traceback" in out + err) == (1, False)
    assert out or len(err.splitlines()) == 1
    assert document()["ok"] is False
    assert call("sessions", "list").code == 0
    assert call("sessions", "rm", "-y", ID).code == 0
    assert not record.parent.exists()


def test_a_record_of_a_later_version_says_so(record: Path) -> None:
    """Events that this program does not know are counted; the chain is verified all the same."""
    write(record, [replace(STARTED, record_version=99), ENDED])
    lines = record.read_bytes().replace(b'"run_finished"', b'"run_perished"')
    record.write_bytes(lines)
    code, out, _ = audited()
    assert (code, "form 99 of a later version" in out, "1 entry that this version does not know" in out) == (
        0,
        True,
        True,
    )


def test_there_has_to_be_such_a_session(record: Path) -> None:
    """A wrong ID is a usage error; the newest is `last`."""
    write(record, ALL)
    code, _, err = call("sessions", "audit", "nosuch")
    assert (code, "there is no session" in err) == (2, True)
    assert call("sessions", "audit", "last").code == 0
