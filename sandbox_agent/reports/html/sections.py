"""What stands around the time line: the head of the page, files, findings, network, costs, the record."""

from __future__ import annotations

import time
from collections.abc import Sequence
from itertools import islice

from sandbox_agent.events.checks import CheckFinished
from sandbox_agent.frontends import diffs, words
from sandbox_agent.reports import costs
from sandbox_agent.reports.findings import Finding
from sandbox_agent.reports.html.dom import Markup, badge, block, counted, el, facts, join, shortened, table
from sandbox_agent.reports.html.items import diff
from sandbox_agent.reports.html.strip import strip
from sandbox_agent.reports.parts import Call, Item
from sandbox_agent.reports.story import Story

MAX_ROWS = 400
_STATUS = {"done": "good", "unfinished": "warn", "limit": "warn", "interrupted": "warn"}


def head(story: Story) -> Markup:
    """What the session was, in a screenful."""
    title = story.tasks[0].text if story.tasks else "A session without a task"
    status = story.status.replace("_", " ")
    return el(
        "header",
        el("div", badge(status, _STATUS.get(story.status, "bad")), el("code", story.session_id), cls="top"),
        el("h1", shortened(title.strip(), 600)),
        facts(_facts(story)),
        strip(story.own_calls),
        _last_answer(story),
    )


def _facts(story: Story) -> Sequence[tuple[str, str | None]]:
    started, calls = story.started, story.own_calls
    denied = sum(call.outcome == "denied" for call in calls)
    failed = sum(call.outcome == "failed" for call in calls)
    totals = costs.totals(story)
    asked = sum(call.asked is not None for call in calls)
    counts = [
        f"{denied} denied" if denied else "",
        f"{failed} failed" if failed else "",
        f"{asked} asked" if asked else "",
    ]
    return (
        ("started", time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime(story.first_unix_s)) if story.entries else None),
        ("took", words.duration(sum(task.duration_s for task in story.own_tasks))),
        ("model", started.model if started is not None else None),
        ("policy", f"{started.policy}, {started.mode}" if started is not None else None),
        ("folder", f"{started.workspace} ({started.workspace_mode})" if started is not None else None),
        ("calls", ", ".join(filter(None, (f"{len(calls):,}", *counts)))),
        ("tokens", words.tokens(totals.usage) if totals.usage.total_tokens else None),
        ("cost", words.cost(totals.cost_usd, totals.usage)),
        ("CPU of calls", words.duration(totals.cpu_s) if totals.cpu_s is not None else None),
        ("peak memory", words.size(totals.max_rss_bytes) if totals.max_rss_bytes is not None else None),
        (
            "fork of",
            f"{started.forked_from} at step {started.forked_step}" if started and started.forked_from else None,
        ),
        ("gone on with", counted(len(story.starts) - 1, "time") if len(story.starts) > 1 else None),
    )


def _last_answer(story: Story) -> Markup | None:
    ends = [task.finished for task in story.tasks if task.finished is not None]
    if not ends:
        return None
    said = el("div", shortened(ends[-1].text, 6_000), cls="prose answer") if ends[-1].text else None
    return join((el("p", ends[-1].error, cls="bad") if ends[-1].error else None, said))


def files(story: Story, max_chars: int) -> Markup | None:
    """Every file that the last review found changed, with its diff."""
    if not story.changes:
        return None
    there = set(story.applied.applied) if story.applied is not None else set()
    rows = (_file(one, str(one.get("path")) in there, max_chars) for one in islice(story.changes, MAX_ROWS))
    return el("div", join(rows), _left_out(len(story.changes)))


def _file(change: dict[str, object], applied: bool, max_chars: int) -> Markup:
    text = str(change.get("diff") or "")
    added, removed = diffs.counts(text) if text else (0, 0)
    danger = str(change["danger"]) if change.get("danger") else ""
    top = el(
        "summary",
        el("span", str(change.get("kind")), cls="who"),
        el("code", str(change.get("path")), cls="about"),
        badge("look at it", "bad") if danger else None,
        badge("applied", "good") if applied else badge("kept", "quiet"),
        el("span", f"+{added} -{removed}" if text else "", cls="took"),
    )
    note = join(
        el("p", line, cls=cls) for line, cls in ((danger, "bad"), (str(change.get("note") or ""), "quiet")) if line
    )
    shown = diff(text, max_chars) if text else el("p", "No text to show.", cls="quiet")
    return el("details", top, el("div", note, shown, cls="body"), cls="item file", data_k="file")


def found(findings: Sequence[Finding], max_chars: int) -> Markup | None:
    """What the model reported with ReportFindings."""
    if not findings:
        return None
    return el("div", join(_finding(one, max_chars) for one in findings[:MAX_ROWS]), _left_out(len(findings)))


