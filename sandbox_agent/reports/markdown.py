"""Markdown for the summary page of a pipeline: a screenful, whatever the session was.

All that a session, its repository or its model wrote stands in code spans and fenced blocks, where neither GitHub nor
GitLab looks for HTML, links, pictures, mentions, references to issues or commands. It is longer in no case than a
comment may be on either.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence

from sandbox_agent.events.checks import CheckFinished
from sandbox_agent.frontends import diffs, words
from sandbox_agent.frontends.sanitise import sanitise
from sandbox_agent.hostnames import authority
from sandbox_agent.reports import costs
from sandbox_agent.reports.findings import Finding, find
from sandbox_agent.reports.html.dom import shortened
from sandbox_agent.reports.parts import Call
from sandbox_agent.reports.story import Story
from sandbox_agent.types import JsonObject

MAX_CHARS = 60_000
"""GitHub takes 65,536 in a comment, GitLab and GitHub's summaries about a million."""

_MOST = 25
"""Lines in one list."""

_SPAN_CHARS = 240
_ANSWER_CHARS = 8_000
_BACKTICKS = re.compile(r"`+")


def render(story: Story) -> str:
    """The summary, for a session in any state."""
    said = "\n\n".join(filter(None, _parts(story)))
    assert len(said) < MAX_CHARS, "the parts are bounded"
    return said + "\n"


def span(text: str) -> str:
    """Text as one line of code, in which nothing is markup."""
    line = sanitise(shortened(" ".join(text.split()), _SPAN_CHARS).replace("\n", " ")) or " "
    fence = "`" * (1 + max((len(run) for run in _BACKTICKS.findall(line)), default=0))
    return f"{fence} {line} {fence}" if "`" in line or line != line.strip() else f"{fence}{line}{fence}"


def fenced(text: str, max_chars: int = _ANSWER_CHARS) -> str:
    """Text as a block of code, in which nothing is markup."""
    shown = sanitise(shortened(text.strip("\n"), max_chars)[: 2 * max_chars], newlines=True, tabs=True)
    fence = "`" * max(3, 1 + max((len(run) for run in _BACKTICKS.findall(shown)), default=0))
    return f"{fence}text\n{shown[: 2 * max_chars]}\n{fence}"


def _parts(story: Story) -> Iterator[str]:
    yield f"### sandbox-agent: {_word(story.status)}"
    tasks = story.own_tasks
    if tasks:
        yield "Task: " + span(tasks[0].text) + (f" and {len(tasks) - 1:,} more" if len(tasks) > 1 else "")
    error = tasks[-1].finished.error if tasks and tasks[-1].finished is not None else None
    if error:
        yield "Error: " + span(error)
    yield "\n".join(f"- {name}: {value}" for name, value in _facts(story) if value)
    yield _list("Checks", map(_check, story.checks))
    yield _list("Findings", map(_found, find(story)))
    calls = story.own_calls
    yield _list(
        "Denied", (f"{_call(one)}: {span(one.decided.reason)}" for one in calls if _denied(one) and one.decided)
    )
    accused = [one for one in calls if one.effects is not None and one.effects.contradictions]
    yield _list("Did other than declared", (_call(one) for one in accused))
    yield _list("Files changed", map(_file, story.changes))
    yield _list("Hosts asked for", map(_host, story.hosts.as_json()))
    answer = tasks[-1].finished.text if tasks and tasks[-1].finished is not None else ""
    if answer.strip():
        yield f"<details><summary>The model's answer</summary>\n\n{fenced(answer)}\n\n</details>"


def _facts(story: Story) -> Sequence[tuple[str, str]]:
    calls, totals = story.own_calls, costs.totals(story)
    counts = {name: sum(call.outcome == name for call in calls) for name in ("denied", "failed", "unfinished")}
    made = ", ".join((f"{len(calls):,}", *(f"{number:,} {name}" for name, number in counts.items() if number)))
    spent = [words.tokens(totals.usage) if totals.usage.total_tokens else "", words.cost(totals.cost_usd, totals.usage)]
    record = "" if story.chain_ok and not story.damaged_lines else "damaged: see `sandbox-agent sessions audit`"
    return (
        ("session", span(story.session_id)),
        ("model", span(story.started.model) if story.started is not None else ""),
        ("policy", f"{span(story.started.policy)}, {span(story.started.mode)}" if story.started is not None else ""),
        ("took", words.duration(sum(task.duration_s for task in story.own_tasks))),
        ("used", ", ".join(filter(None, spent))),
        ("calls", made),
        ("CPU of calls", words.duration(totals.cpu_s) if totals.cpu_s is not None else ""),
        ("peak memory", words.size(totals.max_rss_bytes) if totals.max_rss_bytes is not None else ""),
        ("record", record),
    )


def _list(title: str, lines: Iterable[str]) -> str:
    shown = list(lines)
    more = [f"and {len(shown) - _MOST:,} more"] if len(shown) > _MOST else []
    return f"**{title}**\n\n" + "\n".join(f"- {line}" for line in (*shown[:_MOST], *more)) if shown else ""


def _word(status: str) -> str:
    """A status is one of ours; whatever else stands in a record is shown as code."""
    return status.replace("_", " ") if re.fullmatch(r"[a-z_]{1,30}", status) else span(status)


def _check(one: CheckFinished) -> str:
    return f"{'passed' if one.passed else '**failed**'} {span(one.command)} ({words.duration(one.duration_s)})"


def _found(one: Finding) -> str:
    place = one.file if one.line is None else f"{one.file}:{one.line}"
    return f"{span(one.severity or 'unrated')} {span(place)}: {span(one.summary)}"


def _denied(call: Call) -> bool:
    return call.outcome == "denied"


def _call(call: Call) -> str:
    return span(f"{call.tool} {call.about}")


def _file(change: JsonObject) -> str:
    added, removed = diffs.counts(change["diff"]) if change.get("diff") else (0, 0)
    counts = f" +{added:,} -{removed:,}" if added or removed else ""
    danger = f": look at it, {span(str(change['danger']))}" if change.get("danger") else ""
    return f"{span(str(change.get('path')))} {_word(str(change.get('kind')))}{counts}{danger}"


def _host(host: JsonObject) -> str:
    name = span(authority(str(host["host"]), int(host["port"]))) if host["host"] else "no request for a host"
    said = [
        f"{host['allowed']:,} let pass" if host["allowed"] else "",
        f"{host['refused']:,} refused" if host["refused"] else "",
    ]
    return f"{name}: {', '.join(filter(None, said))}"
