"""Pages that a session has fetched, kept for a while: paging through one asks its server once."""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass

KEPT_S = 15 * 60.0
MAX_CHARS = 32 * 1024 * 1024
"""Of all pages together; the oldest go first."""


@dataclass(frozen=True, slots=True)
class Page:
    """A page as text. `url` is where it came from in the end, `kind` its content type, `notes` what is to be known."""

    url: str
    kind: str
    text: str
    notes: tuple[str, ...] = ()


class PageCache:
    """By the URL that was asked for. `clock` gives seconds."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._pages: OrderedDict[str, tuple[float, Page]] = OrderedDict()
        self._chars = 0

    def get(self, url: str) -> Page | None:
        """The page, if it is not too old."""
        kept_s, page = self._pages.get(url, (0.0, None))
        if page is None or self._clock() - kept_s < KEPT_S:
            return page
        self._drop(url)
        return None

    def put(self, url: str, page: Page) -> None:
        """Keep a page in place of what was there."""
        if url in self._pages:
            self._drop(url)
        self._pages[url] = (self._clock(), page)
        self._chars += len(page.text)
        while self._chars > MAX_CHARS:
            self._drop(next(iter(self._pages)))

    def _drop(self, url: str) -> None:
        _, page = self._pages.pop(url)
        self._chars -= len(page.text)
