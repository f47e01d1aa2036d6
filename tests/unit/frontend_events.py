"""A run as a list of events, for the tests of the front ends."""

from __future__ import annotations

from sandbox_agent.events import (
    AssistantMessage,
    ChangesApplied,
    Event,
    ModelRetrying,
    PermissionDecided,
    RequestStarted,
    ReviewReady,
    RunFinished,
    SandboxReady,
    SessionStarted,
    TextDelta,
    ToolFinished,
    ToolResultsMessage,
    ToolStarted,
    UserMessage,
)
from sandbox_agent.types import JsonObject, Usage

STARTED = SessionStarted(
    session_id="s-1",
    model="script:demo.yaml",
    workspace="/home/ada/project",
    workspace_mode="copy",
    image="base",
    policy="default",
    mode="default",
    tools=("Bash", "Read"),
    version="0.1.0",
)
READY = SandboxReady(container_id="c0ffee", isolation="runc, no network, uid 1000", transport="runner", start_s=0.25)
DENIAL: JsonObject = {
    "tool_name": "Bash",
    "tool_use_id": "t4",
    "tool_input": {"command": "git push"},
    "reason": "Publishing is for people.",
    "rule": "Bash(git push:*)",
}
CHANGE: JsonObject = {"path": "a.py", "kind": "modified", "dangers": [], "diff": "--- a\n+++ b\n@@ -1 +1 @@\n-1\n+2\n"}


def use(call_id: str, name: str, **given: object) -> JsonObject:
    """A tool_use block."""
    return {"type": "tool_use", "id": call_id, "name": name, "input": given}


def result(call_id: str, text: str, *, is_error: bool = False) -> JsonObject:
    """A tool_result block."""
    return {"type": "tool_result", "tool_use_id": call_id, "content": text, "is_error": is_error}


def text(words: str) -> JsonObject:
    """A text block."""
    return {"type": "text", "text": words}


def answer(*content: JsonObject, stop_reason: str = "tool_use", usage: Usage | None = None) -> AssistantMessage:
    """One whole answer of the model."""
    return AssistantMessage(
        content=content, stop_reason=stop_reason, model="scripted", usage=usage or Usage(10, 5), message_id="m1"
    )


def started(call_id: str, tool: str, summary: str, batch: int = 0) -> ToolStarted:
    """A call that begins."""
    return ToolStarted(call_id=call_id, tool=tool, summary=summary, input={}, batch=batch)


def finished(
    call_id: str, tool: str, content: str, *, is_error: bool = False, duration_s: float = 0.01, **meta: object
) -> ToolFinished:
    """A call that ended."""
    return ToolFinished(
        call_id=call_id, tool=tool, content=content, is_error=is_error, duration_s=duration_s, meta=meta
    )


def ended(status: str = "done", said: str = "Fixed.", **fields: object) -> RunFinished:
    """The end of a run."""
    return RunFinished(status=status, text=said, turns=2, usage=Usage(120, 30, 0, 80), duration_s=3.5, **fields)  # type: ignore[arg-type]


def run_events() -> list[Event]:
    """A whole run: two reads at once, an edit, a command, a denied call, a retry, a review that is applied."""
    diff = "--- a/a.py\n+++ b/a.py\n@@ -1,2 +1,2 @@\n def f():\n-    return 1\n+    return 2\n"
    return [
        STARTED,
        UserMessage(content=(text("Fix the bug"),)),
        RequestStarted(turn=1),
        TextDelta(text="I look "),
        TextDelta(text="first."),
        READY,
        answer(
            text("I look first."),
            use("t1", "Read", file_path="a.py"),
            use("t2", "Read", file_path="b.py"),
            use("t3", "Edit", file_path="a.py"),
            use("t4", "Bash", command="git push"),
        ),
        started("t1", "Read", "a.py"),
        started("t2", "Read", "b.py"),
        finished("t2", "Read", "1\tx = 1"),
        finished("t1", "Read", "1\tdef f():\n2\t    return 1", duration_s=0.02),
        started("t3", "Edit", "a.py", batch=1),
        finished("t3", "Edit", "done", diff=diff),
        PermissionDecided(
            call_id="t4",
            tool="Bash",
            verdict="deny",
            reason="Publishing is for people.",
            rule="Bash(git push:*)",
            location="default.yaml:7",
            input_sha256="0" * 64,
        ),
        finished("t4", "Bash", "Permission denied: Publishing is for people.", is_error=True, duration_s=0.0),
        ToolResultsMessage(
            content=(
                result("t1", "1\tdef f():\n2\t    return 1"),
                result("t2", "1\tx = 1"),
                result("t3", "done"),
                result("t4", "Permission denied: Publishing is for people.", is_error=True),
            )
        ),
        RequestStarted(turn=2),
        TextDelta(text="Fi"),
        ModelRetrying(attempt=1, wait_s=0.5, reason="overloaded_error"),
        TextDelta(text="Fixed."),
        answer(text("Fixed."), stop_reason="end_turn"),
        ended("denied", denials=(DENIAL,)),
        ReviewReady(changes=(CHANGE,)),
        ChangesApplied(applied=("a.py",), unapplied=()),
    ]
