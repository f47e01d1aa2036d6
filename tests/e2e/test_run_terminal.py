"""`sandbox-agent run` at a pseudo-terminal: questions, the review, Ctrl-C."""

from __future__ import annotations

import os

import pytest
from program import DONE, Program, bash, containers_of, use
from screen import at_terminal

pytestmark = pytest.mark.docker

ASKS = {"text": "I run it.", "tools": [bash("touch by-bash; echo ran")]}
EDIT = {"text": "I write.", "tools": [use("Write", file_path="/workspace/new.txt", content="new\n")]}


def test_a_person_allows_a_command_and_applies_some_of_the_changes(program: Program) -> None:
    """The question shows the command; of two new files one is chosen, the other kept."""
    with at_terminal(program, "run", "--model", program.script([ASKS, EDIT, DONE]), "do it") as (screen, process):
        question = screen.wait_for("[y/s/a/n] > ")
        assert "  | touch by-bash; echo ran\n" in question
        screen.type("y\n")
        screen.wait_for("[y/s/a/n] > ")
        screen.type("y\n")
        review = screen.wait_for("whole diff of N > ")
        assert "+new" in review
        screen.type("s new.txt\n")
        rest = screen.rest()

        assert process.wait(30) == 0
    assert "applied 1 file" in rest
    assert "Not applied, and kept" in rest
    assert sorted(os.listdir(program.folder)) == ["a.txt", "new.txt"]


def test_a_no_with_a_reason_reaches_the_model(program: Program) -> None:
    """The refused call is an error result with the person's words."""
    after = {"expect": [{"is_error": True, "contains": "use make instead"}], "text": "Understood."}
    with at_terminal(program, "run", "--model", program.script([ASKS, after]), "do it") as (screen, process):
        screen.wait_for("[y/s/a/n] > ")
        screen.type("n use make instead\n")
        rest = screen.rest()

        assert process.wait(30) == 3
    assert "Understood." in rest
    assert "Nothing was changed." in rest


def test_always_keeps_a_rule_for_every_part_and_the_next_run_is_not_asked(program: Program) -> None:
    """One question, two rules; another command is still asked about, here: denied."""
    made = {"tools": [bash("touch one && ls | tee two")]}
    with at_terminal(program, "run", "--model", program.script([made, DONE]), "do it") as (screen, process):
        question = screen.wait_for("[y/s/a/n] > ")
        assert question.endswith("  | Bash(touch one)\n  | Bash(tee two)\n  [y/s/a/n] > ")
        screen.type("a\n")
        screen.wait_for("whole diff of N > ")
        screen.type("n\n")
        screen.rest()
        assert process.wait(30) == 0
    again = {"tools": [bash("ls | tee two; touch one")]}
    assert program.call("run", "-p", "--model", program.script([again, DONE]), "x").code == 0
    assert program.call("run", "-p", "--model", program.script([{"tools": [bash("tee one")]}, DONE]), "x").code == 3


def test_a_person_answers_a_question_and_says_yes_to_a_plan(program: Program) -> None:
    """What waits for them is shown whole; while the model plans nothing is changed, then it is asked about again."""
    choice = {"question": "Which store?", "header": "Store", "options": [{"label": "SQLite"}, {"label": "Postgres"}]}
    plans = [use("EnterPlanMode"), *EDIT["tools"], use("AskUserQuestion", questions=[choice])]
    agreed = {"expect": [{}, {"is_error": True, "contains": "plan mode"}, {"contains": "Postgres"}]}
    turns = [{"tools": plans}, {**agreed, "tools": [use("ExitPlanMode", plan="1. look\n2. write")]}, EDIT, DONE]
    with at_terminal(program, "run", "--model", program.script(turns), "do it") as (screen, process):
        screen.wait_for("[1-2, or in your own words] > ")
        screen.type("2\n")
        assert "  | 1. look\n  | 2. write\n" in screen.wait_for("[y/n] > ")
        screen.type("y\n")
        screen.wait_for("[y/s/a/n] > ")
        screen.type("n not now\n")
        rest = screen.rest()

        assert process.wait(30) == 3
    assert "Nothing was changed." in rest
    record = (program.session() / "events.jsonl").read_text()
    assert record.count('"type":"mode_changed"') == 2


def test_ctrl_c_at_a_question_is_a_no(program: Program) -> None:
    """The call does not run, and the record says so."""
    with at_terminal(program, "run", "--model", program.script([ASKS, DONE]), "do it") as (screen, process):
        screen.wait_for("[y/s/a/n] > ")
        screen.type("\x03")
        screen.rest()
        assert process.wait(30) == 130
    record = (program.session() / "events.jsonl").read_text()
    assert '"reason":"the question was interrupted."' in record
    assert '"type":"tool_started"' not in record


def test_ctrl_c_interrupts_and_offers_the_review(program: Program) -> None:
    """The first Ctrl-C ends the agent, not the program; what was done can still be applied."""
    sleeper = {"text": "Waiting.", "tools": [bash("sleep 300", timeout=400_000)]}
    arguments = ("run", "--mode", "acceptEdits", "--allow", "Bash", "--model", program.script([EDIT, sleeper]), "x")
    with at_terminal(program, *arguments) as (screen, process):
        screen.wait_for("* Bash sleep 300")
        screen.type("\x03")
        screen.wait_for("whole diff of N > ")
        screen.type("a\n")
        screen.rest()

        assert process.wait(30) == 130
    assert (program.folder / "new.txt").read_text() == "new\n"


def test_a_second_ctrl_c_ends_and_keeps_the_changes(program: Program) -> None:
    """At the review nothing is applied, the ID is shown, no container is left."""
    sleeper = {"text": "Waiting.", "tools": [bash("sleep 300", timeout=400_000)]}
    arguments = ("run", "--mode", "acceptEdits", "--allow", "Bash", "--model", program.script([EDIT, sleeper]), "x")
    with at_terminal(program, *arguments) as (screen, process):
        screen.wait_for("* Bash sleep 300")
        screen.type("\x03")
        screen.wait_for("whole diff of N > ")
        screen.type("\x03")
        rest = screen.rest()

        assert process.wait(30) == 130
    session = program.session().name
    assert f"sandbox-agent apply {session}" in rest
    assert "Traceback" not in rest
    assert containers_of(session) == []
    assert sorted(os.listdir(program.folder)) == ["a.txt"]
