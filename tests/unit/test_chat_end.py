"""How a chat ends, and what its command line takes."""

from __future__ import annotations

import inspect

import pytest
from cli_calls import call
from frontend_events import ended

from sandbox_agent.cli.chat import COMMAND as CHAT
from sandbox_agent.cli.chat_run import _settle, chat
from sandbox_agent.cli.execute import config_of
from sandbox_agent.cli.run import COMMAND as RUN
from sandbox_agent.errors import SandboxAgentError, SandboxError
from sandbox_agent.frontends.summary import RunSummary


@pytest.mark.parametrize(
    ("status", "fault", "code"),
    [
        (None, None, 0),
        ("done", None, 0),
        ("interrupted", None, 0),
        ("denied", None, 3),
        ("failed", None, 1),
        ("limit", None, 4),
        ("model_error", None, 6),
        (None, SandboxError("gone"), 5),
        ("done", SandboxError("gone"), 5),
        ("sandbox_error", SandboxError("gone"), 5),
    ],
)
def test_the_exit_code_is_of_the_last_run(status: str | None, fault: SandboxAgentError | None, code: int) -> None:
    """Saying nothing, or stopping the agent and leaving, is fine; a sandbox that was lost meanwhile is not."""
    summary = RunSummary()
    if status is not None:
        summary.feed(ended(status))
    _settle(summary, fault)

    assert summary.exit_code == code


def test_ctrl_c_twice_is_told_by_the_exit_code() -> None:
    """Whatever the last run came to."""
    summary = RunSummary()
    summary.feed(ended("done"))
    summary.end("interrupted", None)
    _settle(summary, None)

    assert summary.exit_code == 130


def test_it_takes_what_run_takes_but_for_programs() -> None:
    """One list of options: what is added to run is there."""
    options = {name: {str(one.name) for one in command.params} for name, command in (("run", RUN), ("chat", CHAT))}

    assert options["run"] - options["chat"] == {
        "task",
        "headless",
        "output",
        "repeat",
        "jobs",
        "input_format",
        "answer_schema",
    }
    assert options["chat"] - options["run"] == {"message"}


def test_every_option_of_it_is_taken_by_what_runs_it() -> None:
    """One that is added to `run` alone would end each chat before it begins."""
    given = {str(one.name) for one in CHAT.params} - {"message", "resume_last"}
    taken = {*inspect.signature(chat).parameters, *inspect.signature(config_of).parameters}

    assert given - taken == set()


@pytest.mark.parametrize(
    ("arguments", "words"), [(["-c", "--resume", "x"], "exclude each other"), ([" "], "the message is empty")]
)
def test_what_makes_no_sense_is_usage(arguments: list[str], words: str) -> None:
    """One line, exit code 2."""
    done = call("chat", *arguments)

    assert (done.code, done.out) == (2, "")
    assert words in done.err
