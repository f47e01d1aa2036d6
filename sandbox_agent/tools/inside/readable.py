"""HTML as text that a model reads: headings, paragraphs, lists, links, tables, code; never more than is asked for."""

from __future__ import annotations

from html.parser import HTMLParser
from urllib.parse import urljoin

_UNSEEN = frozenset(("script", "style", "noscript", "template", "svg", "math", "iframe", "object", "select"))
_APART = frozenset(("blockquote", "dl", "figure", "h1", "h2", "h3", "h4", "h5", "h6", "ol", "p", "pre", "table", "ul"))
_NAMES = """
    address article aside body caption dd details div dt fieldset figcaption footer form header hr html li main nav
    option section summary tbody tfoot thead tr
"""
_BLOCKS = _APART | frozenset(_NAMES.split())
_STARTS = {"li": "- ", "hr": "---"}
_STARTS.update({f"h{level}": "#" * level + " " for level in range(1, 7)})
_MAX_HREF_CHARS = 1000
_MAX_TITLE_CHARS = 300


class Enough(Exception):
    """As much text as is wanted is there."""


class Readable(HTMLParser):
    """Collects the text of a page; `base` is its address, for links. `title` is the page's."""

    def __init__(self, base: str, max_chars: int) -> None:
        HTMLParser.__init__(self, convert_charrefs=True)
        self.title = ""
        self._base = base
        self._left = max_chars
        self._done: list[str] = []
        self._line: list[str] = []
        self._unseen: list[str] = []
        self._links: list[str] = []
        self._pre = 0
        self._in_title = False

    def text(self) -> str:
        """All that came, without blank lines at its ends."""
        self._end_line()
        return "".join(self._done).strip("\n")

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag in _UNSEEN:
            self._unseen.append(tag)
        if self._unseen:
            return
        if tag == "title":
            self._in_title = True
        values = {name: value or "" for name, value in attrs}
        if tag in _BLOCKS:
            self._in_title = False  # one that was never closed
            self._end_line()
            if tag in _APART:
                self._blank_line()
            self._add(_STARTS.get(tag, ""))
        if tag == "pre":
            self._add("```\n")
            self._pre += 1
        elif tag == "br" and self._pre:
            self._add("\n")
        elif tag in ("br", "hr"):
            self._end_line()
        elif tag in ("td", "th"):
            self._add(" | " if self._line else "")
        elif tag == "a":
            self._links.append(self._address(values.get("href", "")))
            self._add("[" if self._links[-1] else "")
        elif tag == "img" and values.get("alt", "").strip():
            self._add("[image: " + values["alt"].strip() + "]")

    def handle_endtag(self, tag: str) -> None:
        if tag == "title":
            self._in_title = False
        if tag in self._unseen:
            del self._unseen[self._unseen.index(tag) :]
            return
        if self._unseen:
            return
        if tag == "a" and self._links:
            address = self._links.pop()
            self._add("](" + address + ")" if address else "")
        if tag == "pre" and self._pre:
            self._pre -= 1
            self._add("\n```")
        if tag in _BLOCKS:
            if tag == "li" and "".join(self._line).strip() == "-":
                self._line = []  # nothing was in it
            self._end_line()
            if tag in _APART:
                self._blank_line()

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)
        if tag in _UNSEEN:
            self.handle_endtag(tag)  # <svg/> hides nothing

    def handle_data(self, data: str) -> None:
        if self._in_title:
            self.title += data[: _MAX_TITLE_CHARS - len(self.title)]
        elif not self._unseen:
            self._add(data)

    def _address(self, href: str) -> str:
        """Where a link leads, "" if that is nothing to fetch."""
        href = "".join(href.split())
        if not href or href.startswith("#") or len(href) > _MAX_HREF_CHARS:
            return ""
        try:
            address = urljoin(self._base, href)
        except ValueError:
            return ""
        return address if address.startswith(("http://", "https://")) and len(address) <= _MAX_HREF_CHARS else ""

    def _add(self, text: str) -> None:
        if len(text) > self._left:
            self._line.append(text[: self._left])
            self._left = 0
            raise Enough
        self._left -= len(text)
        if text:
            self._line.append(text)

    def _end_line(self) -> None:
        line = "".join(self._line)
        if line.strip() == "-":
            return  # of a list; what belongs to it comes in a block of its own
        self._line = []
        if not self._pre and "```" not in line:
            line = " ".join(line.split())
        if line.strip():
            self._done.append(line.rstrip() + "\n")

    def _blank_line(self) -> None:
        if self._done and self._done[-1] != "\n":
            self._done.append("\n")


def readable(html: str, base: str, max_chars: int) -> tuple[str, bool]:
    """The text of a page, with its title first, and whether it was cut."""
    page = Readable(base, max_chars)
    cut = False
    try:
        page.feed(html)
        page.close()
    except Enough:
        cut = True
    except AssertionError:
        cut = True  # the parser of some versions gives up so on a broken declaration; what came before stands
    title = " ".join(page.title.split())
    text = page.text()
    return ("Title: " + title + "\n\n" + text if title else text), cut
