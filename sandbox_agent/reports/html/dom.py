"""Elements of a page. Text becomes markup here and nowhere else: escaped, and with whatever is not shown as escapes."""

from __future__ import annotations

import html
from collections.abc import Iterable
from functools import lru_cache

from sandbox_agent.frontends import words
from sandbox_agent.frontends.sanitise import sanitise


class Markup(str):
    """Text that is markup already. Only `el` and `join` make it."""

    __slots__ = ()


Child = str | None


def escaped(text: str) -> Markup:
    """Text as markup. A lone surrogate, a control, bidi or invisible character is an escape that can be read."""
    if text.isalnum() and text.isascii():
        return Markup(text)
    return Markup(html.escape("\n".join("\t".join(map(sanitise, line.split("\t"))) for line in text.split("\n"))))


def el(tag: str, *children: Child, cls: str = "", **attributes: str | bool | None) -> Markup:
    """An element. Children that are no markup are escaped; None is nothing.

    An attribute that is True has no value, and one that is False or None is left out; `_` in its name becomes `-`.
    """
    given: dict[str, str | bool | None] = {"class": cls or None, **attributes}
    inside = "".join(_attribute(name.strip("_").replace("_", "-"), value) for name, value in given.items())
    return Markup(f"<{tag}{inside}>{join(children)}</{tag}>")


def join(children: Iterable[Child]) -> Markup:
    """Several after each other."""
    return Markup("".join(one if isinstance(one, Markup) else escaped(one) for one in children if one is not None))


@lru_cache(maxsize=4096)
def _attribute(name: str, value: str | bool | None) -> str:
    if value is None or value is False:
        return ""
    return f" {name}" if value is True else f' {name}="{escaped(value)}"'


def shortened(text: str, max_chars: int) -> str:
    """The text, or its first and last lines with how much is left out between them."""
    if len(text) <= max_chars:
        return text
    head, tail = max_chars * 2 // 3, max_chars // 4
    return f"{text[:head]}\n[... {len(text) - head - tail:,} characters left out of this page ...]\n{text[-tail:]}"


def block(text: str, max_chars: int, *, cls: str = "") -> Markup:
    """Text as it was written, in a box of its own."""
    return el("pre", shortened(text, max_chars), cls=cls, tabindex="0")


def facts(pairs: Iterable[tuple[str, Child]]) -> Markup:
    """Names and values; those without a value are left out."""
    return el("dl", join(el("div", el("dt", name), el("dd", value)) for name, value in pairs if value))


def table(heads: Iterable[str], rows: Iterable[Iterable[Child]], *, cls: str = "") -> Markup:
    """A table; a column whose name begins with # has numbers."""
    names = list(heads)
    kinds = ["n" if name.startswith("#") else "" for name in names]
    top = el("tr", join(el("th", name.removeprefix("#"), cls=kind) for name, kind in zip(names, kinds, strict=True)))
    body = join(el("tr", join(el("td", cell, cls=kind) for cell, kind in zip(row, kinds, strict=True))) for row in rows)
    return el("div", el("table", el("thead", top), el("tbody", body), cls=cls), cls="scroll", tabindex="0")


def badge(text: str, tone: str) -> Markup:
    """A word in a coloured box."""
    return el("span", text, cls=f"badge {tone}")


def counted(number: int, noun: str) -> str:
    """ "1 call", "2 calls"."""
    return words.count(number, noun)
