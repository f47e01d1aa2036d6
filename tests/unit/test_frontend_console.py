"""What a person sees of a run, from lists of events."""

from __future__ import annotations

import io
from dataclasses import replace

import pytest
from frontend_events import READY, STARTED, answer, ended, finished, run_events, started, text, use

from sandbox_agent.events import (
    ChangesApplied,
    Event,
    LimitReached,
    ModeChanged,
    Notice,
    PermissionDecided,
    RequestStarted,
    TextDelta,
    ThinkingDelta,
    ToolProgress,
)
from sandbox_agent.frontends.console import ConsoleView
from sandbox_agent.frontends.printer import Printer, make_console

WHOLE_RUN = """\
sandbox-agent 0.1.0  session s-1
folder     /home/ada/project (worked on as a copy, changed only when you apply)
model      script:demo.yaml
policy     default, mode default
image      base

> Fix the bug

I look first.
container  runc, no network, uid 1000 (runner, ready in 0.25 s)

* Read a.py
* Read b.py
  Read b.py: ok 1 line · 0.01 s
  Read a.py: ok 2 lines · 0.02 s

* Edit a.py
  ok +1 -1 · 0.01 s
    @@ -1,2 +1,2 @@
     def f():
    -    return 1
    +    return 2

x Bash git push
  denied: Publishing is for people.
  by Bash(git push:*), default.yaml:7

Fi
! overloaded_error: trying again in 0.50 s (retry 1)

Fixed.

denied · 2 turns, 200 tokens in (80 from the cache), 30 out, 3.50 s, cost unknown
applied 1 file to your folder
"""


class Screen(io.StringIO):
    """A file that says it is a terminal."""

    def isatty(self) -> bool:
        return True


def shown(*events: Event, verbose: bool = False) -> str:
    """What a pipe gets for these events."""
    out = io.StringIO()
    view = ConsoleView(Printer(make_console(out, {})), verbose=verbose)
    for event in events:
        view.feed(event)
    return out.getvalue()


def on_screen(env: dict[str, str], *events: Event) -> str:
    """What a terminal with this environment gets."""
    out = Screen()
    view = ConsoleView(Printer(make_console(out, env)))
    for event in events:
        view.feed(event)
    return out.getvalue()


def test_a_whole_run_reads_as_plain_lines_in_a_pipe() -> None:
    """Header, streamed text, parallel calls together, diff, denial with reason, retry, totals, applied files."""
    assert shown(*run_events()) == WHOLE_RUN


def test_a_terminal_gets_the_same_text_with_colours_only() -> None:
    """Apart from colour sequences nothing differs, so no cursor movement can disturb a copied or resized screen."""
    out = on_screen({"TERM": "xterm-256color"}, *run_events())
    plain = "".join(part.partition("m")[2] if number else part for number, part in enumerate(out.split("\x1b[")))

    assert "\x1b[" in out
    assert plain == WHOLE_RUN


@pytest.mark.parametrize("env", [{"TERM": "xterm", "NO_COLOR": "1"}, {"TERM": "dumb"}, {}])
def test_no_escape_sequence_where_none_is_wanted(env: dict[str, str]) -> None:
    """NO_COLOR and TERM=dumb (or none) get plain text even on a terminal."""
    assert on_screen(env, *run_events()) == WHOLE_RUN


def test_hostile_text_is_escaped_in_every_place() -> None:
    """Model text, summaries, results, diffs, reasons, notices and errors cannot reach the terminal raw."""
    bad = "\x1b[2J\u202e\r"
    out = shown(
        STARTED,
        Notice(level="warning", text=bad),
        RequestStarted(turn=1),
        ThinkingDelta(text=bad),
        TextDelta(text=bad),
        answer(text(bad), use("t1", "Bash", command=bad), use("t2", bad, x=bad)),
        PermissionDecided(call_id="t2", tool=bad, verdict="deny", reason=bad, rule=bad, location=bad, input_sha256=""),
        started("t1", bad, bad),
        finished("t1", "Bash", bad, diff=f"@@ -1 +1 @@\n-{bad}\n+{bad}\n"),
        finished("t3", "Bash", f"{bad}\n{bad}", is_error=True),
        finished("t4", "TodoWrite", "", todos=[{"content": bad, "status": "pending"}]),
        ended("failed", bad, error=bad),
        verbose=True,
    )

    assert not set(out) & set("\x1b\u202e\r")


def test_the_container_line_waits_for_the_end_of_a_sentence() -> None:
    """It never tears a streaming line."""
    out = shown(RequestStarted(turn=1), TextDelta(text="Half"), READY, TextDelta(text=" whole."), answer(text("x")))

    assert out == "Half whole.\ncontainer  runc, no network, uid 1000 (runner, ready in 0.25 s)\n"


def test_an_answer_that_was_not_streamed_is_shown_once() -> None:
    """A model without streaming is as visible as one with."""
    assert shown(RequestStarted(turn=1), answer(text("Hello."), stop_reason="end_turn")) == "Hello.\n"