def _finding(one: Finding, max_chars: int) -> Markup:
    tone = {"error": "bad", "warning": "warn"}.get(one.level, "quiet")
    place = one.file if one.line is None else f"{one.file}:{one.line}"
    top = el("summary", badge(one.severity or one.level, tone), el("code", place), el("span", one.summary, cls="about"))
    body = (
        block(one.failure_scenario, max_chars, cls="prose"),
        facts((("category", one.category), ("verdict", one.verdict))),
    )
    return el("details", top, el("div", *body, cls="body"), cls="item finding", data_k="finding", open=True)


def network(story: Story) -> Markup | None:
    """The hosts that were asked for."""
    hosts = story.hosts.as_json()
    if not hosts:
        return None
    names = list(dict.fromkeys(key for host in hosts for key in host))
    rows = ([_cell(host.get(name)) for name in names] for host in islice(hosts, MAX_ROWS))
    return table([name.replace("_", " ") for name in names], rows)


def _cell(value: object) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{key}: {one}" for key, one in value.items())
    if isinstance(value, list | tuple):
        return ", ".join(map(_cell, value))
    return "" if value is None else f"{value:,}" if isinstance(value, int) else str(value)


def servers(story: Story) -> Markup | None:
    """MCP servers, as they were last."""
    if not story.servers:
        return None
    rows = (
        (
            one.server,
            one.place,
            one.shown,
            badge(one.state, "bad" if one.state == "failed" else "good"),
            one.error or ", ".join(one.tools),
        )
        for one in story.servers.values()
    )
    return table(("server", "where", "program or host", "state", "tools"), rows)


def cost(story: Story) -> Markup | None:
    """What each request and each call used."""
    mine = [one for one in story.requests if not one.inherited]
    rows = [
        (link(item, str(one.turn)), one.agent_id, one.model, *one.cells())
        for item, one in islice(zip(mine, costs.requests(story), strict=True), MAX_ROWS)
    ]
    heads = ("request", "agent", "model", "#read", "#from cache", "#written", "#USD", "#took")
    asked = el("section", el("h3", "Requests"), table(heads, rows), _left_out(len(mine))) if rows else None
    calls = story.own_calls
    lines = [
        (link(call, call.tool), shortened(call.about, 120), *one.cells())
        for call, one in islice(zip(calls, costs.calls(story), strict=True), MAX_ROWS)
    ]
    of_calls = ("call", "about", "#took", "#CPU", "#peak memory", "#input", "#output", "#sent", "#received")
    made = el("section", el("h3", "Calls"), table(of_calls, lines), _left_out(len(calls))) if lines else None
    return join((asked, made)) or None


def _left_out(number: int) -> Markup | None:
    return el("p", f"The first {MAX_ROWS} of {number:,}.", cls="quiet") if number > MAX_ROWS else None


def link(item: Item, text: str) -> Markup:
    """To an item of the time line."""
    return el("a", text, href=f"#e{item.number}")


def checks(story: Story, max_chars: int) -> Markup | None:
    """The person's own checks, and what they said."""
    return join(_check(one, max_chars) for one in story.checks) or None


def _check(one: CheckFinished, max_chars: int) -> Markup:
    top = el(
        "summary",
        badge("passed" if one.passed else "failed", "good" if one.passed else "bad"),
        el("code", one.command, cls="about"),
        el("span", words.duration(one.duration_s), cls="took"),
    )
    said = block(one.output, max_chars) if one.output else None
    before = ("as before the run", ", ".join(one.from_base[:50]))
    body = el("div", el("p", one.outcome), said, facts((before,)), cls="body")
    return el("details", top, body, cls="item file", data_k="check", open=not one.passed)


def contradictions(calls: Sequence[Call]) -> Markup | None:
    """Calls that did other than they declared."""
    accused = [call for call in calls if call.effects is not None and call.effects.contradictions]
    if not accused:
        return None
    rows = (el("li", link(call, call.tool), " ", el("code", shortened(call.about, 120))) for call in accused[:MAX_ROWS])
    return el("div", el("ul", join(rows)), _left_out(len(accused)))


def record(story: Story) -> Markup:
    """Whether the record is whole, and how to check it."""
    damaged = counted(story.damaged_lines, "damaged line")
    state = badge("the hash chain holds", "good") if story.chain_ok else badge("the hash chain is broken", "bad")
    return el(
        "div",
        el("p", state, " ", badge(damaged, "bad") if story.damaged_lines else None),
        facts((("entries", f"{story.entries:,}"), ("head", el("code", story.head)))),
        el(
            "p",
            "This page is made of the record. To verify it: ",
            el("code", f"sandbox-agent sessions audit {story.session_id}"),
        ),
    )
