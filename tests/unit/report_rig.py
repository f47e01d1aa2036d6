"""A session with everything in it, as a record, for the tests of reports (and for looking at a page by hand).

`python tests/unit/report_rig.py FOLDER` writes its reports there.
"""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from sandbox_agent.events import (
    AgentFinished,
    AgentStarted,
    AssistantMessage,
    CallDiscarded,
    CallEffects,
    ChangesApplied,
    CheckpointTaken,
    EgressDecided,
    EgressEnded,
    Event,
    HookRan,
    JobFinished,
    JobStarted,
    McpServerChanged,
    ModelRetrying,
    Notice,
    PermissionAsked,
    PermissionDecided,
    ProjectInstructions,
    RequestStarted,
    ReviewReady,
    RunFinished,
    SandboxReady,
    SessionStarted,
    ToolFinished,
    ToolResultsMessage,
    ToolStarted,
    UserMessage,
)
from sandbox_agent.events.checks import CheckFinished
from sandbox_agent.reports.story import Story
from sandbox_agent.reports.telling import tell
from sandbox_agent.tape import Entry
from sandbox_agent.types import JsonObject, Usage

ID = "20260101000000abcdef01"
BEGAN_UNIX_S = 1_767_225_600.0
STARTED = SessionStarted(
    session_id=ID,
    model="anthropic:claude-sonnet-5-5",
    workspace="/home/ada/parcels",
    workspace_mode="overlay",
    image="sandbox-agent/base:latest",
    policy="default",
    mode="default",
    tools=("Bash", "Edit", "Read", "Task"),
    version="0.1.0",
)
DIFF = """--- a/parcels/tariff.py
+++ b/parcels/tariff.py
@@ -11,7 +11,7 @@
 def band_for(weight_kg: float) -> Band:
     for band in BANDS:
-        if weight_kg < band.limit_kg:
+        if weight_kg <= band.limit_kg:
             return band
     raise TooHeavy(weight_kg)
"""


def text(words: str) -> JsonObject:
    return {"type": "text", "text": words}


def entries(events: Sequence[Event], *, step_s: float = 0.4) -> list[Entry]:
    """The events as they would stand in a record, at even distances."""
    return [Entry(number, BEGAN_UNIX_S + number * step_s, "0" * 64, event) for number, event in enumerate(events)]


def story(events: Sequence[Event], **options: Any) -> Story:
    return tell(entries(events, **options))


def call(
    call_id: str,
    tool: str,
    given: JsonObject,
    output: str = "ok",
    *,
    summary: str = "",
    is_error: bool = False,
    meta: JsonObject | None = None,
    asked: bool = False,
    effects: JsonObject | None = None,
    inside: Sequence[Event] = (),
    **who: Any,
) -> list[Event]:
    """The events of one call that ran; `inside` happened while it did."""
    about = {"call_id": call_id, "tool": tool, **who}
    why = {"reason": "No rule covers it.", "rule": None, "location": None, "input_sha256": "a" * 64}
    question = [PermissionAsked(**about, summary=summary, **why)] if asked else []
    said = (
        {"asked": asked, "answered_by": "person", "scope": "once"} if asked else {"rule": tool, "location": "p.yaml:7"}
    )
    did = {"read_only": tool == "Read", "batch": 0, "duration_s": 0.2, "changed": (), **(effects or {})}
    return [
        *question,
        PermissionDecided(
            **about, verdict="allow", **(why | {"reason": "A rule allows it.", "mode": "default"} | said)
        ),
        ToolStarted(**about, summary=summary or str(next(iter(given.values()), "")), input=given, batch=0),
        *inside,
        ToolFinished(**about, content=output, is_error=is_error, duration_s=0.24, meta=meta or {}),
        CallEffects(**about, **did),
    ]


def denied(call_id: str, tool: str, given: JsonObject, reason: str) -> list[Event]:
    """The events of one call that was not let run."""
    decided = PermissionDecided(
        call_id=call_id,
        tool=tool,
        verdict="deny",
        reason=reason,
        rule="Bash(git push:*)",
        location="p.yaml:3",
        input_sha256="b" * 64,
        mode="default",
        layer="policy default",
    )
    return [decided, ToolFinished(call_id=call_id, tool=tool, content=f"Denied: {reason}", is_error=True, duration_s=0)]


def turn(number: int, *blocks: JsonObject, **who: Any) -> list[Event]:
    """A request and its answer."""
    used = Usage(1_200 + 90 * number, 140, 300, 8_000)
    answer = AssistantMessage(
        content=blocks, stop_reason="tool_use", model="claude-sonnet-5-5", usage=used, cost_usd=0.0041 * number, **who
    )
    return [RequestStarted(turn=number, **who), answer]


def use(call_id: str, name: str, given: JsonObject) -> JsonObject:
    return {"type": "tool_use", "id": call_id, "name": name, "input": given}


