"""Whatever stands in a record, its reports show it and do nothing with it."""

from __future__ import annotations

import dataclasses
import json
import re
from html.parser import HTMLParser
from typing import Any
from xml.etree import ElementTree

import pytest
from report_rig import everything, story

from sandbox_agent.events import Event
from sandbox_agent.reports.kinds import KINDS
from sandbox_agent.reports.markdown import fenced, span

PAYLOADS = (
    "<script>alert(1)</script><img src=x onerror=alert(1)>",
    "\"' onclick=alert(1) style=x: </pre></details></main><svg/onload=alert(1)>",
    "]]> &lt;b&gt; ${alert(1)} $title {{x}} javascript:alert(1)",
    "\x1b[31mred\x1b]8;;http://evil\x07 \u202egpj.exe\u202c \u200b\x00 \ud800 \u2028",
    "```\n# head\n`` ` @admin #12 ![x](http://evil/p.png) [a](http://evil) https://evil.example mail@evil.example",
    "| a | b |\n::error::gone\n<!-- --> <details><summary>",
)
_KEPT = frozenset({"type", "call_id", "agent_id", "parent_id", "verdict", "who", "kind"})
"""Fields by which things are found; what they do when they are hostile is a test of its own."""

_TAGS = frozenset(
    re.findall(
        r"\S+",
        "html head meta title style body a main header nav section div span p pre code h1 h2 h3 h4 dl dt dd ul li "
        "table thead tbody tr th td details summary svg rect button input dialog kbd form script",
    )
)


def poisoned(value: Any, payload: str) -> Any:
    """The same with the payload behind every text in it, and before."""
    if isinstance(value, str):
        return payload + value + payload
    if isinstance(value, dict):
        names = {key: key if key in _NAMES else key + payload for key in value}
        return {
            names[key]: one if key in _KEPT | {"id", "name"} else poisoned(one, payload) for key, one in value.items()
        }
    if isinstance(value, list | tuple):
        return type(value)(poisoned(one, payload) for one in value)
    return value


_NAMES = frozenset(
    re.findall(
        r"\S+",
        "type text thinking id name input file line summary failure_scenario category severity verdict findings diff "
        "path kind danger note exit_code tool_name reason tool_use_id content",
    )
)


def hostile(payload: str) -> list[Event]:
    events = []
    for event in everything():
        fields = [field.name for field in dataclasses.fields(event) if field.name not in _KEPT]
        events.append(dataclasses.replace(event, **{name: poisoned(getattr(event, name), payload) for name in fields}))
    return events


class Page(HTMLParser):
    """What a browser would find."""

    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=True)
        self.tags: set[str] = set()
        self.attributes: list[tuple[str, str, str | None]] = []
        self.open: list[str] = []
        self.words = ""
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.attributes += [(tag, name, value) for name, value in attrs]
        if tag not in ("meta", "input"):
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open and self.open[-1] not in ("script", "style"):
            self.words += data


@pytest.mark.parametrize("payload", PAYLOADS)
def test_on_the_page_it_is_text(payload: str) -> None:
    """No tag, attribute or address comes of it, and what cannot be seen can be read."""
    shown = KINDS["html"](story(hostile(payload)))
    page = Page(shown)
    assert page.open == []
    assert page.tags <= _TAGS
    assert shown.count("<script>") == 1
    for tag, name, value in page.attributes:
        assert re.fullmatch(r"[a-zA-Z-]+", name)
        assert not name.lower().startswith("on")
        assert name not in ("src", "style", "srcdoc", "action", "formaction", "xlink:href")
        if name == "href":
            assert tag == "a"
            assert re.fullmatch(r"#[a-z]+\d*", value or "")
    assert re.search(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u200b-\u200f\u2028-\u202e\u2066-\u2069]", shown) is None
    assert "The price of a parcel" in page.words


def test_payloads_can_be_read_on_the_page() -> None:
    """Nothing is thrown away for being odd."""
    words = Page(KINDS["html"](story(hostile(PAYLOADS[0])))).words
    assert PAYLOADS[0] in words
    assert "\\x1b[31mred" in Page(KINDS["html"](story(hostile(PAYLOADS[3])))).words


@pytest.mark.parametrize("payload", PAYLOADS)
def test_ids_and_kinds_are_text_as_well(payload: str) -> None:
    """A record may have been written by anybody."""
    odd = {"verdict", "tool", "kind", "status", "call_id"}
    events = []
    for event in everything():
        names = odd & {one.name for one in dataclasses.fields(event)}
        events.append(dataclasses.replace(event, **{name: getattr(event, name) + payload for name in names}))
    page = Page(KINDS["html"](story(events)))
    assert page.tags <= _TAGS
    assert not [name for _, name, _ in page.attributes if name.startswith("on")]
    assert _outside_code(KINDS["markdown"](story(events))) is None


@pytest.mark.parametrize("payload", PAYLOADS)
def test_in_markdown_it_is_code(payload: str) -> None:
    """In spans and blocks that end where we end them; short enough for a comment."""
    said = KINDS["markdown"](story(hostile(payload * 50)))
    assert len(said) < 60_000
    assert _outside_code(said) is None
    assert re.search(r"[\x00-\x08\x0b-\x1f\u202e\u200b]", said) is None


def _outside_code(markdown: str) -> str | None:
    """Something in a summary that is neither code nor a word of ours."""
    blocks = re.sub(r"^(`{3,})text\n.*?\n\1$", "", markdown, flags=re.DOTALL | re.MULTILINE)
    spans = re.sub(r"(?<!`)(`+)(?!`).*?(?<!`)\1(?!`)", "", blocks)
    rest = spans.replace("<details><summary>The model's answer</summary>", "").replace("</details>", "")
    found = re.search(r"[<>\[\]@`|!\\]|#\d|://|alert|evil", rest)
    return rest[max(0, found.start() - 60) : found.end() + 60] if found else None


@pytest.mark.parametrize("text", ["`", "``", "a`b``c", " x ", "", "`x", "\n", "a\n# b", "```\n```", "~~~"])
def test_a_span_is_one_line_and_ends_where_it_should(text: str) -> None:
    """By a fence that is longer than any in it."""
    line, block = span(text), fenced(text)
    fence = re.match("`+", line)
    assert fence is not None
    assert "\n" not in line
    assert line.endswith(fence[0])
    assert re.findall(f"(?<!`){fence[0]}(?!`)", line) == [fence[0]] * 2
    bar = block.partition("text\n")[0]
    assert block.endswith(f"\n{bar}")
    assert bar not in block[len(bar) : -len(bar)]


@pytest.mark.parametrize("payload", PAYLOADS)
def test_junit_and_sarif_stay_what_they_are(payload: str) -> None:
    """XML and JSON that parse, with no control character and no link in them."""
    told = story(hostile(payload))
    suites = ElementTree.fromstring(KINDS["junit"](told))
    assert [suite.get("tests") for suite in suites] == ["2", "1"]
    tags = {"testsuites", "testsuite", "testcase", "failure", "error", "system-out"}
    assert {one.tag for one in suites.iter()} <= tags
    document = json.loads(KINDS["sarif"](told))
    [result] = document["runs"][0]["results"]
    assert "](" not in result["message"]["text"]
    assert result["locations"][0]["physicalLocation"]["artifactLocation"]["uri"].isascii()
