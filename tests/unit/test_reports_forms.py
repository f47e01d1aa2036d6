"""The forms themselves: SARIF by its schema, JUnit's cases, the page's size and what it may load, and the command."""

from __future__ import annotations

import base64
import hashlib
import json
import re
import time
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import jsonschema
import pytest
from cli_calls import call as command
from report_rig import ID, STARTED, call, everything, long_agent, long_session, story, text, turn, use

from sandbox_agent.config import sessions_dir
from sandbox_agent.events import CallEffects, Event, ReviewReady, RunFinished, UserMessage
from sandbox_agent.frontends.resources import Resources
from sandbox_agent.reports.html.page import MAX_BYTES
from sandbox_agent.reports.kinds import KINDS
from sandbox_agent.tape import TapeWriter
from sandbox_agent.types import Usage

SCHEMA = json.loads((Path(__file__).parent / "sarif_schema.json").read_text())


def found(*findings: dict[str, Any], is_error: bool = False) -> list[Event]:
    """A session that reported these."""
    meta = {"findings": list(findings)}
    given = {"findings": list(findings)}
    reported = call("f1", "ReportFindings", given, "Reported.", meta=meta, is_error=is_error)
    return [STARTED, UserMessage(content=(text("Review."),)), *turn(1, use("f1", "ReportFindings", given)), *reported]


def finding(**fields: Any) -> dict[str, Any]:
    return {"file": "a b/é.py", "line": 3, "summary": "Wrong.", "failure_scenario": "It fails.", **fields}


def sarif(events: list[Event]) -> dict[str, Any]:
    document: dict[str, Any] = json.loads(KINDS["sarif"](story(events)))
    jsonschema.validate(document, SCHEMA)
    [run] = document["runs"]
    return dict(run)


def ended(status: str, error: str | None = None) -> list[Event]:
    end = RunFinished(status=status, text="Said.", turns=1, usage=Usage(), duration_s=1.5, error=error)
    return [STARTED, UserMessage(content=(text("Do it."),)), end]


def test_findings_become_results_of_code_scanning() -> None:
    """With rules by category, levels by severity, and paths as a URI."""
    run = sarif(
        found(
            finding(severity="critical", category="SQL Injection!", verdict="confirmed"),
            finding(line=None, severity="low", category="sql injection"),
            finding(category=None),
        )
    )
    assert [one["id"] for one in run["tool"]["driver"]["rules"]] == ["sql-injection", "finding"]
    places = [one["locations"][0]["physicalLocation"] for one in run["results"]]
    assert places[0] == {
        "artifactLocation": {"uri": "a%20b/%C3%A9.py", "uriBaseId": "%SRCROOT%"},
        "region": {"startLine": 3},
    }
    assert "region" not in places[1]
    assert [(one["level"], one["ruleIndex"]) for one in run["results"]] == [("error", 0), ("note", 0), ("warning", 1)]
    assert run["results"][0]["message"]["text"] == "Wrong.\n\nIt fails."


def test_a_fingerprint_outlives_the_line_and_the_case() -> None:
    """So a finding that moved is the same one."""
    prints = [
        sarif(found(one))["results"][0]["partialFingerprints"]
        for one in (finding(line=3), finding(line=90, summary="wrong."), finding(summary="Other."))
    ]
    assert prints[0] == prints[1] != prints[2]


def test_no_findings_are_a_run_without_results() -> None:
    """Also where the report was refused; what broke off did not succeed."""
    assert sarif(found(finding(), is_error=True))["results"] == []
    assert sarif(ended("done"))["invocations"][0]["executionSuccessful"]
    assert not sarif(ended("sandbox_error"))["invocations"][0]["executionSuccessful"]
    assert not sarif([STARTED])["invocations"][0]["executionSuccessful"]
    sarif(everything())


@pytest.mark.parametrize(
    ("status", "tag"),
    [
        ("done", None),
        ("denied", "failure"),
        ("failed", "failure"),
        ("limit", "failure"),
        ("model_error", "error"),
        ("sandbox_error", "error"),
        ("interrupted", "error"),
    ],
)
def test_a_task_is_a_case(status: str, tag: str | None) -> None:
    """Whatever is not done fails; what says nothing of the task is an error."""
    suites = ElementTree.fromstring(KINDS["junit"](story(ended(status, "because"))))
    [case] = suites.iter("testcase")
    assert (case.get("name"), case.get("time")) == ("Do it.", "1.500")
    assert [child.tag for child in case] == ([tag] if tag else []) + ["system-out"]
    assert (suites.get("failures"), suites.get("errors")) == (str(int(tag == "failure")), str(int(tag == "error")))


