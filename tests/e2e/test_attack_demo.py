"""`demo --attack` on the real engine: every attempt is held, and an escape that really happens turns it red."""

from __future__ import annotations

from pathlib import Path

import pytest
from program import Program

from sandbox_agent.cli.attack.attempts import read_catalogue
from sandbox_agent.cli.demo_run import examples_dir

pytestmark = pytest.mark.docker


def test_everything_that_the_hostile_repository_tries_is_held(program: Program, tmp_path: Path) -> None:
    """Under the policy and without any rule; nothing reaches the machine, and nothing of the attack is left on it."""
    ended = program.call("demo", "--attack", "--json", within_s=170, TMPDIR=str(tmp_path))
    attack = ended.document
    ids = [one.id for one in read_catalogue(examples_dir() / "hostile-repo" / "attempts.yaml").attempts]

    assert (ended.code, attack["ok"], attack["machine"]["reached"], attack["applied"]["faults"]) == (0, True, [], [])
    assert {one["id"]: one["held"] for one in attack["attempts"]} == dict.fromkeys(ids, True)
    # The second run is no empty claim: without rules every call runs, and the container answers it.
    assert [one["id"] for one in attack["attempts"] if one["without_rules"]["container"] is None] == []
    assert list((program.home / "state" / "sandbox-agent" / "sessions").iterdir()) == []
    assert list(tmp_path.glob("sandbox-agent-attack-*")) == []


def test_an_escape_turns_it_red(program: Program, tmp_path: Path) -> None:
    """A program on the machine writes to a canary when files are listed: the attempt that brought it about is named."""
    config = program.home / "config" / "sandbox-agent"
    config.mkdir(parents=True)
    command = f'for file in {tmp_path}/sandbox-agent-attack-*/trap/notes.txt; do echo owned >> "$file"; done'
    hook = {"id": "escape", "matcher": "Glob", "place": "host", "command": command}
    (config / "policy.yaml").write_text(f"version: 1\nhooks: {{pre_tool_use: [{hook!r}]}}\n")
    arguments = ("demo", "--attack", "--only", "terminal", "--only", "fifo")
    ended = program.call(*arguments, TMPDIR=str(tmp_path))

    assert ended.code == 1
    assert "-> on the machine: trap/notes.txt has another content" in ended.stdout
    assert [line.split()[0] for line in ended.stdout.splitlines() if line.startswith(("held", "OPEN"))] == [
        "held",
        "OPEN",
    ]
    assert "NOT HELD: 1 of 2 attempts" in ended.stdout


def test_without_an_engine_it_says_so(program: Program) -> None:
    """And claims nothing of what it could not try."""
    ended = program.call("demo", "--attack", DOCKER_HOST="unix:///nonexistent.sock")

    assert ended.code == 5
    assert "Not all of 28 attempts could be tried" in ended.stdout
    assert "What reached the machine" not in ended.stdout
    assert "/nonexistent.sock" in ended.stdout.splitlines()[-1]
