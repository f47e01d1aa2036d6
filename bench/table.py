"""The results as one Markdown table, with the machine above it and the gates below."""

from __future__ import annotations

from collections.abc import Sequence

from bench.gates import gate_lines
from bench.plan import CONTENDERS, IN_PART, MEASURES, PARTS, Results, Spread

CELL = "median ms (p10 to p90)"


def render(results: Results, machine: Sequence[str], shown: Sequence[str]) -> str:
    """The whole report. `shown` are the contenders that get a column, absent ones too."""
    rows = [measure for measure in MEASURES if _has_cell(measure, results)]
    lines = [
        "# Bench",
        "",
        *(f"- {line}" for line in machine),
        "",
        f"Cells: {CELL}, and how many times ours that is. Measured in turn, shuffled, in one run.",
        "",
        "| | " + " | ".join(CONTENDERS[name] for name in shown) + " |",
        "|---" * (len(shown) + 1) + "|",
        *(_row(measure, shown, results) for measure in rows),
        "",
        *_remarks(results),
        "## Gates",
        "",
        *gate_lines(results),
    ]
    return "\n".join(lines)


def _has_cell(measure: str, results: Results) -> bool:
    return any(name == measure for name, _ in [*results.seconds, *results.troubles, *results.gaps])


def _row(measure: str, shown: Sequence[str], results: Results) -> str:
    own = results.median(measure, "ours")
    cells = [_cell(measure, name, own, results) for name in shown]
    return f"| {MEASURES[measure]} | " + " | ".join(cells) + " |"


def _cell(measure: str, name: str, own: float | None, results: Results) -> str:
    spread = results.spread(measure, name)
    if spread is not None:
        times = f" x{_digits(spread.median / own)}" if own and name != "ours" else ""
        return f"{_figures(spread)}{times}"
    if (measure, name) in results.troubles:
        return "failed"
    if (measure, name) in results.gaps:
        return "not possible"
    return "absent" if name in results.absent and measure in _rows_of(name) else ""


def _rows_of(name: str) -> list[str]:
    """The rows in which a contender would stand."""
    agents = [measure for measure in MEASURES if measure.startswith(("loop_", "turn_"))]
    commands = ["command", "read1", "read10", "grep10", "read10mb", "start", "stop"]
    return [*(agents if name in IN_PART["loop"] else ()), *(commands if name in IN_PART["sandbox"] else ())]


def _figures(spread: Spread) -> str:
    median, low, high = (_digits(value * 1000) for value in spread[:3])
    return f"{median} ({low} to {high})"


def _digits(value: float) -> str:
    """Two or three that mean something."""
    return f"{value:.0f}" if value >= 100 else f"{value:.1f}" if value >= 10 else f"{value:.2f}"


def _remarks(results: Results) -> list[str]:
    absent = [f"- absent: {CONTENDERS[name]}: {how}" for name, how in results.absent.items()]
    gaps = [f"- not possible: {_place(cell)}: {text}" for cell, text in results.gaps.items()]
    failed = [f"- failed: {_place(cell)}: {' '.join(text.split())}" for cell, text in results.troubles.items()]
    counts = [len(samples) for samples in results.seconds.values()]
    size = [f"- samples a cell: {min(counts)} to {max(counts)}"] if counts else []
    return [*absent, *gaps, *failed, *size, ""]


def _place(cell: tuple[str, str]) -> str:
    return f"{MEASURES[cell[0]]}, {CONTENDERS[cell[1]]}"


def parts_text() -> str:
    """What `--only` takes, for --help."""
    parts = [f"  {name:<13}{text}" for name, text in PARTS.items()]
    contenders = [f"  {name:<12}{title}" for name, title in CONTENDERS.items()]
    return "\n".join(["words for --only; parts:", *parts, "contenders:", *contenders])
