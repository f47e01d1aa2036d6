"""What becomes of a job when nobody can read what it says any more."""

from __future__ import annotations

import errno
import signal
from typing import Any, cast

import pytest

from sandbox_agent.cli.conduct import conduct
from sandbox_agent.cli.job import Job, Screen
from sandbox_agent.cli.signals import Stop
from sandbox_agent.events import ModelRetrying, ModelSwitched, Notice
from sandbox_agent.frontends.summary import RunSummary


class Gone:
    """A printer whose every line fails."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.lines = 0

    def line(self, *_: Any) -> None:
        self.lines += 1
        raise OSError(self.number, "it failed")


def job_at(printer: Gone | Heard) -> Job:
    return Job(cast(Any, None), "x", "never", Screen(None, None, cast(Any, printer), None), RunSummary(), Stop())


class Heard:
    """A printer that keeps its lines."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    def line(self, text: Any, *_: Any) -> None:
        self.lines.append(str(text))


def test_a_headless_run_says_that_it_waits_for_the_model_and_that_another_is_asked() -> None:
    """Else minutes of silence look like a run that hangs, and a fallback would be silent."""
    printer = Heard()
    job = job_at(printer)
    job.feed(ModelRetrying(attempt=1, wait_s=0.5, reason="no connection"))
    job.feed(ModelSwitched(model="anthropic:b", before="anthropic:a", reason="stays overloaded"))

    assert printer.lines == [
        "! no connection: trying again in 0.50 s (retry 1)",
        "! anthropic:a: stays overloaded; the rest of this run asks anthropic:b",
    ]


@pytest.mark.parametrize("number", [errno.EPIPE, errno.EIO])
def test_a_closed_terminal_is_as_a_reader_that_left(number: int) -> None:
    """It is noticed once, and nothing is written any more."""
    printer = Gone(number)
    job = job_at(printer)
    job.feed(Notice(level="warning", text="a"))
    job.say("b")

    assert job.reader_gone
    assert printer.lines == 1


def test_what_else_fails_is_told() -> None:
    """A full disk is not nobody."""
    job = job_at(Gone(errno.ENOSPC))

    with pytest.raises(OSError, match="it failed"):
        job.say("b")


@pytest.mark.parametrize(("cause", "code"), [(None, 141), (signal.SIGHUP, 143)])
def test_the_exit_code_is_that_of_the_signal(
    cause: signal.Signals | None, code: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where there was one: a terminal that is closed sends it."""
    monkeypatch.setattr("sandbox_agent.cli.conduct.os.dup2", lambda *_: None)
    job = job_at(Gone(errno.EIO))

    async def body(job: Job) -> None:
        job.feed(Notice(level="warning", text="a"))
        job.stop.cause = cause

    assert conduct(job, body) == code
