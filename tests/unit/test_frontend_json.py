"""The outputs of a headless run, from lists of events."""

from __future__ import annotations

import io
import json
from dataclasses import fields, replace
from itertools import count

import pytest
from frontend_events import CHANGE, STARTED, answer, ended, run_events, text

from sandbox_agent.errors import ConfigError, ModelError, SandboxDiedError, WorkspaceError
from sandbox_agent.events import CallEffects, ChangesApplied, Event, LimitReached, ModeChanged, ReviewReady
from sandbox_agent.frontends.headless import OutputFormat, make_output
from sandbox_agent.frontends.stream_json import StreamJson, dump, result
from sandbox_agent.frontends.summary import RunSummary, status_of
from sandbox_agent.types import JsonObject

USAGE = {
    "input_tokens": 120,
    "output_tokens": 30,
    "cache_creation_input_tokens": 0,
    "cache_read_input_tokens": 80,
    "cache_creation_1h_input_tokens": 0,
}
DENIALS = [
    {
        "tool_name": "Bash",
        "tool_use_id": "t4",
        "tool_input": {"command": "git push"},
        "reason": "Publishing is for people.",
    }
]
RESULT = {
    "type": "result",
    "subtype": "success",
    "session_id": "s-1",
    "status": "denied",
    "is_error": False,
    "result": "Fixed.",
    "num_turns": 2,
    "duration_ms": 3500,
    "stop_reason": "end_turn",
    "usage": USAGE,
    "modelUsage": {},
    "structured_output": None,
    "terminal_reason": "completed",
    "model_usage": {},
    "total_cost_usd": None,
    "limit": None,
    "permission_denials": DENIALS,
    "contradictions": [],
    "checks": [],
    "resources": {"calls": 0, "cpu_s": None, "max_rss_bytes": None},
    "hosts_asked": [],
    "applied_files": ["a.py"],
    "partially_applied_files": [],
    "unapplied_files": [],
    "conflicts": {},
    "withheld": {},
    "dangers": [],
    "drifted_files": [],
    "unexported_commits": [],
    "record_head": None,
    "exit_code": 3,
    "error": None,
}


def folded(*events: Event) -> RunSummary:
    """The summary of these events."""
    summary = RunSummary()
    for event in events:
        summary.feed(event)
    return summary


def printed(output: OutputFormat, *events: Event) -> str:
    """What stdout carries after these events."""
    out = io.StringIO()
    front_end = make_output(output, out)
    for event in events:
        front_end.feed(event)
    front_end.close(folded(*events))
    return out.getvalue()


def test_json_is_one_document_with_every_field() -> None:
    """The document is exactly the result object."""
    assert json.loads(printed("json", *run_events())) == RESULT


def test_text_is_the_final_text_alone() -> None:
    """No progress, no totals."""
    assert printed("text", *run_events()) == "Fixed.\n"


def test_text_is_sanitised() -> None:
    """A pipe often ends on a terminal."""
    assert printed("text", ended(said="a\x1b[2Jb\nc")) == "a\\x1b[2Jb\nc\n"


def test_stream_json_gives_one_line_a_block_and_the_result_last() -> None:
    """The whole stream, line by line."""
    ids = count(1)
    stream = StreamJson(new_id=lambda: f"u{next(ids)}")
    events = run_events()
    lines = [line for event in events for line in stream.lines(event)]
    lines.append(stream.last_line(folded(*events)))

    assert lines == expected_lines()


def test_every_line_of_stream_json_is_one_json_object() -> None:
    """stdout carries JSON lines and nothing else."""
    lines = printed("stream-json", *run_events()).splitlines()

    assert [json.loads(line)["type"] for line in lines] == [line["type"] for line in expected_lines()]


