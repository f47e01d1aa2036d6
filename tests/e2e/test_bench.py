"""The bench measures and reports; what it finds is for people, so no time is looked at here."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def work(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the bench keeps its data; nothing is installed there."""
    return tmp_path_factory.mktemp("bench")


def bench(work: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "BENCH_DIR": str(work), "CLAUDE": "/nowhere"}
    command = [sys.executable, "-m", "bench", *arguments]
    return subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False, timeout=120)


def test_one_table_with_every_selected_contender(work: Path) -> None:
    """Host and null agent are measured, an agent that is not installed is named, and the samples are in the JSON."""
    done = bench(work, "--quick", "--only", "host,null,claude", "--json", str(work / "out.json"))

    header = "| | host, no sandbox | Claude Code | null agent |"
    samples = json.loads((work / "out.json").read_text())
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("\n|---") == 1
    assert header in done.stdout
    assert "- absent: Claude Code: run bench/setup_peers.sh" in done.stdout
    assert set(samples["seconds"]["command"]) == {"host"}
    assert {"loop_start", "turn_read1", "turn_grep10"} <= {
        row for row, cells in samples["seconds"].items() if "null" in cells
    }


def test_gates_name_what_was_left_out(work: Path) -> None:
    """A gate whose sides were not both measured is neither ok nor missed."""
    done = bench(work, "--quick", "--only", "host")

    gates = done.stdout.partition("## Gates")[2]
    assert "- not measured: one command, to a host subprocess: one command (`true`), ours: left out" in gates
    assert "- ok" not in gates
    assert "- MISSED" not in gates


def test_an_unknown_word_is_refused_with_the_known_ones(work: Path) -> None:
    """A typing mistake must not look like a bench of nothing."""
    done = bench(work, "--only", "hots")

    assert done.returncode == 2
    assert "--only hots: words are " in done.stderr
    assert ", host, " in done.stderr