def everything() -> list[Event]:
    """One of each: calls of every outcome, sub-agents, jobs, hooks, servers, hosts, findings, checks."""
    tests = {"command": "python3 -m pytest -q", "description": "Run the tests"}
    edit = {"file_path": "/workspace/parcels/tariff.py", "old_string": "<", "new_string": "<="}
    agent = {"agent_id": "agent-1", "parent_id": "main"}
    task = {"description": "Look for callers", "prompt": "Who calls band_for?", "subagent_type": "explore"}
    finding = {
        "file": "parcels/tariff.py",
        "line": 13,
        "summary": "A limit is left out of its band.",
        "category": "off by one",
        "failure_scenario": "A parcel of exactly 2.0 kg pays for 5 kg.",
        "severity": "high",
        "verdict": "confirmed",
    }
    worked: list[Event] = [
        AgentStarted(
            call_id="t3",
            agent_type="explore",
            description="Look for callers",
            model=None,
            mode="default",
            tools=("Grep",),
            **agent,
        ),
        *turn(1, text("I search."), use("a1", "Grep", {"pattern": "band_for"}), **agent),
        *call("a1", "Grep", {"pattern": "band_for"}, "parcels/quote.py:8\nparcels/tariff.py:11", **agent),
        *turn(2, text("Two places call it."), **agent),
        AgentFinished(
            call_id="t3",
            status="done",
            text="Two places.",
            turns=2,
            calls=1,
            usage=Usage(900, 80),
            duration_s=3.1,
            **agent,
        ),
    ]
    return [
        STARTED,
        McpServerChanged(
            server="tracker", place="session", shown="tracker-mcp", state="connected", tools=("mcp__tracker__find",)
        ),
        ProjectInstructions(content=(text("# AGENTS.md\nRun the tests with pytest."),)),
        UserMessage(content=(text("The price of a parcel of exactly 2 kg is wrong. Find out why, and mend it."),)),
        SandboxReady(container_id="c0ffee12", isolation="runc, no network, uid 1000", transport="runner", start_s=0.31),
        *turn(
            1,
            {"type": "thinking", "thinking": "First the tests.\nThen the code."},
            text("I run the tests first."),
            use("t1", "Bash", tests),
            use("t2", "Read", {"file_path": "parcels/tariff.py"}),
        ),
        *call(
            "t1",
            "Bash",
            tests,
            "4 failed, 8 passed\nExit code: 1",
            is_error=True,
            meta={"exit_code": 1},
            effects={
                "cpu_s": 1.42,
                "max_rss_bytes": 48_000_000,
                "exit_code": 1,
                "contradictions": ("left_processes",),
                "left_processes": 1,
            },
        ),
        *call("t2", "Read", {"file_path": "parcels/tariff.py"}, "def band_for(weight_kg): ..."),
        Notice(
            level="warning",
            text="Bash `python3 -m pytest -q` left a process behind, to be killed: nothing outlives its call",
        ),
        ToolResultsMessage(content=({"type": "tool_result", "tool_use_id": "t1", "content": "4 failed"},)),
        *turn(2, text("A sub-agent looks for callers."), use("t3", "Task", task)),
        *call("t3", "Task", task, "Two places.", inside=worked),
        ModelRetrying(attempt=1, wait_s=1.5, reason="overloaded (529)"),
        *turn(3, text("Now the change."), use("t4", "Edit", edit), use("t5", "Bash", {"command": "git push"})),
        *call(
            "t4",
            "Edit",
            edit,
            "Edited.",
            asked=True,
            meta={"diff": DIFF, "changed": ["/workspace/parcels/tariff.py"]},
            effects={"changed": ({"path": "parcels/tariff.py", "kind": "modified"},), "changed_count": 1},
        ),
        HookRan(
            hook="format",
            event="post_tool",
            place="container",
            exit_code=0,
            duration_s=0.12,
            call_id="t4",
            tool="Edit",
            reason="formatted 1 file",
        ),
        *denied("t5", "Bash", {"command": "git push"}, "Publishing is for people."),
        CheckpointTaken(
            step=1,
            origin="calls",
            call_ids=("t4",),
            changed=({"path": "parcels/tariff.py", "kind": "modified"},),
            changed_count=1,
            tree_sha256="c" * 64,
            duration_s=0.02,
        ),
        *turn(
            4,
            text("The tests run in the background meanwhile."),
            use("t6", "Bash", {"command": "pip install requests", "run_in_background": True}),
        ),
        *call(
            "t6",
            "Bash",
            {"command": "pip install requests", "run_in_background": True},
            "job-1 runs",
            effects={
                "hosts": ("pypi.org:443", "evil.example:443"),
                "sent_bytes": 2_400,
                "received_bytes": 81_000,
                "cpu_s": 2.2,
                "max_rss_bytes": 71_000_000,
            },
            inside=[
                JobStarted(
                    job_id="job-1", kind="shell", what="pip install requests", call_id="t6", output_path="/tmp/job-1"
                ),
                EgressDecided(
                    host="pypi.org",
                    port=443,
                    verdict="allow",
                    reason="listed",
                    protocol="connect",
                    address="151.101.0.223",
                    call_ids=("t6",),
                ),
                EgressDecided(
                    host="evil.example",
                    port=443,
                    verdict="deny",
                    reason="evil.example:443 is not in sandbox.allow_hosts",
                    unlisted=True,
                    call_ids=("t6",),
                ),
                EgressEnded(
                    host="pypi.org",
                    port=443,
                    sent_bytes=2_400,
                    received_bytes=81_000,
                    duration_s=0.8,
                    total_sent_bytes=2_400,
                    total_received_bytes=81_000,
                ),
            ],
        ),
        JobFinished(
            job_id="job-1",
            kind="shell",
            what="pip install requests",
            call_id="t6",
            state="exited",
            exit_code=0,
            duration_s=4.2,
            output_bytes=812,
        ),
        *turn(
            5,
            text("I report what I found."),
            use("t7", "ReportFindings", {"findings": [finding]}),
            use("t8", "Read", {"file_path": "x"}),
        ),
        CallDiscarded(call_id="t8", tool="Read", reason="the answer was sent again"),
        *call(
            "t7",
            "ReportFindings",
            {"findings": [finding]},
            "Reported: 1 finding (1 high).",
            meta={"findings": [finding]},
        ),
        *turn(6, text("Fixed: `band_for` compared with `<`. All tests pass.")),
        RunFinished(
            status="denied",
            text="Fixed: `band_for` compared with `<`, so the limit itself was left out.\n\nAll 12 tests pass now.",
            turns=6,
            usage=Usage(9_000, 840, 1_800, 48_000),
            duration_s=31.5,
            cost_usd=0.0861,
            denials=({"tool_name": "Bash", "reason": "Publishing is for people."},),
        ),
        ReviewReady(
            changes=(
                {"path": "parcels/tariff.py", "kind": "modified", "danger": None, "diff": DIFF, "note": None},
                {
                    "path": ".envrc",
                    "kind": "added",
                    "danger": "a shell runs it when you enter the folder",
                    "diff": "--- /dev/null\n+++ b/.envrc\n@@ -0,0 +1 @@\n+export A=1\n",
                    "note": None,
                },
            )
        ),
        CheckFinished(
            number=1,
            command="python3 -m pytest -q",
            exit_code=0,
            duration_s=2.2,
            output="12 passed in 0.31s\n",
            output_bytes=20,
            step=1,
            from_base=("tests/test_tariff.py",),
        ),
        CheckFinished(
            number=2,
            command="ruff check .",
            exit_code=1,
            duration_s=0.4,
            output="parcels/quote.py:3:1: F401 unused import\n",
            output_bytes=41,
            step=1,
        ),
        ChangesApplied(applied=("parcels/tariff.py",), unapplied=(".envrc",)),
    ]


