"""`sandbox-agent sessions show ID --costs`: what each request and each call used, and all together."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence

import click

from sandbox_agent.frontends import words
from sandbox_agent.frontends.sanitise import sanitise
from sandbox_agent.reports import costs
from sandbox_agent.reports.story import Story
from sandbox_agent.reports.telling import tell
from sandbox_agent.tape import Entry

_ABOUT_CHARS = 40
_REQUESTS = ("request", "agent", "read", "from cache", "written", "USD", "took")
_CALLS = ("call", "about", "took", "CPU", "memory", "input", "output", "sent", "received")


def show(entries: Iterable[Entry], *, as_json: bool) -> None:
    """Print them: two tables and a line, or one JSON object a line, `kind` "request", "call" and "total"."""
    story = tell(entries)
    if as_json:
        rows = [*(one.as_json() for one in costs.requests(story)), *(one.as_json() for one in costs.calls(story))]
        for row in (*rows, costs.totals(story).as_json()):
            click.echo(json.dumps(row))
        return
    asked = [(f"{one.turn}", one.agent_id, *one.cells()) for one in costs.requests(story)]
    _table(_REQUESTS, asked, left=2)
    made = [(one.tool, words.shorten(one.summary, _ABOUT_CHARS), *one.cells()) for one in costs.calls(story)]
    _table(_CALLS, made, left=2)
    click.echo(f"in all: {_in_all(story)}")


def _in_all(story: Story) -> str:
    all_ = costs.totals(story)
    network = all_.sent_bytes is not None and all_.received_bytes is not None
    parts = [
        words.tokens(all_.usage) if all_.usage.total_tokens else "",
        words.cost(all_.cost_usd, all_.usage),
        f"{words.duration(all_.cpu_s)} CPU" if all_.cpu_s is not None else "",
        f"peak memory {words.size(all_.max_rss_bytes)}" if all_.max_rss_bytes is not None else "",
        f"{words.size(all_.sent_bytes or 0)} sent, {words.size(all_.received_bytes or 0)} received" if network else "",
    ]
    return ", ".join(filter(None, parts)) or "nothing is known"


def _table(heads: Sequence[str], rows: Sequence[Sequence[str]], *, left: int) -> None:
    """Columns as wide as what is in them; the first `left` begin at their left."""
    if not rows:
        return
    shown = [tuple(sanitise(cell) for cell in row) for row in (heads, *rows)]
    widths = [max(len(row[column]) for row in shown) for column in range(len(heads))]
    for row in shown:
        cells = [
            cell.ljust(width) if at < left else cell.rjust(width)
            for at, (cell, width) in enumerate(zip(row, widths, strict=True))
        ]
        click.echo("  ".join(cells).rstrip())
    click.echo()