JUNIT: dict[str, tuple[set[str], set[str], set[str]]] = {
    "testsuites": (set(), {"name", "time", "tests", "failures", "errors"}, {"testsuite"}),
    "testsuite": ({"name", "tests", "failures", "errors"}, {"time", "timestamp", "skipped", "id"}, {"testcase"}),
    "testcase": ({"name"}, {"time", "classname"}, {"skipped", "error", "failure", "system-out", "system-err"}),
    "failure": (set(), {"type", "message"}, set()),
    "error": (set(), {"type", "message"}, set()),
    "system-out": (set(), set(), set()),
}
"""What the schema of the field (junit-10 of Jenkins) has of each element: attributes that must and that may be there,
and what may be in it."""


@pytest.mark.parametrize("events", [everything(), [], [STARTED], long_session(50), found(finding())])
def test_junit_has_the_form_of_the_field(events: list[Event]) -> None:
    """Element by element, with times as plain seconds and counts that are right; for a session in any state."""
    root = ElementTree.fromstring(KINDS["junit"](story(events)))
    assert root.tag == "testsuites"
    for one in root.iter():
        needed, more, inside = JUNIT[one.tag]
        assert needed <= one.attrib.keys() <= needed | more
        assert {child.tag for child in one} <= inside
        assert not (one.text or "").strip() or not inside
        assert re.fullmatch(r"\d+\.\d{3}", one.get("time", "0.000"))
    for one in (root, *root):
        cases = [*one.iter("testcase")]
        counts = [len(cases), *(sum(case.find(tag) is not None for case in cases) for tag in ("failure", "error"))]
        assert [one.get(name) for name in ("tests", "failures", "errors")] == list(map(str, counts))


def test_each_check_is_a_case() -> None:
    """With what it said."""
    suites = ElementTree.fromstring(KINDS["junit"](story(everything())))
    cases = {
        case.get("name"): case for case in suites.iter("testcase") if case.get("classname") == "sandbox-agent.check"
    }
    assert [child.tag for child in cases["python3 -m pytest -q"]] == ["system-out"]
    failure = cases["ruff check ."].find("failure")
    assert failure is not None
    assert (failure.get("message"), failure.text) == (
        "failed with exit code 1",
        "parcels/quote.py:3:1: F401 unused import\n",
    )


def test_the_page_loads_nothing_and_runs_only_its_own_script() -> None:
    """By a policy that names the digests of its style and its script."""
    page = KINDS["html"](story(everything()))
    policy = re.search(r'http-equiv="Content-Security-Policy" content="([^"]+)"', page)
    assert policy is not None
    digests = {}
    for tag in ("style", "script"):
        [inside] = re.findall(rf"<{tag}>(.*?)</{tag}>", page, re.DOTALL)
        digests[tag] = base64.b64encode(hashlib.sha256(inside.encode()).digest()).decode()
    assert policy[1] == (
        f"default-src 'none'; style-src 'sha256-{digests['style']}'; script-src 'sha256-{digests['script']}'; "
        "base-uri 'none'; form-action 'none'"
    )
    assert policy.start() < page.index("<style>")
    assert not re.search(r"innerHTML|outerHTML|insertAdjacent|document\.write|eval\(|fetch\(|import\(", page)


def test_the_page_links_only_to_places_that_it_has() -> None:
    """And no two places have one name."""
    page = KINDS["html"](story(everything()))
    names = re.findall(r' id="([^"]+)"', page)
    assert len(names) == len(set(names))
    assert set(re.findall(r' href="#([^"]+)"', page)) <= set(names)


@pytest.mark.parametrize(("events", "output"), [(1_000, 4_000), (1_000, 60_000), (14_000, 500)])
def test_a_long_session_stays_under_three_megabytes(events: int, output: int) -> None:
    """Whole if it can be; shortened where it must be, and then it says so. Made in a few seconds at most."""
    told = story(long_session(events, output="x" * output))
    began = time.process_time()
    page = KINDS["html"](told)
    assert time.process_time() - began < 30
    assert len(page.encode()) <= MAX_BYTES
    shortened = "left out" in page
    assert shortened is (events * output > 4_000_000 or events > 10_000)
    assert f'id="e{told.calls[-1].number}"' in page


