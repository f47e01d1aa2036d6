"""What may differ between a run and its replay: noise, by named rules. Anything else that differs is a difference.

Both sides are brought into the same form before they are compared; nothing that a model or a tool gets is changed.
`docs/replay.md` lists the rules, and a test holds the two together.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Iterable
from typing import Any, NamedTuple

from sandbox_agent.types import JsonObject

_MONTH = r"(?:Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec)"
_DAY = r"(?:Mon|Tue|Wed|Thu|Fri|Sat|Sun)"


class Rule(NamedTuple):
    """What is found by `pattern` is compared as `stands`; `example` is one that fits."""

    name: str
    pattern: re.Pattern[str]
    stands: str
    example: str


RULES = (
    Rule(
        "time",
        re.compile(r"\b\d{4}-\d\d-\d\d[T ]\d\d:\d\d(?::\d\d(?:[.,]\d+)?)?(?: ?(?:Z|[+-]\d\d:?\d\d))?"),
        "<time>",
        "2026-11-30 12:00:01",
    ),
    Rule(
        "date",
        re.compile(
            rf"\b(?:{_DAY},? +)?{_MONTH} +\d{{1,2}},? +(?:\d\d:\d\d(?::\d\d)?(?: [A-Z]{{3,4}})?(?: \d{{4}})?|\d{{4}})\b"
        ),
        "<time>",
        "Mon Nov 30 12:00:01 UTC 2026",
    ),
    Rule("clock", re.compile(r"\b\d\d:\d\d:\d\d(?:\.\d+)?\b"), "<time>", "12:00:01"),
    Rule("unix time", re.compile(r"(?<![\w.])1[6-9]\d{8}(?:\.\d+)?(?![\w.])"), "<time>", "1796040001.25"),
    Rule("stopwatch", re.compile(r"\b\d+m\d+(?:\.\d+)?s\b"), "<duration>", "0m1.204s"),
    Rule(
        "duration",
        re.compile(r"(?<![\w.])\d[\d,]*(?:\.\d+)? ?(?:ns|us|ms|s|secs?|seconds?|mins?|minutes?)\b"),
        "<duration>",
        "0.12s",
    ),
    Rule(
        "file of ours",
        re.compile(r"(/tmp/sandbox-agent/[a-z]+-)[0-9a-f]{8,}"),
        r"\1<random>",
        "/tmp/sandbox-agent/out-0123456789abcdef",
    ),
    Rule(
        "temporary file",
        re.compile(r"/tmp/(tmp[._]?)[A-Za-z0-9_]{6,10}(?![A-Za-z0-9_])"),
        r"/tmp/\1<random>",
        "/tmp/tmpab12cd34",
    ),
    Rule("owner", re.compile(r"\b(uid|gid|euid|egid|groups)=\d+"), r"\1=<id>", "uid=1000"),
    Rule("process", re.compile(r"\b(pid|PID|ppid|PPID)([ =:]+)\d+"), r"\1\2<pid>", "pid 4711"),
    Rule("job of a shell", re.compile(r"(?m)^(\[\d+\]) \d+$"), r"\1 <pid>", "[1] 4711"),
    Rule("container", re.compile(r"((?:docker|containers|libpod)[/-])[0-9a-f]{64}"), r"\1<id>", "docker/" + "ab" * 32),
    Rule(
        "port",
        re.compile(r"\b((?:127\.0\.0\.1|0\.0\.0\.0|localhost):)\d{4,5}\b"),
        r"\1<port>",
        "127.0.0.1:43817",
    ),
)
"""In the order in which they are looked for."""

LEFT_OUT_OF_TREES = ("*.pyc", ".git/index")
"""Files that hold times of other files by their nature, so that their bytes say nothing about what was done. A pattern
without a slash is the end of a name, one with a slash the end of a path."""

SMALLEST_ID = 1000

MOST_KNOWN_CHARS = 32 * 1024 * 1024
"""Of the texts that are remembered, each with `ENTRY_CHARS` on top; then it begins anew."""

ENTRY_CHARS = 100

BYTES_KEY = "stdout_base64"
"""In what a result has for front ends: output that is no text."""

_NOISY_META = frozenset({"duration_s", "cpu_s", "max_rss_bytes"})


class Noise:
    """The rules for one session: `hosts` are the person's folder as it is called here and was called there, `ids` the
    uids and gids of the tools; small ones stand for too much else to be noise."""

    def __init__(self, hosts: Iterable[str] = (), ids: Iterable[int] = ()) -> None:
        numbers = "|".join(str(one) for one in sorted(set(ids)) if one >= SMALLEST_ID)
        self._ids = re.compile(rf"(?<![\w.,-])(?:{numbers})(?![\w.,-])") if numbers else None
        self._hosts = tuple(sorted({host.rstrip("/") for host in hosts if len(host) > 1}, key=len, reverse=True))
        self._known: dict[str, str] = {}
        self._known_chars = 0

    def text(self, text: str) -> str:
        """The text in the form that is compared. It is remembered: each request has the whole conversation."""
        found = self._known.get(text)
        if found is None:
            if self._known_chars > MOST_KNOWN_CHARS:
                self._known, self._known_chars = {}, 0
            found = self._known[text] = self._made(text)
            self._known_chars += len(text) + ENTRY_CHARS
        return found

    def _made(self, text: str) -> str:
        for host in self._hosts:
            if host in text:
                text = re.sub(re.escape(host) + r"(?![\w.-])", "<workspace>", text)
        if self._ids is not None:
            text = self._ids.sub("<id>", text)
        for rule in RULES:
            text = rule.pattern.sub(rule.stands, text)
        return text

    def value(self, value: Any) -> Any:
        """A JSON value in the form that is compared; tuples become lists."""
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, dict):
            return {key: self.value(one) for key, one in value.items()}
        if isinstance(value, list | tuple):
            return [self.value(one) for one in value]
        return value

    def meta(self, meta: JsonObject) -> JsonObject:
        """The same for what a tool's result has for front ends."""
        kept = {key: _decoded(key, one) for key, one in meta.items() if key not in _NOISY_META}
        found: JsonObject = self.value(kept)
        return found


def _decoded(key: str, value: Any) -> Any:
    """What a program wrote that is no text, as text: there are times in it, too."""
    if key != BYTES_KEY or not isinstance(value, str):
        return value
    try:
        return base64.b64decode(value, validate=True).decode("utf-8", "backslashreplace")
    except ValueError:
        return value


def counts_in_tree(path: str) -> bool:
    """Whether a file's content and being there count when trees are compared."""
    for pattern in LEFT_OUT_OF_TREES:
        end = pattern.lstrip("*")
        if path == end or path.endswith(end if pattern.startswith("*") else "/" + end):
            return False
    return True
