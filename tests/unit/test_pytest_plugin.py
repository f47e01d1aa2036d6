"""The plugin for pytest: what a test asks of a run, and that it costs those who do not use it nothing."""

from __future__ import annotations

import subprocess
import sys
import tomllib
from collections.abc import Callable
from pathlib import Path

import pytest

from sandbox_agent.embedding.result import Result
from sandbox_agent.errors import ConfigError
from sandbox_agent.events import AssistantMessage, PermissionDecided, RunFinished, ToolFinished, ToolStarted
from sandbox_agent.pytest.outcome import Outcome
from sandbox_agent.pytest.playing import Scripts
from sandbox_agent.types import Usage
from sandbox_agent.workspaces.base import Change, Kind

PUSH = {"type": "tool_use", "id": "c2", "name": "Bash", "input": {"command": "git push"}}
EVENTS = (
    AssistantMessage(content=(PUSH,), stop_reason="tool_use", model="m", usage=Usage()),
    ToolStarted(call_id="c1", tool="Read", summary="a.py", input={"file_path": "/workspace/a.py"}, batch=0),
    ToolFinished(call_id="c1", tool="Read", content="1\tx", is_error=False, duration_s=0.1),
    PermissionDecided(
        call_id="c2", tool="Bash", verdict="deny", reason="Not here.", rule=None, location=None, input_sha256=""
    ),
    ToolFinished(call_id="c2", tool="Bash", content="denied", is_error=True, duration_s=0.0),
    RunFinished(status="denied", text="Done.", turns=1, usage=Usage(), duration_s=1.0),
)
RESULT = Result(
    session_id="s",
    status="denied",
    text="Done.",
    error=None,
    turns=1,
    usage=Usage(),
    cost_usd=None,
    duration_s=1.0,
    record=Path("/r"),
    changes=(Change(path="b.py", kind="added", entry=Kind.FILE, diff="+x\n"),),
)
OUTCOME = Outcome(EVENTS, RESULT)


def test_calls_are_told_with_input_and_end() -> None:
    """Those that ran and those that were denied."""
    read, push = OUTCOME.calls

    assert (read.tool, read.input, read.result, read.denied) == (
        "Read",
        {"file_path": "/workspace/a.py"},
        "1\tx",
        False,
    )
    assert (push.tool, push.input, push.denied, push.reason) == ("Bash", {"command": "git push"}, True, "Not here.")
    assert (OUTCOME.status, OUTCOME.text, OUTCOME.changed, OUTCOME.diff("b.py")) == (
        "denied",
        "Done.",
        ("b.py",),
        "+x\n",
    )


def test_assertions_that_hold_say_nothing() -> None:
    """Values are compared, or asked of a function."""
    OUTCOME.assert_called("Read", file_path="/workspace/a.py")
    OUTCOME.assert_called("Read", times=1, file_path=lambda path: path.endswith("a.py"))
    OUTCOME.assert_not_called("Bash")
    OUTCOME.assert_denied("Bash", "Not", command="git push")
    OUTCOME.assert_changed("b.py")


@pytest.mark.parametrize(
    ("asserted", "said"),
    [
        (lambda: OUTCOME.assert_done(), "the run ended as denied: 'Done.'\nBash {'command': 'git push'}: denied"),
        (lambda: OUTCOME.assert_called("Bash"), "no such call: Bash"),
        (lambda: OUTCOME.assert_called("Read", times=2), "1 such calls and not 2"),
        (lambda: OUTCOME.assert_called("Read", offset=1), "Read {'file_path': '/workspace/a.py'}"),
        (lambda: OUTCOME.assert_not_called("Read"), "this was called"),
        (lambda: OUTCOME.assert_denied("Bash", "other"), "Not here."),
        (lambda: OUTCOME.assert_nothing_denied(), "denied were"),
        (lambda: OUTCOME.assert_changed(), "b.py"),
        (lambda: OUTCOME.assert_changed("b.py", "c.py"), "c.py"),
        (lambda: OUTCOME.diff("c.py"), "c.py was not changed"),
        (lambda: Outcome(EVENTS).assert_changed(), "a frozen replay changes nothing"),
    ],
)
def test_assertions_that_fail_say_what_was(asserted: Callable[[], object], said: str) -> None:
    """In words that save a look into the record."""
    with pytest.raises(AssertionError) as failed:
        asserted()
    assert said in str(failed.value)


def test_scripts_come_from_files_and_from_turns(tmp_path: Path) -> None:
    """A wrong one is refused where it is made."""
    scripts = Scripts(tmp_path, tmp_path / "own")
    (tmp_path / "own").mkdir()
    (tmp_path / "a.yaml").write_text("- text: hi\n")
    (tmp_path / "wrong.yaml").write_text("- txt: hi\n")

    assert scripts("a.yaml") == f"script:{tmp_path}/a.yaml"
    first, second = scripts([{"text": "one"}]), scripts([{"text": "two"}])
    assert first != second
    assert '"two"' in Path(second.removeprefix("script:")).read_text()
    for wrong in ("wrong.yaml", "none.yaml", [{"txt": "x"}]):
        with pytest.raises(ConfigError):
            scripts(wrong)  # type: ignore[arg-type]


def test_it_costs_nothing_where_it_is_only_installed() -> None:
    """It loads pytest, which is there, and next to nothing else: no module that takes time, and no warning."""
    code = (
        "import sys, time, pytest; import _pytest.assertion.rewrite; before = set(sys.modules); "
        "start = time.perf_counter(); import sandbox_agent.pytest; took = time.perf_counter() - start; "
        "print(took, *sorted(set(sys.modules) - before))"
    )
    done = subprocess.run([sys.executable, "-W", "error", "-c", code], capture_output=True, text=True, check=True)
    took, *loaded = done.stdout.split()

    assert set(loaded) == {"sandbox_agent", "sandbox_agent.errors", "sandbox_agent.pytest", "sandbox_agent.registry"}
    assert float(took) < 0.5  # 3 ms on a quiet machine; this one may be busy


def test_it_is_an_entry_point_under_its_own_name() -> None:
    """So that `-p sandbox_agent.pytest` and `pytest_plugins` mean the same plugin as an installed package does."""
    project = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())

    assert project["project"]["entry-points"]["pytest11"] == {"sandbox_agent.pytest": "sandbox_agent.pytest"}
