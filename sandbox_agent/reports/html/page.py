"""The whole page: sections, the head with what it may load (nothing), and a size that it keeps to."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterator
from functools import cache
from itertools import repeat
from pathlib import Path
from string import Template

from sandbox_agent.reports import findings
from sandbox_agent.reports.html import sections
from sandbox_agent.reports.html.dom import Markup, el, escaped, join, shortened
from sandbox_agent.reports.html.items import Scene, keys, timeline
from sandbox_agent.reports.parts import Said
from sandbox_agent.reports.story import Story, text_of

MAX_BYTES = 3_000_000
"""A page that a browser opens in a moment, also on a phone, and that a pipeline keeps as it is."""

_TEXT_CHARS = (40_000, 10_000, 2_500, 600, 150)
"""How much of one text is shown: the first with which the page is small enough."""

_ROOM = Path(__file__).parent
_FILTERS = (
    ("all", "All"),
    ("problem", "Problems"),
    ("denied", "Denied"),
    ("asked", "Asked"),
    ("changed", "Changes"),
    ("network", "Network"),
    ("agent", "Sub-agents"),
    ("background", "Background"),
    ("message", "Messages"),
)


def render(story: Story) -> str:
    """The page as HTML, at most `MAX_BYTES` long.

    Long texts are shortened where it would be longer, and at last the oldest entries are left out; the page says so.
    """
    lengths = [*_lengths(story)]
    shown, most = "", max(len(story.items), *(len(work.items) for work in story.works), 1)
    for max_chars in _TEXT_CHARS:
        # A page that is sure to be too long is not made: each takes a second or more of such a session.
        if sum(min(length, max_chars) for length in lengths) > MAX_BYTES and max_chars != _TEXT_CHARS[-1]:
            continue
        shown = _page(story, max_chars, most)
        if _fits(shown):
            return shown
    while not _fits(shown) and most > 1:
        most = max(1, most * MAX_BYTES // len(shown) * 9 // 10)
        shown = _page(story, _TEXT_CHARS[-1], most)
    return shown


def _lengths(story: Story) -> Iterator[int]:
    """Of the texts that are shortened, most of them; and what stands around each call."""
    for call in story.calls:
        yield from (len(str(value)) for value in call.input.values())
        yield len(text_of(call.finished.content)) if call.finished is not None else 0
        yield from repeat(150, 8)  # markup is never shortened, and no call has less of it
    yield from (len(item.text) for item in story.items if isinstance(item, Said))
    yield from (len(str(change.get("diff") or "")) for change in story.changes)


def _fits(page: str) -> bool:
    return len(page) <= MAX_BYTES and len(page.encode()) <= MAX_BYTES


def _page(story: Story, max_chars: int, most: int) -> str:
    named = [(name, title, content) for name, title, content in _sections(story, max_chars, most) if content]
    links = join(el("a", title, href=f"#{name}") for name, title, _ in named)
    shown = join(el("section", el("h2", title), content, id=name) for name, title, content in named)
    title = " ".join(story.tasks[0].text.split()) if story.tasks else story.session_id
    style, script = _file("page.css"), _file("page.js")
    return Template(_file("page.html")).substitute(
        title=escaped(f"{shortened(title, 90)} - session {story.session_id}".replace("\n", " ")),
        style=style,
        style_sha256=_sha256(style),
        script=script,
        script_sha256=_sha256(script),
        head=sections.head(story),
        links=links,
        filters=_filters(story),
        sections=shown,
    )


def _sections(story: Story, max_chars: int, most: int) -> list[tuple[str, str, Markup | None]]:
    found = findings.find(story)
    return [
        ("findings", f"Findings ({len(found)})", sections.found(found, max_chars)),
        ("checks", "Checks", sections.checks(story, max_chars)),
        ("contradictions", "Did other than declared", sections.contradictions(story.own_calls)),
        ("files", f"Files changed ({len(story.changes)})", sections.files(story, max_chars)),
        ("timeline", "Time line", timeline(story.items, Scene(story.first_unix_s, max_chars, most))),
        ("network", "Hosts asked for", sections.network(story)),
        ("servers", "MCP servers", sections.servers(story)),
        ("cost", "Cost", sections.cost(story)),
        ("record", "Record", sections.record(story)),
    ]


def _filters(story: Story) -> Markup:
    """A button for every sort of entry that there is."""
    kinds = {kind for call in story.calls for kind in keys(call).split()} | {"all", "message"}
    kinds |= {"network"} if story.hosts.as_json() else set()
    there = [(kind, name) for kind, name in _FILTERS if kind in kinds]
    return join(
        el("button", name, type="button", data_kind=kind, aria_pressed=str(kind == "all").lower())
        for kind, name in there
    )


@cache
def _file(name: str) -> str:
    return (_ROOM / name).read_text(encoding="utf-8")


def _sha256(text: str) -> str:
    return base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
