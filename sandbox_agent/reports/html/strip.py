"""The strip at the top: every call of every agent in the time it ran, one lane an agent, each leading to its place."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from sandbox_agent.frontends import words
from sandbox_agent.reports.html.dom import Markup, el, join, shortened
from sandbox_agent.reports.parts import Call

WIDTH = 1000
LANE = 14
MAX_LANES = 12
MAX_BARS = 1_000
"""Of those that went well, and of the others: a strip shows no more anyway."""

LONGEST_PAUSE_S = 30.0
"""A longer time in which nothing happened is drawn as long as this: a chat rests over night."""


def strip(calls: Sequence[Call]) -> Markup | None:
    """None where nothing ran."""
    spans = [(_start(call), _end(call), call) for call in calls]
    if not spans:
        return None
    place = _Axis(sorted({moment for start, end, _ in spans for moment in (start, end)}))
    lanes = {agent: number for number, agent in enumerate(dict.fromkeys(call.agent_id for call in calls))}
    count = min(len(lanes), MAX_LANES)
    bars = []
    every = 1 + sum(call.outcome == "ok" for call in calls) // MAX_BARS
    drawn = [*[span for span in spans if span[2].outcome == "ok"][::every]]
    drawn += [span for span in spans if span[2].outcome != "ok"][-MAX_BARS:]  # what went wrong lies on top
    for start, end, call in drawn:
        lane = min(lanes[call.agent_id], MAX_LANES - 1)
        x, width = place.at(start), max(2.0, place.at(end) - place.at(start))
        bar = el(
            "rect",
            el("title", f"{call.tool} {shortened(call.about, 80)}: {call.outcome}"),
            x=f"{min(x, WIDTH - 2):.1f}",
            y=str(lane * LANE + 2),
            width=f"{width:.1f}",
            height=str(LANE - 4),
            cls=call.outcome,
        )
        bars.append(el("a", bar, href=f"#e{call.number}", tabindex="-1"))
    label = f"{words.count(len(calls), 'call')} of {words.count(len(lanes), 'agent')} over time"
    size = {"viewBox": f"0 0 {WIDTH} {count * LANE}", "preserveAspectRatio": "none", "height": str(count * LANE)}
    return el("svg", join(bars), cls="strip", role="img", aria_label=label, **size)


def _start(call: Call) -> float:
    return call.started_unix_s or call.time_unix_s


def _end(call: Call) -> float:
    took = call.finished.duration_s if call.finished is not None else 0.0
    return _start(call) + max(0.0, took)


class _Axis:
    """Moments to places, with long pauses drawn short."""

    def __init__(self, moments: Sequence[float]) -> None:
        self._at = {moments[0]: 0.0}
        place = 0.0
        for before, moment in pairwise(moments):
            place += min(moment - before, LONGEST_PAUSE_S)
            self._at[moment] = place
        self._whole = place or 1.0

    def at(self, moment: float) -> float:
        return self._at[moment] / self._whole * WIDTH
