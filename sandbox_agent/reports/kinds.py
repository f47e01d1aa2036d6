"""The kinds of reports there are, each a function from a story to text."""

from __future__ import annotations

from collections.abc import Callable

from sandbox_agent.reports import junit, markdown, sarif
from sandbox_agent.reports.html import page
from sandbox_agent.reports.story import Story

KINDS: dict[str, Callable[[Story], str]] = {
    "html": page.render,
    "markdown": markdown.render,
    "junit": junit.render,
    "sarif": sarif.render,
}