def long_session(number: int, *, output: str = "line of output\n" * 40) -> list[Event]:
    """At least so many events."""
    events: list[Event] = [STARTED, UserMessage(content=(text("Go through all files."),))]
    while len(events) < number:
        one = len(events)
        given = {"command": f"sed -n 1,40p src/module_{one}.py"}
        events += turn(one, text(f"I look at number {one}."), use(f"c{one}", "Bash", given))
        events += call(f"c{one}", "Bash", given, output, effects={"cpu_s": 0.01, "max_rss_bytes": 9_000_000})
    return events


def long_agent(number: int, *, output: str) -> list[Event]:
    """The same as the work of a sub-agent."""
    given = {"description": "d", "prompt": "p", "subagent_type": "explore"}
    [agent] = [one for one in everything() if isinstance(one, AgentStarted)]
    [ended] = [one for one in everything() if isinstance(one, AgentFinished)]
    agent, ended = (dataclasses.replace(one, agent_id="agent-1", call_id="t1") for one in (agent, ended))
    inside = [
        dataclasses.replace(one, agent_id="agent-1", parent_id="main")
        for one in long_session(number, output=output)[2:]
    ]
    *begun, done = call("t1", "Task", given, "Done.")
    asked = UserMessage(content=(text("Do."),))
    return [STARTED, asked, *turn(1, use("t1", "Task", given)), *begun, agent, *inside, ended, done]


if __name__ == "__main__":
    from sandbox_agent.reports.kinds import KINDS

    folder = Path(sys.argv[1])
    for name, events in (("everything", everything()), ("long", long_session(1_000))):
        for kind, ending in (("html", "html"), ("markdown", "md"), ("junit", "xml"), ("sarif", "sarif")):
            (folder / f"{name}.{ending}").write_text(KINDS[kind](story(events)), encoding="utf-8")
