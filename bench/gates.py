"""What must hold, as ratios of medians of one run; absolute only where a person feels it."""

from __future__ import annotations

from typing import NamedTuple

from bench.overlap import HOLD_S
from bench.plan import CONTENDERS, MEASURES, Results
from bench.survival import ATTACKS


class Ratio(NamedTuple):
    """`(measure, contender)` over another one; at most `limit`."""

    text: str
    above: tuple[str, str]
    below: tuple[str, str]
    limit: float


RATIOS = (
    Ratio("session start, to a bare `docker run`", ("start", "ours"), ("start", "docker"), 1.5),
    Ratio("one command, to a host subprocess", ("command", "ours"), ("command", "host"), 2.0),
    Ratio("ten reads at once, to one read", ("read10", "ours"), ("read1", "ours"), 5.0),
    Ratio("ten reads at once, to SWE-ReX's", ("read10", "ours"), ("read10", "swerex"), 0.25),
    Ratio("ten Greps of a slow answer, to the same after it", ("early_grep10", "ours"), ("early_grep10", "late"), 0.8),
    Ratio("turn of one Read, to Claude Code's", ("turn_read1", "ours"), ("turn_read1", "claude"), 0.25),
)
DELAYS = (
    ("the first request does not wait for the container", "request_slow_engine", "request"),
    ("the container does not wait for the model", "ready_slow_api", "ready"),
)
HELP_LIMIT_S = 0.2
SURVIVAL_S = 5.0
LIMITS = (
    ("a checkpoint of 20 changed files", "checkpoint", 0.1),
    ("a rollback of that", "rollback", 0.15),
    ("a fork of that", "fork", 0.05),
    ("a checkpoint among 100,000 files", "checkpoint100k", 1.0),
    ("a call to an MCP server in the container, over its own time", "mcp_call", 0.005),
    ("judging a short command", "judge", 0.01),
    ("judging what is nested too deep", "judge_deep", 2.0),
    ("judging what has too many parts", "judge_parts", 2.0),
    *((f"the next call works, {MEASURES[name].removeprefix('next call ')}", name, SURVIVAL_S) for name in ATTACKS),
)
"""On a machine that does nothing else."""


def gate_lines(results: Results) -> list[str]:
    """One Markdown list item a gate: ok, MISSED, or why it was not measured."""
    return [
        *(_ratio_line(gate, results) for gate in RATIOS),
        *(_delay_line(text, held, prompt, results) for text, held, prompt in DELAYS),
        _help_line(results),
        *(_limit_line(text, measure, limit_s, results) for text, measure, limit_s in LIMITS),
    ]


def _ratio_line(gate: Ratio, results: Results) -> str:
    above, below = results.median(*gate.above), results.median(*gate.below)
    if above is None or below is None:
        return _unmeasured(gate.text, gate.above if above is None else gate.below, results)
    ratio = above / below
    return _line(gate.text, ratio <= gate.limit, f"{ratio:.2f}, at most {gate.limit:g}")


def _delay_line(text: str, held: str, prompt: str, results: Results) -> str:
    with_hold, without = results.median(held, "ours"), results.median(prompt, "ours")
    if with_hold is None or without is None:
        return _unmeasured(text, (held if with_hold is None else prompt, "ours"), results)
    share = (with_hold - without) / HOLD_S
    # Foreign load moves a start by tenths of a second; a wait would be the whole of what was held back.
    return _line(text, share < 0.5, f"{with_hold - without:+.2f} s of the {HOLD_S:g} s that the other was held back")


def _help_line(results: Results) -> str:
    text, median = "`--help`", results.median("help", "ours")
    if median is None:
        return _unmeasured(text, ("help", "ours"), results)
    return _line(text, median < HELP_LIMIT_S, f"{median * 1000:.0f} ms, under {HELP_LIMIT_S * 1000:.0f} ms")


def _limit_line(text: str, measure: str, limit_s: float, results: Results) -> str:
    median = results.median(measure, "ours")
    if median is None:
        return _unmeasured(text, (measure, "ours"), results)
    return _line(text, median <= limit_s, f"{median * 1000:.0f} ms, at most {limit_s * 1000:.0f} ms")


def _line(text: str, good: bool, figure: str) -> str:
    return f"- {'ok' if good else 'MISSED'}: {text}: {figure}"


def _unmeasured(text: str, cell: tuple[str, str], results: Results) -> str:
    measure, contender = cell
    why = (
        results.troubles.get(cell) or results.gaps.get(cell) or results.absent.get(contender) or "left out of this run"
    )
    return f"- not measured: {text}: {MEASURES[measure]}, {CONTENDERS[contender]}: {why}"
