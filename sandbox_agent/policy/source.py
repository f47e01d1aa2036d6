"""Reading a policy file so that every value knows its line. What is read is data of plain kinds, by the rules of YAML
1.2 (`on`, `no` and `1:30` are words), without aliases, and bounded in size and depth.

Finding the shipped policies and loading files is the only I/O here.
"""

from __future__ import annotations

import os
import re
import stat
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from sandbox_agent.errors import PolicyError

MAX_FILE_BYTES = 256 * 1024
_MAX_DEPTH = 20
_MAX_NAMED = 60

KeyPath = tuple[str | int, ...]

# The parser in C takes 2 ms for the shipped default, the one in Python 120 ms; both give the same nodes. Without
# resolvers every scalar comes as text, and only an explicit tag as anything else.
_FASTEST: type = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_LOADER: Any = type("_Loader", (_FASTEST,), {"yaml_implicit_resolvers": {}})
_TEXT_TAG = "tag:yaml.org,2002:str"
_PLAIN = (
    ("null", re.compile(r"~|null|Null|NULL|")),
    ("bool", re.compile(r"true|True|TRUE|false|False|FALSE")),
    ("int", re.compile(r"[-+]?[0-9]{1,40}|0x[0-9a-fA-F]{1,30}|0o[0-7]{1,40}")),
    ("float", re.compile(r"[-+]?(\.[0-9]{1,40}|[0-9]{1,40}(\.[0-9]{0,40})?)([eE][-+]?[0-9]{1,4})?")),
    ("special", re.compile(r"[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)")),
)
"""How a word without quotes is read: the core schema of YAML 1.2, in this order; everything else is text."""


@dataclass(frozen=True, slots=True)
class Document:
    """A YAML mapping with the line of every key and item in it, and the text of every value as it was written.

    `faults` is what was wrong and could be read past, such as a key that is there twice.
    """

    name: str
    data: dict[str, Any]
    lines: dict[KeyPath, int]
    texts: dict[KeyPath, str] = field(default_factory=dict)
    faults: tuple[PolicyError, ...] = ()
    path: Path | None = None
    """The file, absolute; None for a text that is no file."""

    def location(self, path: KeyPath) -> str:
        """`file:line` of a value, or of the nearest thing around it."""
        while path and path not in self.lines:
            path = path[:-1]
        return f"{self.name}:{self.lines.get(path, 1)}"


def shipped_dir() -> Path:
    """Where the shipped policies are: in the installed package, else in the repository beside it."""
    package = Path(__file__).resolve().parents[1]
    installed = package / "_data" / "policies"
    return installed if installed.is_dir() else package.parent / "policies"


def shipped_names() -> list[str]:
    """The names of the shipped policies, sorted."""
    return sorted(path.stem for path in shipped_dir().glob("*.yaml"))


def read_document(path: Path, name: str) -> Document:
    """The document in a file; `name` is what messages call it.

    Raises:
        PolicyError: it cannot be read, is no regular file, is longer than 256 KiB, or is not a plain YAML mapping.
    """
    raw = read_bytes(path, name)
    if raw.startswith((b"\xff\xfe", b"\xfe\xff")):
        raise PolicyError("the policy is UTF-16; save it as UTF-8", location=name)
    try:
        text = raw.decode("utf-8")
    except UnicodeDecodeError as exc:
        line = raw.count(b"\n", 0, exc.start) + 1
        raise PolicyError(f"the policy is not UTF-8 text (byte {exc.start})", location=f"{name}:{line}") from exc
    return parse_document(text, name, path=Path(os.path.abspath(path)))


def read_bytes(path: Path, name: str) -> bytes:
    """The bytes of a regular file of at most 256 KiB; a pipe or a device is refused without being opened.

    Raises:
        PolicyError: it is something else, longer, or cannot be read.
    """
    try:
        _require_file(os.stat(path).st_mode, name)
        # Were it exchanged for a pipe since, opening it would wait for a writer.
        with open(os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK), "rb") as file:
            _require_file(os.fstat(file.fileno()).st_mode, name)
            raw = file.read(MAX_FILE_BYTES + 1)
    except (OSError, ValueError) as exc:
        reason = exc.strerror if isinstance(exc, OSError) else "its name holds a NUL character"
        raise PolicyError(f"the policy cannot be read: {reason or exc}", location=name) from exc
    if len(raw) > MAX_FILE_BYTES:
        raise PolicyError(f"the policy is longer than {MAX_FILE_BYTES // 1024} KiB", location=name)
    return raw


def _require_file(mode: int, name: str) -> None:
    if stat.S_ISDIR(mode):
        raise PolicyError("the policy cannot be read: Is a directory; name the file in it", location=name)
    if not stat.S_ISREG(mode):
        raise PolicyError("a policy is a regular file, not a pipe, socket or device", location=name)


