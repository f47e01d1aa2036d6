"""`python -m bench`: measure, and print the report as Markdown. Progress goes to stderr."""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import anyio

from bench import machine
from bench.checkpoints import measure_checkpoints
from bench.early import measure_early
from bench.judge import measure_judge
from bench.loop import Asked, command_for
from bench.plan import CONTENDERS, IN_PART, PARTS, Results, Wanted
from bench.sandbox import measure_sandbox
from bench.servers import measure_servers
from bench.survival import measure_survival
from bench.table import parts_text, render

ROUNDS = 5
ROOT = Path(__file__).resolve().parent.parent


def main() -> int:
    """0 measured (gates may be missed all the same: they are in the report), 1 something failed, 2 usage."""
    given = _arguments()
    wanted = Wanted(frozenset(given.only))
    work = _work_dir()
    before = machine.load()
    rounds = 1 if given.quick else given.rounds
    results = Results()
    if names := wanted.of_part("sandbox"):
        anyio.run(measure_sandbox, names, rounds, given.quick, work, results)
    loop, overlap = wanted.of_part("loop"), bool(wanted.of_part("overlap"))
    if loop or overlap:
        _measure_apart(Asked(loop, overlap, rounds, given.quick, str(work)), results)
    if names := wanted.of_part("checkpoints"):
        anyio.run(measure_checkpoints, names, rounds, given.quick, work, results)
    if names := wanted.of_part("early"):
        anyio.run(measure_early, names, rounds, given.quick, work, results)
    if names := wanted.of_part("mcp"):
        anyio.run(measure_servers, names, rounds, given.quick, work, results)
    if names := wanted.of_part("judge"):
        measure_judge(names, rounds, given.quick, results)
    if names := wanted.of_part("survival"):
        anyio.run(measure_survival, names, rounds, given.quick, work, results)
    lines = [*machine.describe(work), f"load average: {before} before, {machine.load()} after; {rounds} rounds"]
    shown = [name for name in CONTENDERS if any(name in wanted.of_part(part) for part in PARTS)]
    print(render(results, lines, shown))
    if given.json is not None:
        given.json.write_text(json.dumps(_as_json(results, lines), indent=1) + "\n")
    return 1 if results.troubles else 0


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m bench",
        description="Measures sandbox-agent beside a host subprocess, docker exec and other agents, in one run.",
        epilog=parts_text() + "\n\nOthers are found in $BENCH_DIR; bench/setup_peers.sh puts them there.",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    words = sorted({*PARTS, *CONTENDERS})
    parser.add_argument("--only", metavar="WORD,...", default=[], type=_words, help="parts or contenders to measure")
    parser.add_argument("--rounds", type=int, default=ROUNDS, help=f"how often all is measured; default {ROUNDS}")
    parser.add_argument("--quick", action="store_true", help="one short round, to see that it works")
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write all samples, in seconds")
    given = parser.parse_args()
    if unknown := [word for word in given.only if word not in words]:
        parser.error(f"--only {unknown[0]}: words are {', '.join(words)}")
    if given.rounds < 1:
        parser.error(f"--rounds {given.rounds}: must be at least 1")
    return given


def _words(text: str) -> list[str]:
    return [word for word in text.split(",") if word]


def _work_dir() -> Path:
    """Where the peers, the data and the logs are; the same default as in setup_peers.sh."""
    path = Path(os.environ.get("BENCH_DIR") or Path(tempfile.gettempdir()) / "sandbox-agent-bench").resolve()
    path.mkdir(parents=True, exist_ok=True)
    return path


def _measure_apart(asked: Asked, results: Results) -> None:
    done = subprocess.run(command_for(asked), cwd=ROOT, stdout=subprocess.PIPE, check=False)
    if done.returncode != 0:
        part = "loop" if asked.loop else "overlap"
        results.trouble("loop_start", IN_PART[part][0], f"the loop part ended with exit code {done.returncode}")
        return
    seen = json.loads(done.stdout)
    results.seconds.update({(measure, name): samples for measure, name, samples in seen["seconds"]})
    results.troubles.update({(measure, name): text for measure, name, text in seen["troubles"]})
    results.gaps.update({(measure, name): text for measure, name, text in seen["gaps"]})
    results.absent.update(seen["absent"])


def _as_json(results: Results, lines: list[str]) -> dict[str, object]:
    samples: dict[str, dict[str, list[float]]] = {}
    for (measure, name), seconds in results.seconds.items():
        samples.setdefault(measure, {})[name] = seconds
    failed = [
        {"measure": measure, "contender": name, "text": text} for (measure, name), text in results.troubles.items()
    ]
    return {"machine": lines, "seconds": samples, "absent": results.absent, "failed": failed}


if __name__ == "__main__":
    sys.exit(main())
