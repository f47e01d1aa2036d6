"""Acceptance checks: what they may be asked for, which tree they get, and what becomes of a run when one fails."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from sandbox_agent.config import RunConfig
from sandbox_agent.engine.acceptance import refuse_bad
from sandbox_agent.errors import ConfigError
from sandbox_agent.events import CheckFinished, ReviewReady, RunFinished
from sandbox_agent.frontends.asides import lines
from sandbox_agent.frontends.stream_json import StreamJson, result
from sandbox_agent.frontends.summary import RunSummary
from sandbox_agent.types import Usage
from sandbox_agent.workspaces.base import Kind
from sandbox_agent.workspaces.mixing import mix, patterns
from sandbox_agent.workspaces.snapshot import Node, Snapshot, snapshot_of
from sandbox_agent.workspaces.steps import Step, Steps

PASSED = CheckFinished(number=1, command="pytest -q", exit_code=0, duration_s=0.5, output="1 passed\n", output_bytes=9)
FAILED = replace(PASSED, number=2, command="ruff check .", exit_code=1, output="a\x1b[2J\nE501\n", from_base=("t/a",))
FINISHED = RunFinished(status="done", text="Done.", turns=1, usage=Usage(), duration_s=1.0)
FOLDER = Node(Kind.DIRECTORY, 0o755)


def file(content: str | None = None) -> Node:
    return Node(Kind.FILE, 0o644, sha256=content)


def summary(*events: CheckFinished, status: str = "done") -> RunSummary:
    folded = RunSummary(changes_expected=True)
    for event in (replace(FINISHED, status=status), ReviewReady(changes=()), *events):
        folded.feed(event)
    return folded


@pytest.mark.parametrize(
    ("events", "status", "expected"),
    [
        ((PASSED,), "done", ("done", 0)),
        ((PASSED, FAILED), "done", ("failed", 1)),
        ((FAILED,), "denied", ("failed", 1)),
        ((FAILED,), "limit", ("limit", 4)),
        ((replace(PASSED, timed_out=True),), "done", ("failed", 1)),
        ((replace(PASSED, exit_code=None, error="no engine"),), "done", ("failed", 1)),
    ],
)
def test_a_check_decides(events: tuple[CheckFinished, ...], status: str, expected: tuple[str, int]) -> None:
    """Where one has not passed a run that is done has failed; a worse end keeps its own exit code."""
    folded = summary(*events, status=status)

    assert (folded.status, folded.exit_code) == expected


def test_it_is_told_to_people_and_programs() -> None:
    """The error names the check; JSON has all of them; a failed one shows the end of its output, harmless."""
    folded = summary(PASSED, FAILED)
    document = result(folded)
    [line] = StreamJson(new_id=lambda: "id").lines(FAILED)

    assert folded.error == "check 'ruff check .' failed with exit code 1"
    assert [(one["command"], one["passed"], one["exit_code"]) for one in document["checks"]] == [
        ("pytest -q", True, 0),
        ("ruff check .", False, 1),
    ]
    assert (line["subtype"], line["number"], line["from_base"]) == ("check_finished", 2, ["t/a"])
    shown = [text.plain for text in lines(FAILED, verbose=False)]
    assert [shown[0], *shown[-1:]] == ["check ruff check .: failed with exit code 1 · 0.50 s", "    E501"]
    assert "\x1b" not in "".join(shown)
    assert [text.plain for text in lines(PASSED, verbose=False)] == ["check pytest -q: passed · 0.50 s"]


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"checks": ("  ",)}, "--check: give a command"),
        ({"checks": ("a" * 200_000,)}, "--check: give a command"),
        ({"checks": ("true",), "check_timeout_s": 0.0}, "--check-timeout 0: give seconds"),
        ({"checks": ("true",), "check_timeout_s": float("inf")}, "--check-timeout inf"),
        ({"checks": ("true",), "check_timeout_s": float("nan")}, "--check-timeout nan"),
        ({"check_files": ("tests/**",)}, "there is no --check"),
        ({"checks": ("true",), "check_files": ("../x",)}, "'../x': give a pattern"),
        ({"checks": ("true",), "check_files": ("!tests/**",)}, "give a pattern"),
    ],
)
def test_what_cannot_be_meant_is_refused(options: dict[str, object], said: str) -> None:
    """Before the run, with one line."""
    config = replace(RunConfig(workspace=Path(".")), **options)  # type: ignore[arg-type]

    with pytest.raises(ConfigError, match=said.replace("*", r"\*")):
        refuse_bad(config)


def mixed(now: dict[str, Node], before: dict[str, Node], *lines: str) -> Snapshot:
    found = mix(now, before, patterns(lines))
    nodes = {path: node for path, node in now.items() if path not in found.removed} | found.nodes
    return snapshot_of(nodes)


def test_files_of_the_check_are_as_before() -> None:
    """Changed and deleted ones are back, added ones are gone; everything else is the agent's."""
    before = {"": FOLDER, "src": FOLDER, "src/a.py": file(), "tests": FOLDER, "tests/a": file(), "tests/b": file()}
    now = {
        **before,
        "src/a.py": file("1"),
        "tests/a": file("2"),
        "tests/conftest.py": file("3"),
        "conftest.py": file("4"),
    }
    del now["tests/b"]

    assert mixed(now, before, "tests/**").nodes == {**before, "src/a.py": file("1"), "conftest.py": file("4")}
    assert mix(now, before, patterns(["tests/**"])).paths == ("tests/a", "tests/b", "tests/conftest.py")
    assert mixed(now, before, "tests/**", "conftest.py").nodes == {**before, "src/a.py": file("1")}


def test_what_was_put_in_their_way_goes() -> None:
    """A link in place of their folder, and a folder in place of a file."""
    link = Node(Kind.LINK, 0o777, target="/workspace/fake")
    before = {"": FOLDER, "tests": FOLDER, "tests/a": file()}
    linked = {"": FOLDER, "tests": link, "fake": FOLDER, "fake/a": file("1")}
    dug = {"": FOLDER, "tests": FOLDER, "tests/a": FOLDER, "tests/a/b": file("1"), "tests/a/b.d": FOLDER}

    assert mixed(linked, before, "tests/**").nodes == {**before, "fake": FOLDER, "fake/a": file("1")}
    assert mixed(dug, before, "tests/a").nodes == before


def test_a_fork_can_be_amended_before_it_begins(tmp_path: Path) -> None:
    """It begins with the amended tree, and its step files are whole."""
    steps = Steps(tmp_path / "one")
    steps.write(Step(0, "base", "x", 1.0, "token"), {"": FOLDER, "a": file(), "b": file()})
    steps.write(Step(1, "calls", "y", 2.0, "token"), {"a": Node(Kind.FILE, 0o600)})
    fork = Steps(tmp_path / "two")
    steps.share(1, fork)

    fork.amend({"a": file()}, ["b"])

    wanted = fork.wanted()
    assert wanted is not None
    assert wanted.snapshot.nodes == {"": FOLDER, "a": file()}