def parse_document(text: str, name: str, *, path: Path | None = None) -> Document:
    """The document in a text.

    Raises:
        PolicyError: it is not YAML, uses aliases, is nested too deeply, or is not a mapping.
    """
    try:
        for event in yaml.parse(text, Loader=_LOADER):
            # An alias can make a small file huge, or a value contain itself.
            if isinstance(event, yaml.AliasEvent):
                raise PolicyError(
                    f"YAML aliases (*{event.anchor}) are not taken; write the value out",
                    location=_at(event.start_mark, name),
                )
        node = yaml.compose(text, Loader=_LOADER)
    except yaml.YAMLError as exc:
        raise _yaml_fault(exc, text, name) from exc
    except RecursionError as exc:
        raise PolicyError("the policy is nested too deeply", location=name) from exc
    reading = _Reading(name)
    data = {} if node is None else reading.construct(node, ())
    if data is None:
        data = {}
    if not isinstance(data, dict):
        raise PolicyError("a policy is a mapping of keys such as mode: and rules:", location=f"{name}:1")
    return Document(name, data, {(): 1} | reading.lines, reading.texts, tuple(reading.faults), path)


def _yaml_fault(exc: yaml.YAMLError, text: str, name: str) -> PolicyError:
    """One line; the two parsers word their messages differently, so what people run into often has our words."""
    mark = getattr(exc, "problem_mark", None)
    position = getattr(exc, "position", None)
    if mark is None and isinstance(position, int):
        return PolicyError(
            f"not valid YAML: the control character {text[position : position + 1]!r}",
            location=f"{name}:{text.count(chr(10), 0, position) + 1}",
        )
    problem = " ".join(str(getattr(exc, "problem", None) or exc).split())
    location = _at(mark, name)
    line = text.splitlines()[mark.line] if mark is not None and mark.line < len(text.splitlines()) else ""
    if "maximum nesting depth" in problem:
        return PolicyError("the policy is nested too deeply", location=location)
    if "another document" in problem:
        return PolicyError("a policy is one YAML document; take out the second `---`", location=location)
    if "\t" in line[: len(line) - len(line.lstrip())]:
        return PolicyError("not valid YAML: a tab cannot indent; use spaces", location=location)
    if "start any token" in problem and mark is not None and line[mark.column : mark.column + 1] in ("@", "`", "%"):
        sign = line[mark.column]
        return PolicyError(f"not valid YAML: a value that begins with {sign} needs quotes", location=location)
    return PolicyError(f"not valid YAML: {problem}", location=location)


def _at(mark: object, name: str) -> str:
    line = getattr(mark, "line", None)
    return name if line is None else f"{name}:{line + 1}"


class _Reading:
    """One pass over the nodes of a document."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.lines: dict[KeyPath, int] = {}
        self.texts: dict[KeyPath, str] = {}
        self.faults: list[PolicyError] = []

    def construct(self, node: yaml.Node, path: KeyPath) -> Any:
        self.lines.setdefault(path, node.start_mark.line + 1)
        if len(path) > _MAX_DEPTH:
            raise PolicyError("the policy is nested too deeply", location=_at(node.start_mark, self.name))
        if isinstance(node, yaml.SequenceNode):
            return [self.construct(item, (*path, index)) for index, item in enumerate(node.value)]
        if isinstance(node, yaml.MappingNode):
            return self._mapping(node, path)
        assert isinstance(node, yaml.ScalarNode)
        self.texts[path] = str(node.value)
        return self._scalar(node)

    def _mapping(self, node: yaml.MappingNode, path: KeyPath) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for key_node, value_node in node.value:
            place = _at(key_node.start_mark, self.name)
            if not isinstance(key_node, yaml.ScalarNode):
                self.faults.append(PolicyError("a key is one word, not a list or a mapping", location=place))
                continue
            key = str(key_node.value)
            if key in found:
                self.faults.append(PolicyError(f"the key {key!r} is there twice", location=place))
                continue
            self.lines[*path, key] = key_node.start_mark.line + 1
            found[key] = self.construct(value_node, (*path, key))
        return found

    def _scalar(self, node: yaml.ScalarNode) -> Any:
        text = str(node.value)
        if node.tag != _TEXT_TAG:
            shown = text if len(text) <= _MAX_NAMED else text[:_MAX_NAMED] + "…"
            told = f"{shown!r} is not a value a policy takes; write it without a tag"
            self.faults.append(PolicyError(told, location=_at(node.start_mark, self.name)))
            return None
        # A plain word has no style for the parser in C, and may have "" for the one in Python.
        return text if node.style else _value(text)


def _value(text: str) -> Any:
    kind = next((name for name, form in _PLAIN if form.fullmatch(text)), "str")
    match kind:
        case "null":
            return None
        case "bool":
            return text.lower() == "true"
        case "int":
            return int(text, 0) if text[:2] in ("0x", "0o") else int(text)
        case "float":
            return float(text.lower())
        case "special":
            return float(text.lower().replace(".", ""))
        case _:
            return text
