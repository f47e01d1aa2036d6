"""The survival part: one session of the policy `default` through every kind of bomb, and how soon it works again.

Each attack is a Bash call of a scripted model in mode bypassPermissions, the next call is `echo`. The time is from the
start of the attack until that one has answered rightly, less what the attack was given to go on for. So it holds the
killing and clearing, the checkpoint of what the attack left, and, for what ends by itself, its own work as well.
"""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
from collections.abc import Collection
from pathlib import Path
from typing import NamedTuple

import anyio

from bench.plan import Results
from sandbox_agent.config import sessions_dir
from sandbox_agent.engine.discarding import discard
from sandbox_agent.engine.past import EVENTS_FILE
from sandbox_agent.events import ToolFinished, ToolStarted
from sandbox_agent.frontends.outcome import plain_text
from sandbox_agent.tape import read_tape

ROUND_S = 600.0
NEXT = "echo the next call works"
TIDY = "find /workspace /tmp -mindepth 1 -delete; ls /workspace"


class Attack(NamedTuple):
    """A command, and the seconds that it is given before it is ended; 0 where it ends by itself."""

    command: str
    given_s: float = 0.0


_PYTHON = "python3 - <<'END'\n{}\nEND"
_MANY_FILES = """
import os
number = 0
while True:
    try:
        open(f"{place}/f{{number}}", "w").close()
    except OSError:
        break
    number += 1
"""
_ESCAPING = """
import os
while True:
    try:
        if os.fork() == 0:
            os.setsid()
    except OSError:
        pass
"""
_TAKING = """
import mmap
held = []
while True:
    held.append(mmap.mmap(-1, 64 << 20, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | mmap.MAP_POPULATE))
"""
_WRITING = """
import os
for fd in [f"/proc/{pid}/fd/{n}" for pid in os.listdir("/proc") if pid.isdigit() for n in range(64)] * 3:
    try:
        with open(fd, "wb", 0) as file:
            file.write(os.urandom(4096))
    except OSError:
        pass
"""
ATTACKS = {
    "survive_fork": Attack("bomb() { bomb | bomb & }; bomb; sleep 60", 1.0),
    "survive_fork_escaping": Attack(_PYTHON.format(_ESCAPING), 1.0),
    "survive_memory": Attack(_PYTHON.format(_TAKING)),
    "survive_memory_many": Attack(
        "for i in $(seq 300); do bash -c 'x=$(printf %20000000s); sleep 60' & done; wait", 5.0
    ),
    "survive_memory_files": Attack("for i in $(seq 100); do head -c 64M /dev/zero > /tmp/f$i || break; done"),
    "survive_disk": Attack("for i in $(seq 100); do fallocate -l 256M f$i || break; done; head -c 10M /dev/zero > g"),
    "survive_disk_written": Attack("cat /dev/zero > fill", 2.0),
    "survive_inodes": Attack(_PYTHON.format(_MANY_FILES.format(place="/workspace")), 2.0),
    "survive_inodes_tmp": Attack(_PYTHON.format(_MANY_FILES.format(place="/tmp")), 2.0),
    "survive_flood": Attack("yes", 1.0),
    "survive_flood_both": Attack("yes & yes >&2", 1.0),
    "survive_kill_all": Attack("kill -9 -1"),
    "survive_runner_killed": Attack("for p in /proc/[0-9]*; do p=${p#/proc/}; [ $p = $$ ] || kill -9 $p; done"),
    "survive_runner_stopped": Attack(
        "for p in /proc/[0-9]*; do p=${p#/proc/}; [ $p = $$ ] || kill -STOP $p; done", 1.0
    ),
    "survive_stdout": Attack(_PYTHON.format(_WRITING)),
}
"""By row. All stay within the limits of the session: its own disk, its own memory."""


async def measure_survival(names: Collection[str], rounds: int, quick: bool, work: Path, results: Results) -> None:
    """Fill in the rows of survival."""
    if "ours" not in names:
        return
    os.environ["XDG_STATE_HOME"] = str(work / "survival-state")
    folder = work / "survival"
    folder.mkdir(exist_ok=True)
    (folder / "file").write_text("one\n")
    for number in range(rounds):
        print(f"bench: survival, round {number + 1} of {rounds}", file=sys.stderr, flush=True)
        order = random.sample(list(ATTACKS), len(ATTACKS))
        await anyio.to_thread.run_sync(_round, order[:2] if quick else order, folder, work, results)


def _round(order: list[str], folder: Path, work: Path, results: Results) -> None:
    turns: list[object] = [_turn(NEXT)]
    for name in order:
        attack = ATTACKS[name]
        turns += [_turn(attack.command, attack.given_s or 60.0), _turn(NEXT), _turn(TIDY)]
    script = work / "survival.json"
    script.write_text(json.dumps({"turns": [*turns, {"text": "All done."}]}))
    arguments = ["run", "-p", "--output", "json", "--policy", "default", "--mode", "bypassPermissions"]
    more = ["--apply", "never", "--model", f"script:{script}", "-w", str(folder), "survive"]
    command = [sys.executable, "-c", "from sandbox_agent.cli import main; main()", *arguments, *more]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=ROUND_S, check=False)
        document = json.loads(done.stdout)
    except (subprocess.TimeoutExpired, ValueError) as exc:
        results.trouble(order[0], "ours", f"the run did not end as it should: {exc}")
        return
    state = sessions_dir() / document["session_id"]
    try:
        _take(order, state / EVENTS_FILE, results)
    finally:
        anyio.from_thread.run(discard, state)


def _take(order: list[str], record: Path, results: Results) -> None:
    entries = read_tape(record).entries
    started = [entry.time_unix_s for entry in entries if isinstance(entry.event, ToolStarted)]
    ended = [(entry.time_unix_s, entry.event) for entry in entries if isinstance(entry.event, ToolFinished)]
    for number, name in enumerate(order):
        at = 1 + 3 * number
        if len(ended) <= at + 1:
            results.trouble(name, "ours", "the session ended")
            return
        when_s, event = ended[at + 1]
        text = plain_text(event.content)
        if not text.startswith("the next call works\n"):
            results.trouble(name, "ours", f"the next call: {text[:200]}")
        results.add(name, "ours", when_s - started[at] - ATTACKS[name].given_s)


def _turn(command: str, limit_s: float = 60.0) -> object:
    call = {"name": "Bash", "input": {"command": command, "timeout": int(limit_s * 1000)}}
    return {"text": "I go on.", "tools": [call]}