def expected_lines() -> list[JsonObject]:
    """What the run of `run_events` must print."""

    def line(number: int, kind: str, **fields: object) -> JsonObject:
        return {"type": kind, **fields, "session_id": "s-1", "uuid": f"u{number}"}

    def said(number: int, block: JsonObject) -> JsonObject:
        message = {
            "id": "m1",
            "type": "message",
            "role": "assistant",
            "model": "scripted",
            "content": [block],
            "stop_reason": None,
            "usage": {
                "input_tokens": 10,
                "output_tokens": 5,
                "cache_creation_input_tokens": 0,
                "cache_read_input_tokens": 0,
                "cache_creation_1h_input_tokens": 0,
            },
        }
        return line(number, "assistant", message=message, parent_tool_use_id=None)

    def answered(number: int, call_id: str, words: str, meta: JsonObject, *, is_error: bool = False) -> JsonObject:
        block = {"type": "tool_result", "tool_use_id": call_id, "content": words, "is_error": is_error}
        message = {"role": "user", "content": [block]}
        return line(number, "user", message=message, parent_tool_use_id=None, tool_use_result=meta)

    def use(call_id: str, name: str, **given: object) -> JsonObject:
        return {"type": "tool_use", "id": call_id, "name": name, "input": given}

    diff = "--- a/a.py\n+++ b/a.py\n@@ -1,2 +1,2 @@\n def f():\n-    return 1\n+    return 2\n"
    return [
        line(
            1,
            "system",
            subtype="init",
            cwd="/home/ada/project",
            model="script:demo.yaml",
            tools=["Bash", "Read"],
            permissionMode="default",
            mcp_servers=[],
            policy="default",
            image="base",
            workspace_mode="copy",
            sandbox_agent_version="0.1.0",
            resumed_from=None,
        ),
        line(
            2,
            "system",
            subtype="sandbox_ready",
            container_id="c0ffee",
            isolation="runc, no network, uid 1000",
            transport="runner",
            start_ms=250,
        ),
        said(3, text("I look first.")),
        said(4, use("t1", "Read", file_path="a.py")),
        said(5, use("t2", "Read", file_path="b.py")),
        said(6, use("t3", "Edit", file_path="a.py")),
        said(7, use("t4", "Bash", command="git push")),
        line(
            8,
            "system",
            subtype="permission_denied",
            tool_name="Bash",
            tool_use_id="t4",
            reason="Publishing is for people.",
            rule="Bash(git push:*)",
            location="default.yaml:7",
        ),
        answered(9, "t1", "1\tdef f():\n2\t    return 1", {}),
        answered(10, "t2", "1\tx = 1", {}),
        answered(11, "t3", "done", {"diff": diff}),
        answered(12, "t4", "Permission denied: Publishing is for people.", {}, is_error=True),
        line(13, "system", subtype="api_retry", attempt=1, retry_delay_ms=500, error="overloaded_error"),
        said(14, text("Fixed.")),
        RESULT | {"uuid": "u15"},
    ]


@pytest.mark.parametrize(
    ("status", "exit_code", "subtype"),
    [
        ("done", 0, "success"),
        ("failed", 1, "error_during_execution"),
        ("denied", 3, "success"),
        ("sandbox_error", 5, "error_during_execution"),
        ("model_error", 6, "error_during_execution"),
        ("replay_mismatch", 7, "error_during_execution"),
        ("interrupted", 130, "error_during_execution"),
        ("no such status", 1, "error_during_execution"),
    ],
)
def test_each_status_has_its_exit_code(status: str, exit_code: int, subtype: str) -> None:
    """The document says what the process ends with."""
    document = result(folded(STARTED, ended(status)))

    assert (document["exit_code"], document["subtype"]) == (exit_code, subtype)
    assert document["is_error"] == (subtype != "success")


def test_a_turn_limit_is_named_as_the_field_names_it() -> None:
    """Consumers look for error_max_turns."""
    document = result(folded(STARTED, LimitReached(limit="turns", value=3), ended("limit", error="the limit ...")))

    assert (document["subtype"], document["exit_code"], document["errors"]) == (
        "error_max_turns",
        4,
        ["the limit ..."],
    )


@pytest.mark.parametrize(
    ("fault", "exit_code"),
    [
        (ConfigError("no key"), 2),
        (WorkspaceError("not a folder"), 2),
        (SandboxDiedError("gone"), 5),
        (ModelError("overloaded"), 6),
        (ValueError("a bug of ours"), 1),
    ],
)
def test_a_fault_before_the_run_is_a_whole_document_too(fault: Exception, exit_code: int) -> None:
    """Nothing of the run exists, every field is there."""
    summary = RunSummary()
    summary.end(status_of(fault), str(fault))
    document = result(summary)

    assert set(document) == set(RESULT) | {"errors"}
    assert (document["exit_code"], document["error"], document["session_id"]) == (exit_code, str(fault), None)


