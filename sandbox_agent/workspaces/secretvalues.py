"""The values in secret files, and which of them are worth looking for: not what stands everywhere by chance.

Understood are KEY=VALUE and KEY: VALUE lines (dotenv, ini, YAML, npm, netrc), JSON, PEM and plain lines.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import unquote

from sandbox_agent.errors import WorkspaceError
from sandbox_agent.workspaces.nofollow import Place
from sandbox_agent.workspaces.tree import Tree

MIN_VALUE_CHARS = 8
MAX_FILE_BYTES = 256 * 1024
MAX_ALL_BYTES = 1024 * 1024

# A repository may bring its own `.env`: none of these may take longer than in proportion to the text.
_TELLING_NAME = re.compile(
    r"pass(w(or)?d|phrase)?|pwd|secret|token|cred|private|salt|dsn|webhook|key(_?(id|base|b64|base64|value|\d+))?$",
    re.IGNORECASE,
)
_LINE = re.compile(r"\s*(?:export\s+|set\s+|-\s+)?[\"']?([A-Za-z_/@.][\w./:@-]*?)[\"']?\s*(?:=|:(?=\s))\s*(\S.*)")
_NETRC = re.compile(r"\b(?:password|passwd|login|account)\s+(\S+)")
_BOUNDARY = re.compile(r"-----(BEGIN|END) [A-Z0-9 ]+-----")
_PEM_HEADER = re.compile(r"[A-Z][A-Za-z-]+: ")
_USERINFO = re.compile(r"[a-z][a-z0-9+.-]*://[^/\s:@]*:([^/\s@]+)@", re.IGNORECASE)

_COMMON = frozenset(
    {
        *("password", "passwords", "password1", "password123", "changeme", "changeit", "12345678", "123456789"),
        *("development", "production", "localhost", "postgres", "postgresql", "database", "username", "undefined"),
        *("disabled", "required", "optional", "example", "placeholder", "administrator", "anonymous"),
        *("your-key-here", "your_api_key", "your_token_here", "your-api-key", "application/json"),
    }
)
_SHAPES = re.compile(
    r"""[a-z]{1,15} | [A-Z][a-z]{1,15} | [A-Z]{1,15}              # one word
    | [\d.,:+-]{1,20}                                           # numbers, versions, addresses, times
    | \d{4}-\d\d-\d\d(T[\d:.]+(Z|[+-]\d\d:?\d\d)?)?
    | (?=.*::)[0-9a-f:]+                                        # an IPv6 address
    | ([a-z0-9-]{1,40}\.)*[a-z][a-z0-9-]{1,40}(:\d{1,5})?       # a host, with or without a port, or plain-words
    | [a-z][a-z0-9+.-]*://[^\s@?]*                              # a URL without anything private in it
    | (~|\.{1,2})?(/[\w.@%+-]*)+                                # a path
    | [A-Za-z]+(_[A-Za-z]+)+ | [A-Z][A-Za-z]+/[A-Z][A-Za-z_]+   # SOME_NAME, Europe/Berlin
    | [\w.+-]+@[\w-]+(\.[\w-]+)+                                # a mail address
    | [a-z]{2}_[A-Z]{2}(\.[\w-]+)?
    | \$\{?\w+\}? | <[^>]*> | \*+ | x+                          # a reference, or something to be filled in
    """,
    re.VERBOSE,
)
_SHAPES_ALWAYS = re.compile(r"\$\{?\w+\}?|<[^>]*>|(.)\1*|(~|\.{1,2})?/[\w.@%+/-]*|[a-z]{1,4}[\d.:]*", re.VERBOSE)


class Value(NamedTuple):
    """Something secret: the file it is from, and its name in there, "" where it has none."""

    path: str
    name: str
    text: str


class Values(NamedTuple):
    """`unread` are masked files whose values are not known: too large, or not readable."""

    values: tuple[Value, ...]
    unread: tuple[str, ...]


def masked_values(host: Path, masked: Mapping[str, str]) -> Values:
    """The values in the masked files of a person's folder.

    Args:
        host: the folder.
        masked: see `Workspace.masked`.

    Raises:
        WorkspaceError: the folder cannot be opened.
    """
    values: list[Value] = []
    unread: list[str] = []
    left = MAX_ALL_BYTES
    try:
        tree = Tree(host)
    except OSError as error:
        raise WorkspaceError(f"{host}: cannot be opened: {error}") from error
    with tree:
        for path in masked:
            try:
                with tree.at(path) as place:
                    data = _content(place, min(left, MAX_FILE_BYTES))
            except OSError:
                unread.append(path)
                continue
            if data is None:
                continue
            if len(data) > min(left, MAX_FILE_BYTES):
                unread.append(path)
                continue
            left -= len(data)
            values += (Value(path, name, text) for name, text in values_in(data.decode("utf-8", "replace")))
    return Values(tuple(values), tuple(unread))


def _content(place: Place, most_bytes: int) -> bytes | None:
    """One byte more than `most_bytes` shows that it is too large; None for what is no file (its target is one)."""
    info = place.stat()
    if info is None or not _is_file(info.st_mode):
        return None
    return place.read_bytes(most_bytes + 1)


def _is_file(mode: int) -> bool:
    return mode & 0o170000 == 0o100000


def values_in(text: str) -> Iterator[tuple[str, str]]:
    """Name and value of all that is worth looking for in the text of a secret file."""
    try:
        parsed = json.loads(text)
    except (ValueError, RecursionError):
        yield from _lines(text)
        return
    if isinstance(parsed, dict | list):
        yield from _leaves("", parsed)
    else:
        yield from _lines(text)


def worth(name: str, value: str) -> bool:
    """Whether a value can be looked for: long enough, and nothing that stands in any project."""
    if len(value) < MIN_VALUE_CHARS or value.lower() in _COMMON or _SHAPES_ALWAYS.fullmatch(value):
        return False
    return bool(_TELLING_NAME.search(name)) or not _SHAPES.fullmatch(value)


def inner_password(value: str) -> str | None:
    """The password in a URL."""
    found = _USERINFO.match(value)
    return found[1] if found else None


def pairs(name: str, value: str) -> Iterator[tuple[str, str]]:
    """A value, and the password in it where it is a URL, as far as they are worth it."""
    if worth(name, value):
        yield name, value
    password = inner_password(value)
    for one in {password, unquote(password)} if password else ():
        if worth("password", one):
            yield name, one


def _lines(text: str) -> Iterator[tuple[str, str]]:
    in_pem = False
    for line in text.splitlines():
        stripped = line.strip()
        if (boundary := _BOUNDARY.fullmatch(stripped)) is not None:
            in_pem = boundary[1] == "BEGIN"
        elif in_pem:
            if len(stripped) >= 2 * MIN_VALUE_CHARS and not _PEM_HEADER.match(stripped):
                yield "", stripped
        elif stripped and stripped[0] not in "#;[":
            yield from _line(stripped)


def _line(line: str) -> Iterator[tuple[str, str]]:
    found = _LINE.fullmatch(line)
    if found is not None:
        for value in _readings(found[2]):
            yield from pairs(found[1], value)
        return
    words = _NETRC.findall(line)
    if words:
        for word in words:
            yield from pairs("password", word)
        return
    yield from pairs("", line)


def _readings(text: str) -> Iterator[str]:
    """What a value can be: files differ in quotes, comments and escapes."""
    quote = text[:1]
    if quote in "\"'`" and text.find(quote, 1) > 0:
        inner = text[1 : text.rfind(quote)] if text.endswith(quote) else text[1 : text.find(quote, 1)]
        yield inner
        if quote == '"' and "\\" in inner:
            yield inner.replace('\\"', '"').replace("\\n", "\n").replace("\\\\", "\\").replace("\\$", "$")
        return
    yield text
    bare = re.split(r"\s#", text, maxsplit=1)[0].rstrip().rstrip(" ,;")
    if bare != text:
        yield bare


def _leaves(name: str, value: Any) -> Iterator[tuple[str, str]]:
    level = [(name, value)]
    while level:
        key, one = level.pop()
        if isinstance(one, dict):
            level += [(str(inner), child) for inner, child in one.items()]
        elif isinstance(one, list):
            level += [(key, child) for child in one]
        elif isinstance(one, str):
            if "\n" in one:
                yield from _lines(one)
            else:
                yield from pairs(key, one)
