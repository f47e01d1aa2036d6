"""What judging a shell command costs, from its text to the decision; beside it the parser alone, on the host."""

from __future__ import annotations

import random
import subprocess
import sys
import time
from collections.abc import Collection

from bench.plan import Results
from sandbox_agent.policy.load import load_policy
from sandbox_agent.policy.shell.analyse import forget
from sandbox_agent.policy.shell.parser import shfmt_binary
from sandbox_agent.types import Mode, PermissionRequest, Subject, Verdict

REPEATS = 20
COMMANDS = {
    "judge": "git log --oneline -{} | head -5",
    "judge250": "grep -n word src/a.py; " * 250 + "ls {}",
    "judge_deep": "$(" * 1000 + "ls {}" + ")" * 1000,
    "judge_parts": "ls; " * 15_000 + "ls {}",
}
"""By row, with a number in each, so that none is known already."""


def measure_judge(names: Collection[str], rounds: int, quick: bool, results: Results) -> None:
    """Fill in the rows of the judge."""
    policy = load_policy("default")
    binary = shfmt_binary()
    for number in range(rounds):
        print(f"bench: judge, round {number + 1} of {rounds}", file=sys.stderr, flush=True)
        for measure in random.sample(list(COMMANDS), len(COMMANDS)):
            for repeat in range(1 if quick or measure != "judge" else REPEATS):
                command = COMMANDS[measure].format(number * REPEATS + repeat)
                if "ours" in names:
                    request = PermissionRequest("Bash", Subject(command, command=command), input_sha256="")
                    forget()
                    started = time.perf_counter()
                    decision = policy.decide(request, Mode.DEFAULT)
                    results.add(measure, "ours", time.perf_counter() - started)
                    if (decision.verdict is Verdict.ALLOW) is not (measure in ("judge", "judge250")):
                        results.trouble(measure, "ours", decision.reason)
                if "host" in names and binary is not None and measure in ("judge", "judge250"):
                    started = time.perf_counter()
                    subprocess.run([binary, "--to-json"], input=command.encode(), stdout=subprocess.PIPE, check=True)
                    results.add(measure, "host", time.perf_counter() - started)