def test_a_long_sub_agent_and_many_files_stay_under_it_as_well() -> None:
    """Each list has its newest entries, and says how many are left out; what follows the time line is there."""
    changes = tuple({"path": f"src/{one}.py", "kind": "added", "diff": "+x\n"} for one in range(5_000))
    page = KINDS["html"](story([*long_agent(13_000, output="x" * 500), ReviewReady(changes=changes)]))
    assert len(page.encode()) <= MAX_BYTES
    assert re.search(r"The oldest [\d,]+ entries are left out", page)
    assert "The first 400 of 5,000." in page
    assert 'id="record"' in page


@pytest.fixture
def session(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """The folder of a recorded session."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    folder = sessions_dir() / ID
    folder.mkdir(parents=True)
    tape = TapeWriter(folder / "events.jsonl")
    for event in everything():
        tape.append(event)
    tape.close()
    return folder


def test_the_command_writes_what_it_is_asked_for(session: Path, tmp_path: Path) -> None:
    """Several at once, whole files with the usual mode; one of them to standard output."""
    paths = {kind: tmp_path / f"r.{kind}" for kind in ("html", "junit", "sarif")}
    options = [f"--{kind}={path}" for kind, path in paths.items()]
    ended = command("report", "last", *options, "--markdown", "-")
    assert (ended.code, ended.err) == (0, "")
    assert ended.out.startswith("### sandbox-agent: failed\n")
    told = story(everything())
    assert paths["html"].read_text().startswith("<!doctype html>")
    assert json.loads(paths["sarif"].read_text())["version"] == "2.1.0"
    assert ElementTree.parse(paths["junit"]).getroot().get("tests") == str(len(told.checks) + 1)
    assert {path.stat().st_mode & 0o777 for path in paths.values()} <= {0o644, 0o664, 0o600}
    assert sorted(path.name for path in tmp_path.iterdir()) == ["r.html", "r.junit", "r.sarif", "state"]


def test_costs_are_a_table_or_a_line_each(session: Path) -> None:
    """By request, by call, and in all; with nothing that a terminal would act on."""
    shown = command("sessions", "show", "last", "--costs")
    assert shown.code == 0
    lines = shown.out.splitlines()
    assert lines[1].split() == ["1", "main", "9,590", "8,000", "140", "0.0041", "0.00", "s"]
    [install] = [line for line in lines if line.startswith("Bash") and "pip install" in line]
    assert " ".join(install.split()[4:]) == "0.24 s 2.20 s 67.7 MiB 62 bytes 10 bytes 2.3 KiB 79.1 KiB"
    assert lines[-1].startswith("in all: 78,160 tokens in (64,000 from the cache), 1,120 out, 0.0861 USD, 3.62 s CPU")
    rows = [json.loads(line) for line in command("sessions", "show", "last", "--costs", "--json").out.splitlines()]
    assert [row["kind"] for row in rows] == ["request"] * 8 + ["call"] * 9 + ["total"]
    assert rows[-1]["received_bytes"] == 81_000


def test_a_run_ends_with_what_its_calls_used() -> None:
    """For people a line, where anything is known."""
    used = Resources()
    assert used.lines() == []
    for event in everything():
        if isinstance(event, CallEffects):
            used.feed(event)
    assert used.lines() == ["7 calls: 3.62 s CPU, peak memory 67.7 MiB"]
    assert used.as_json() == {"calls": 7, "cpu_s": pytest.approx(3.62), "max_rss_bytes": 71_000_000}


def test_the_command_says_what_is_missing(session: Path, tmp_path: Path) -> None:
    """A kind, a session, a place to write, a record."""
    assert command("report", "last").code == 2
    assert command("report", "last", "--html", "-", "--sarif", "-").code == 2
    assert command("report", "0" * 22, "--html", "-").code == 2
    nowhere = command("report", "last", "--html", str(tmp_path / "no" / "r.html"))
    assert nowhere.code == 2
    assert "the report cannot be written: No such file" in nowhere.err
    (session / "events.jsonl").unlink()
    assert command("report", ID, "--html", "-").code == 1
