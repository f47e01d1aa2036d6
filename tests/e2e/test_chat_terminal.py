"""`sandbox-agent chat` at a pseudo-terminal: a person who writes, stops, asks, takes back and leaves."""

from __future__ import annotations

import json
import os
import subprocess

import pytest
from program import Program, bash, use
from screen import Screen, at_terminal

from sandbox_agent.engine.past import load_past

ENTER, ESC, CTRL_D = "\r", "\x1b", "\x04"
TERMINAL = "xterm-256color"

TURNS = [
    {"text": "I wait for a while.", "tools": [bash("sleep 300", timeout=400_000)]},
    {
        "expect": [{"is_error": True, "contains": "Interrupted"}],
        "text": "I write instead.",
        "tools": [use("Write", file_path="/workspace/new.txt", content="new\n")],
    },
    {"text": "Written.", "tools": [bash("touch by-bash")]},
    {"text": "Both are there."},
    {"text": "Gone, I see.", "tools": [bash("ls")]},
    {"expect": [{"contains": "a.txt", "not_contains": "by-bash"}], "text": "Only the first is left."},
    {"text": "I know of nothing else."},
]


@pytest.mark.docker
def test_a_person_talks_with_an_agent_while_it_works(program: Program) -> None:
    """Messages, Esc, a question, commands, an undo and the review; the record of it all holds."""
    arguments = ("chat", "--allow", "Bash", "--model", program.script(TURNS), "look after this")
    with at_terminal(program, *arguments, term=TERMINAL) as (screen, process):
        screen.wait_for("* Bash sleep 300")
        # What is below the printed lines is drawn anew only where it differs, so no text of it can be waited for.
        screen.type(f"no, write a file{ENTER}")
        screen.type(ESC)
        stopped = screen.wait_for("[y/s/a/n] >")
        assert "> no, write a file" in stopped
        screen.type(f"y{ENTER}")
        screen.wait_for("Both are there.\n")
        _ask(screen, "/diff", "+new\n")
        _ask(screen, "/undo", "[y/N] >")
        _ask(screen, "n", "as it was after step 1")
        _ask(screen, "/jobs", "Nothing runs in the background.")
        _ask(screen, "what is there now?", "Only the first is left.\n")
        _ask(screen, "/undo 1", "[y/N] >")
        _ask(screen, "y", "The conversation is rewound to that step, too.")
        _ask(screen, "and what do you know?", "I know of nothing else.\n")
        _ask(screen, "/quit", "whole diff of N > ")
        screen.type("a\n")
        rest = screen.rest()

        assert process.wait(30) == 0
    assert "applied 1 file" in rest
    assert sorted(os.listdir(program.folder)) == ["a.txt", "new.txt"]
    said = json.dumps(load_past(program.session().parent, "last", program.folder).messages)
    assert [text in said for text in ("no, write a file", "Both are there", "what is there now?")] == [
        True,
        False,
        False,
    ]
    audit = program.call("sessions", "audit", "last", "--json")
    assert (audit.code, audit.document["chain"]["holds"]) == (0, True)
    assert oct((program.home / "state/sandbox-agent/chat_history.jsonl").stat().st_mode)[-3:] == "600"


def test_without_a_terminal_it_is_refused_in_one_line(program: Program) -> None:
    """And names what is there for that."""
    piped = program.call("chat", "--model", "script:none.yaml", stdin=subprocess.DEVNULL)
    with at_terminal(program, "chat", "--model", "script:none.yaml") as (screen, process):
        poor = screen.rest()
        assert process.wait(30) == 2

    assert (piped.code, piped.stdout) == (2, "")
    for said in (piped.stderr, poor):
        assert said.startswith("sandbox-agent: a chat needs a terminal")
        assert said.endswith("sandbox-agent run -p TASK\n")
        assert said.count("\n") == 1


def _ask(screen: Screen, text: str, answer: str) -> None:
    screen.type(text + ENTER)
    screen.wait_for(answer)
