"""`run --report`: what is refused before anything starts, and what is written however the run ended."""

from __future__ import annotations

import io
import json
from pathlib import Path
from xml.etree import ElementTree

import pytest
from cli_calls import call
from report_rig import ID, STARTED, everything

from sandbox_agent.cli.job import Job, Screen
from sandbox_agent.cli.job_reports import wanted_reports, write_reports
from sandbox_agent.cli.signals import Stop
from sandbox_agent.config import RunConfig, sessions_dir
from sandbox_agent.errors import ConfigError
from sandbox_agent.frontends.printer import Printer, make_console
from sandbox_agent.frontends.summary import RunSummary
from sandbox_agent.tape import TapeWriter


@pytest.fixture
def job(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Job:
    """A run that has not begun yet; its record is on disk."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    folder = sessions_dir() / ID
    folder.mkdir(parents=True)
    tape = TapeWriter(folder / "events.jsonl")
    for event in everything():
        tape.append(event)
    tape.close()
    screen = Screen(None, None, Printer(make_console(io.StringIO())), None)
    return Job(RunConfig(workspace=tmp_path), "Do \x1b[1m it.", "never", screen, RunSummary(), Stop())


def said(job: Job) -> str:
    file = job.screen.printer.console.file
    assert isinstance(file, io.StringIO)
    return file.getvalue()


@pytest.mark.parametrize(
    ("given", "wrong"),
    [
        (["html"], "write KIND=FILE"),
        (["html="], "write KIND=FILE"),
        (["pdf=a"], "one of html, markdown, junit, sarif"),
        (["html=a", "html=b"], "html is there twice"),
        (["html=-"], "it goes to a file"),
        (["html=."], "it goes to a file"),
        (["html=/no/such/folder/a.html"], "/no/such/folder is no folder that can be written in"),
    ],
)
def test_what_cannot_be_written_is_refused_first(given: list[str], wrong: str) -> None:
    """With the option as it was given."""
    with pytest.raises(ConfigError, match=wrong) as caught:
        wanted_reports(given)
    assert str(caught.value).startswith(f"--report {given[-1]}: ")


def test_the_command_line_refuses_it_before_anything_starts(tmp_path: Path) -> None:
    """Also as JSON; and many runs have no one report."""
    ended = call("run", "-w", str(tmp_path), "-p", "--output", "json", "--report", "pdf=x", "task")
    assert (ended.code, json.loads(ended.out)["status"]) == (2, "config_error")
    many = call("run", "-w", str(tmp_path), "--repeat", "2", "--report", f"html={tmp_path}/x", "task")
    assert many.code == 2
    assert "--report is of one run" in many.err


@pytest.mark.parametrize(
    "option", [("--report", "html=x"), ("--repeat", "2"), ("--check", "true"), ("--record", "x"), ("--apply", "ask")]
)
def test_what_is_of_one_task_goes_not_with_many_messages(tmp_path: Path, option: tuple[str, str]) -> None:
    """It is refused by name, and never left out in silence."""
    streams = ("--input", "stream-json", "--output", "stream-json")
    ended = call("run", "-w", str(tmp_path), "-p", *streams, *option, "--model", "script:x", "-")
    assert (ended.code, option[0] in ended.err) == (2, True)
    assert json.loads(ended.out)["status"] == "config_error"


def test_reports_are_of_the_record_and_leave_the_exit_code(job: Job, tmp_path: Path) -> None:
    """Whatever that is."""
    job.summary.feed(STARTED)
    files = wanted_reports([f"junit={tmp_path}/j.xml", f"markdown={tmp_path}/m.md"])
    assert write_reports(job, files, 3) == 3
    assert ElementTree.parse(files["junit"]).getroot().get("tests") == "3"
    assert files["markdown"].read_text().startswith("### sandbox-agent: failed\n")


def test_a_run_that_never_began_has_reports_that_say_so(job: Job, tmp_path: Path) -> None:
    """So nobody takes those of an earlier run for its own."""
    files = wanted_reports([f"{kind}={tmp_path}/{kind}" for kind in ("junit", "markdown", "sarif", "html")])
    for path in files.values():
        path.write_text("old")
    job.summary.end("sandbox_error", "no engine answers")
    assert write_reports(job, files, 5) == 5
    [case] = ElementTree.parse(files["junit"]).getroot().iter("testcase")
    error = case.find("error")
    assert error is not None
    assert (case.get("name"), error.get("message")) == ("Do \\x1b[1m it.", "no engine answers")
    assert "Error: `no engine answers`" in files["markdown"].read_text()
    assert not json.loads(files["sarif"].read_text())["runs"][0]["invocations"][0]["executionSuccessful"]
    assert "no engine answers" in files["html"].read_text()


def test_a_report_that_is_not_there_is_told(job: Job, tmp_path: Path) -> None:
    """A pipeline that needs it must not be green; the others are written all the same."""
    job.summary.feed(STARTED)
    gone = tmp_path / "gone"
    gone.mkdir()
    files = wanted_reports([f"html={gone}/x.html", f"junit={tmp_path}/j.xml"])
    gone.rmdir()
    assert write_reports(job, files, 0) == 2
    assert write_reports(job, files, 4) == 4
    assert "x.html: the report cannot be written: No such file or directory" in said(job)
    assert files["junit"].exists()