def test_a_signal_wins_over_what_the_run_said() -> None:
    """SIGTERM ends with 143 whatever status the run came to."""
    summary = folded(STARTED, ended("interrupted"))
    summary.end("terminated", "SIGTERM")

    assert result(summary)["exit_code"] == 143


def test_changes_that_were_not_applied_are_listed() -> None:
    """A review without an answer leaves all of them."""
    assert result(folded(STARTED, ended(), ReviewReady(changes=(CHANGE,))))["unapplied_files"] == ["a.py"]


def test_conflicts_fail_a_run_that_had_to_apply() -> None:
    """With --apply always, a change that could not go to the folder is not a success."""
    applied = ChangesApplied(applied=(), unapplied=("a.py",), conflicts={"a.py": "changed meanwhile"})
    summary = folded(STARTED, ended(), ReviewReady(changes=(CHANGE,)), applied)

    assert summary.exit_code == 0
    summary.changes_expected = True
    assert (summary.exit_code, summary.error) == (1, "not applied because of conflicts: a.py")


def test_json_lines_are_safe_on_a_terminal_and_with_broken_text() -> None:
    """Control characters, DEL and lone surrogates are escapes, and come back as they were."""
    value: JsonObject = {"text": "\x1b\x7f\x9b\ud800 \u202e"}
    line = dump(value)

    assert line.isascii()
    assert line.isprintable()
    assert json.loads(line) == value


def test_the_stop_reason_of_the_last_answer_is_reported() -> None:
    """Taken from the main agent's last answer."""
    assert result(folded(answer(stop_reason="max_tokens"), ended()))["stop_reason"] == "max_tokens"


EFFECTS = CallEffects(
    call_id="t2",
    tool="Bash",
    read_only=True,
    batch=0,
    duration_s=0.25,
    changed=({"path": "a.py", "kind": "modified"},),
    changed_count=1,
    shared_with=("t3",),
    left_processes=2,
    exit_code=0,
    cpu_s=0.5,
    max_rss_bytes=1000,
    contradictions=("changed_files", "left_processes"),
)


def test_a_call_that_did_other_than_it_declared_is_in_the_result() -> None:
    """With what it did; a call that did what it declared is not."""
    honest = replace(EFFECTS, call_id="t9", contradictions=())
    expected = {
        "tool_name": "Bash",
        "tool_use_id": "t2",
        "kinds": ["changed_files", "left_processes"],
        "read_only": True,
        "changed_files": ["a.py"],
        "shared_with": ["t3"],
        "left_processes": 2,
    }
    assert [expected] == result(folded(*run_events(), EFFECTS, honest))["contradictions"]


def test_what_a_call_did_is_a_line_of_the_stream() -> None:
    """Of every call, as plain JSON."""
    sent = replace(EFFECTS, sent_bytes=900, received_bytes=81_000)
    [line] = [one for one in StreamJson(new_id=lambda: "u").lines(sent)]
    used = ("cpu_s", "max_rss_bytes", "sent_bytes", "received_bytes")
    names = ("type", "subtype", "tool_use_id", "changed", "duration_ms", "hosts", *used)
    assert {key: line[key] for key in names} == {
        "type": "system",
        "subtype": "call_effects",
        "tool_use_id": "t2",
        "changed": [{"path": "a.py", "kind": "modified"}],
        "duration_ms": 250,
        "hosts": [],
        "cpu_s": 0.5,
        "max_rss_bytes": EFFECTS.max_rss_bytes,
        "sent_bytes": 900,
        "received_bytes": 81_000,
    }
    told = {one.name for one in fields(CallEffects)} - {"agent_id", "parent_id", "call_id", "tool", "duration_s"}
    assert told <= line.keys()


def test_a_change_of_the_mode_is_a_line() -> None:
    """With who made it, so that a program knows by what the next calls are judged."""
    [line] = StreamJson(new_id=lambda: "u").lines(ModeChanged(mode="plan", before="default", by="model"))
    assert line == {
        "type": "system",
        "subtype": "mode_changed",
        "permissionMode": "plan",
        "before": "default",
        "by": "model",
        "session_id": None,
        "uuid": "u",
    }
