"""The plugin for pytest in runs of pytest of their own: the documented example, and a recording as a test."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from program import DONE, WRITE, Program

pytestmark = pytest.mark.docker

EXAMPLE = Path(__file__).parents[2] / "examples/pytest"


def run_pytest(folder: Path, **env: str) -> subprocess.CompletedProcess[str]:
    """A run as somebody else has it: their folder, no configuration of ours, warnings as they come."""
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-p",
        "sandbox_agent.pytest",
        "-p",
        "no:cacheprovider",
        str(folder),
    ]
    return subprocess.run(
        command, cwd=folder, env={**os.environ, **env}, capture_output=True, text=True, timeout=120, check=False
    )


def test_the_example_runs(tmp_path: Path) -> None:
    """As documented; the project that its agents work on stays as it is."""
    folder = tmp_path / "example"
    shutil.copytree(EXAMPLE, folder, ignore=shutil.ignore_patterns("__pycache__"))
    ended = run_pytest(folder)

    assert ended.returncode == 0, ended.stdout
    assert "2 passed" in ended.stdout
    for name in ("prices.py", "check_prices.py"):
        assert (folder / "project" / name).read_bytes() == (EXAMPLE / "project" / name).read_bytes()


def test_a_recording_is_a_test_without_an_engine(program: Program, tmp_path: Path) -> None:
    """With no engine to be had it passes, with an event loop too; an assertion that fails says what was called."""
    bundle = tmp_path / "made/run.bundle"
    bundle.parent.mkdir()
    script = program.script([WRITE, DONE])
    recorded = program.call("run", "-p", "--mode", "acceptEdits", "--model", script, "--record", str(bundle), "x")
    (bundle.parent / "test_recorded.py").write_text(
        "def test_it(frozen_bundle):\n"
        "    outcome = frozen_bundle('run.bundle')\n"
        "    outcome.assert_done()\n"
        "    outcome.assert_called('Write', file_path='/workspace/new.txt')\n"
        "    assert outcome.text == 'All done.'\n"
        "async def test_in_a_loop_of_its_own(frozen_bundle):\n"
        "    assert frozen_bundle('run.bundle').status == 'done'\n"
        "def test_that_fails(frozen_bundle):\n"
        "    frozen_bundle('run.bundle').assert_called('Bash')\n"
    )
    ended = run_pytest(bundle.parent, DOCKER_HOST="unix:///nowhere.sock", PYTEST_ADDOPTS="-p anyio -o anyio_mode=auto")

    assert recorded.code == 0, recorded.stderr
    assert (ended.returncode, "2 passed" in ended.stdout, "1 failed" in ended.stdout) == (1, True, True), ended.stdout
    assert "no such call: Bash {}" in ended.stdout
    assert "Write {" in ended.stdout, ended.stdout