def test_bash_shows_its_exit_code_and_the_last_lines() -> None:
    """A code other than 0 is neither ok nor failed; long output keeps its end."""
    output = "\n".join(f"line {n}" for n in range(9)) + "\nExit code: 2"
    out = shown(started("t1", "Bash", "make"), finished("t1", "Bash", output, exit_code=2, duration_s=75))

    assert out == (
        "* Bash make\n  exit 2 · 1 min 15 s\n"
        "    ... 4 lines above\n    line 4\n    line 5\n    line 6\n    line 7\n    line 8\n"
    )


def test_verbose_shows_the_whole_output() -> None:
    """-v leaves nothing out."""
    output = "\n".join(f"line {n}" for n in range(9))

    assert "above" not in shown(finished("t1", "Bash", output, exit_code=0), verbose=True)


def test_an_answer_that_streams_is_shown_once_whatever_agents_behind_do() -> None:
    """What a sub-agent asks and says meanwhile is shown in whole lines, and has no part in it."""
    out = shown(
        RequestStarted(turn=1),
        TextDelta(text="I wait "),
        replace(RequestStarted(turn=1), agent_id="agent-1"),
        replace(answer(text("Found it."), stop_reason="end_turn"), agent_id="agent-1"),
        TextDelta(text="for it."),
        answer(text("I wait for it."), stop_reason="end_turn"),
    )

    assert out == "I wait \n\n[agent-1] Found it.\nfor it.\n"


def test_the_todo_list_is_shown_with_its_states() -> None:
    """Done, active (in its own words) and open items differ."""
    todos = [
        {"content": "Read", "status": "completed", "activeForm": "Reading"},
        {"content": "Fix", "status": "in_progress", "activeForm": "Fixing"},
        {"content": "Test", "status": "pending", "activeForm": "Testing"},
    ]
    out = shown(started("t1", "TodoWrite", "3 items"), finished("t1", "TodoWrite", "ok", todos=todos))

    assert out.endswith("    [x] Read\n    [>] Fixing\n    [ ] Test\n")


def test_a_long_command_is_cut_in_the_middle_of_the_live_line() -> None:
    """Head and tail stay, and the line says how much is missing."""
    out = shown(started("t1", "Bash", "a" * 300 + "END"))

    assert out == f"* Bash {'a' * 133} [... 120 characters ...] {'a' * 47}END\n"


def test_plan_mode_is_shown_when_it_begins_and_when_it_is_over() -> None:
    """A mode that the person chooses is told by what they chose it with."""
    changes = [("default", "plan", "model"), ("plan", "default", "person"), ("default", "acceptEdits", "person")]
    out = shown(*(ModeChanged(before=before, mode=mode, by=by) for before, mode, by in changes))
    assert out == (
        "- plan mode: nothing may be changed until you say yes to a plan\n- plan mode is over, the mode is default\n"
    )


def test_a_reached_limit_is_named_with_its_value() -> None:
    """The person sees which limit and what it was."""
    assert shown(LimitReached(limit="turns", value=3)) == "! the limit turns = 3 was reached\n"


def test_in_a_pipe_the_answer_goes_to_stdout_and_the_rest_elsewhere() -> None:
    """`run ... > answer.txt` gets the final text and nothing else."""
    progress, out = io.StringIO(), io.StringIO()
    view = ConsoleView(Printer(make_console(progress, {})), answer=out)
    for event in run_events():
        view.feed(event)

    assert out.getvalue() == "Fixed.\n"
    assert progress.getvalue() == WHOLE_RUN


def test_a_folder_that_was_changed_directly_is_not_called_applied_to() -> None:
    """In mode bind the changes were there before anybody could say yes."""
    started_in_place = replace(STARTED, workspace_mode="bind")
    out = shown(started_in_place, ChangesApplied(applied=("a", "b"), unapplied=()))

    assert "folder     /home/ada/project (changed directly)\n" in out
    assert out.endswith("2 files changed in your folder\n")


def test_only_a_warning_has_the_mark_of_one() -> None:
    """What is merely good to know begins with a dash."""
    out = shown(Notice(level="info", text="all is well"), Notice(level="warning", text="look here"))
    assert out == "- all is well\n! look here\n"


def test_how_far_a_call_is_is_said_now_and_then(monkeypatch: pytest.MonkeyPatch) -> None:
    """A server may say so all the time, and anything: a line in two seconds, harmless; the call's end reads as ever."""
    clock = iter([10.0, 11.0, 12.5])
    monkeypatch.setattr("sandbox_agent.frontends.console.time.monotonic", lambda: next(clock))

    def at(progress: float, total: float | None, message: str | None) -> ToolProgress:
        return ToolProgress(call_id="t1", server="s\x1b", progress=progress, total=total, message=message)

    shown_lines = shown(at(1, 4, "half\x1b[2J"), at(2, 4, "unseen"), at(3.5, None, None)).splitlines()

    assert shown_lines == ["  s\\x1b is at 1 of 4: half\\x1b[2J", "  s\\x1b is at 3.5"]
