"""What is measured, on whom, and what became of it; the names of the columns, the rows and `--only`."""

from __future__ import annotations

import statistics
from dataclasses import dataclass, field
from typing import NamedTuple

PARTS = {
    "sandbox": "commands, files and sessions in the sandbox",
    "loop": "turns of an agent against a scripted API",
    "overlap": "what waits for what at the start, and --help",
    "checkpoints": "steps of a session: taking one, going back, forking",
    "judge": "shell commands from text to decision",
    "early": "reads that begin while the answer streams",
    "mcp": "calls to MCP servers in the container",
    "survival": "how soon a session works again after a bomb",
}

CONTENDERS = {
    "ours": "ours",
    "exec": "ours, exec per call",
    "late": "ours, reads after the answer",
    "host": "host, no sandbox",
    "docker": "docker CLI",
    "mini": "mini-swe-agent",
    "swerex": "SWE-ReX",
    "claude": "Claude Code",
    "null": "null agent",
    "git": "git worktree",
}
"""Column titles, by name. `ours` is what all others are divided by."""

IN_PART = {
    "sandbox": ("ours", "exec", "host", "docker", "mini", "swerex"),
    "loop": ("ours", "claude", "null"),
    "overlap": ("ours", "host"),
    "checkpoints": ("ours", "git"),
    "judge": ("ours", "host"),
    "early": ("ours", "late"),
    "mcp": ("ours",),
    "survival": ("ours",),
}

MEASURES = {
    "command": "one command (`true`)",
    "read1": "one read of 10 KB",
    "read10": "ten reads of 10 KB at once",
    "grep10": "ten `rg` over 2,000 files at once",
    "read10mb": "one read of 10 MB",
    "start": "session start",
    "stop": "session end",
    "loop_start": "agent: start to first request",
    "turn_read1": "agent: turn of one Read",
    "turn_read10": "agent: turn of ten Reads",
    "turn_bash1": "agent: turn of one Bash (`true`)",
    "turn_grep10": "agent: turn of ten Greps over 2,000 files",
    "turn_write1": "agent: turn of one Write",
    "request": "start to first request, engine and API prompt",
    "request_slow_engine": "start to first request, container start held back",
    "ready": "start to container ready, engine and API prompt",
    "ready_slow_api": "start to container ready, answer held back",
    "help": "`sandbox-agent --help` (host: `python -c pass`)",
    "checkpoint": "checkpoint, 20 of 5,000 files changed, 50 MB",
    "rollback": "rollback of that",
    "fork": "fork of that",
    "fork_tree": "fork of that, its tree standing; container start left out",
    "fork_none": "the same of a session that is no fork",
    "checkpoint_new": "checkpoint, 100,000 small new files",
    "checkpoint100k": "checkpoint, 20 of 100,000 files changed",
    "early_read10": "agent: turn of ten Reads, slow stream",
    "early_grep10": "agent: turn of ten Greps, slow stream",
    "mcp_call": "a call to an MCP server in the container, over its own time",
    "judge": "judging a short command (host: its parser alone)",
    "judge250": "judging 250 commands (host: their parser alone)",
    "judge_deep": "judging 1,000 substitutions in one another",
    "judge_parts": "judging 15,000 commands",
    "survive_fork": "next call after a fork bomb",
    "survive_fork_escaping": "after one that leaves its session",
    "survive_memory": "after one process took all memory, that included",
    "survive_memory_many": "after 300 processes took all memory",
    "survive_memory_files": "after files took all of /tmp, that included",
    "survive_disk": "after the disk was given away, that included",
    "survive_disk_written": "after 2 s of writing to the disk",
    "survive_inodes": "after 2 s of new files in the workspace",
    "survive_inodes_tmp": "after 2 s of new files in /tmp",
    "survive_flood": "after a flood of output",
    "survive_flood_both": "after one on both streams",
    "survive_kill_all": "after `kill -9 -1`",
    "survive_runner_killed": "after each process was killed, by number",
    "survive_runner_stopped": "after each process was stopped",
    "survive_stdout": "after garbage to every descriptor to be seen",
}
"""Row titles, by name."""


class Spread(NamedTuple):
    """Seconds of one cell."""

    median: float
    p10: float
    p90: float
    samples: int


@dataclass(slots=True)
class Results:
    """All that was seen, by measure and contender: seconds, what failed, and what this machine cannot do.

    `absent` are the contenders that are not installed, and how to have them.
    """

    seconds: dict[tuple[str, str], list[float]] = field(default_factory=dict)
    troubles: dict[tuple[str, str], str] = field(default_factory=dict)
    gaps: dict[tuple[str, str], str] = field(default_factory=dict)
    absent: dict[str, str] = field(default_factory=dict)

    def add(self, measure: str, contender: str, seconds: float) -> None:
        """One more sample."""
        self.seconds.setdefault((measure, contender), []).append(seconds)

    def trouble(self, measure: str, contender: str, text: str) -> None:
        """A measurement that failed; the first one of a cell is kept."""
        self.troubles.setdefault((measure, contender), text)

    def spread(self, measure: str, contender: str) -> Spread | None:
        """Median, p10, p90 and count of one cell; None where there is none."""
        samples = self.seconds.get((measure, contender))
        if not samples:
            return None
        if len(samples) == 1:
            return Spread(samples[0], samples[0], samples[0], 1)
        tenths = statistics.quantiles(samples, n=10, method="inclusive")
        return Spread(statistics.median(samples), tenths[0], tenths[-1], len(samples))

    def median(self, measure: str, contender: str) -> float | None:
        """The median alone."""
        spread = self.spread(measure, contender)
        return spread.median if spread is not None else None


@dataclass(frozen=True, slots=True)
class Wanted:
    """The selection of `--only`: parts are whole, a contender counts in every part it is in. Empty means all."""

    words: frozenset[str] = frozenset()

    def of_part(self, part: str) -> tuple[str, ...]:
        """The contenders to measure in a part, none if it is left out."""
        if not self.words or part in self.words:
            return IN_PART[part]
        if part == "overlap":  # its columns are no contenders of their own
            return ()
        return tuple(name for name in IN_PART[part] if name in self.words)
