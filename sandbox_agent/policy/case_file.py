"""Files of test cases for policies: YAML of our own, or JSON lists of vectors that bring their rules with them.

Reading only; `cases` runs them. Every case knows its line.
"""

from __future__ import annotations

import json
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import pydantic
import yaml
from pydantic import BaseModel, BeforeValidator, ConfigDict

from sandbox_agent.errors import ConfigError
from sandbox_agent.types import WORKSPACE_MOUNT, Mode

MAX_FILE_BYTES = 8 * 1024 * 1024
_LISTS = ("cases", "vectors")
# Without resolvers every scalar comes as text: a command that reads `true` or `1e3` is that text.
_LOADER: Any = type("_Loader", (getattr(yaml, "CSafeLoader", yaml.SafeLoader),), {"yaml_implicit_resolvers": {}})

VerdictName = Literal["allow", "ask", "deny"]


def _listed(value: Any) -> Any:
    """A single word for a list of one; nothing for an empty one."""
    if value is None or value == "":
        return []
    return [value] if isinstance(value, str) else value


def _as_text(value: Any) -> Any:
    """Numbers are names as well."""
    return str(value) if isinstance(value, int) and not isinstance(value, bool) else value


Name = Annotated[str | None, BeforeValidator(_as_text)]
Texts = Annotated[list[str], BeforeValidator(_listed)]
Verdicts = Annotated[list[VerdictName], BeforeValidator(_listed)]


class _Shape(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class OwnRules(_Shape):
    """Rules that a case brings with it. Nothing else applies then: the list of commands that only read is off."""

    deny: Texts = []
    ask: Texts = []
    allow: Texts = []


class CaseEntry(_Shape):
    """One case as it is written. Exactly one of `call` and `command` says what is judged."""

    call: str | None = None
    """`Bash(git push)`, `Read(~/x)`, `mcp__server__tool`."""
    command: str | None = None
    """A shell command as it is."""
    expect: VerdictName
    also_ok: Verdicts = []
    must_not: Verdicts = []
    mode: Mode | None = None
    policy: str | None = None
    rules: OwnRules | None = None
    cwd: str = WORKSPACE_MOUNT
    name: Name = None
    id: Name = None
    why: str | None = None
    tags: Texts = []


class _File(_Shape):
    policy: str | None = None
    mode: Mode | None = None
    name: str | None = None
    description: str | None = None


@dataclass(frozen=True, slots=True)
class LocatedCase:
    """A case with its place, `file:line`, and what the file says for all of its cases."""

    entry: CaseEntry
    location: str
    policy: str | None
    """As written; a file is relative to `folder`."""
    mode: Mode | None
    folder: Path

    @property
    def title(self) -> str:
        """What people call it: its id or name, else what it is about."""
        return self.entry.id or self.entry.name or self.entry.call or self.entry.command or ""


def read_cases(path: Path) -> list[LocatedCase]:
    """The cases of a file, in order.

    Raises:
        ConfigError: it cannot be read, is no YAML or JSON, or something in it is no case; with file and line.
    """
    text = _text(path)
    data, lines, is_json = _parsed(path, text)
    head: dict[str, Any] = {} if isinstance(data, list) else data
    if not isinstance(head, dict) or not isinstance(data, list | dict):
        raise ConfigError(f"{path}: a file of cases is a list, or a mapping with cases:")
    key = next((name for name in _LISTS if name in head), None)
    entries = data if isinstance(data, list) else head.get(key or "")
    if not isinstance(entries, list):
        raise ConfigError(f"{path}: there is no list under cases: (or vectors:)")
    if not entries:
        raise ConfigError(f"{path}: there is no case in it")
    if is_json:
        head = {name: value for name, value in head.items() if name in _File.model_fields}
    common = _common(path, head, key)
    found = []
    for line, entry in zip(lines, entries, strict=True):
        location = f"{path}:{line}"
        if is_json and isinstance(entry, dict):  # made elsewhere, for more readers than this one
            entry = {name: value for name, value in entry.items() if name in CaseEntry.model_fields}
        found.append(LocatedCase(_case(entry, location), location, common.policy, common.mode, path.parent))
    return found


def _common(path: Path, head: dict[str, Any], key: str | None) -> _File:
    try:
        return _File.model_validate({name: value for name, value in head.items() if name != key})
    except pydantic.ValidationError as exc:
        raise ConfigError(f"{path}: {_fault(exc, _File)}") from exc


def _case(entry: Any, location: str) -> CaseEntry:
    if not isinstance(entry, dict):
        raise ConfigError(f"{location}: a case is a mapping with call: and expect:")
    try:
        case = CaseEntry.model_validate(entry)
    except pydantic.ValidationError as exc:
        raise ConfigError(f"{location}: {_fault(exc, CaseEntry)}") from exc
    if (case.call is None) == (case.command is None):
        raise ConfigError(f"{location}: write either call: or command:")
    if case.rules is not None and case.policy is not None:
        raise ConfigError(f"{location}: a case has rules: of its own or a policy:, not both")
    if {case.expect, *case.also_ok} & set(case.must_not):
        raise ConfigError(f"{location}: what is expected must not be in must_not:")
    if not case.cwd.startswith("/"):
        raise ConfigError(f"{location}: cwd: is a folder of the container and begins with /")
    return case


def _fault(exc: pydantic.ValidationError, shape: type[BaseModel]) -> str:
    fault = exc.errors(include_url=False)[0]
    key = ".".join(str(part) for part in fault["loc"])
    if fault["type"] == "extra_forbidden":
        return f"unknown key {key!r}; known are {', '.join(shape.model_fields)}"
    if fault["type"] == "missing":
        return f"{key}: is missing"
    if fault["type"].startswith(("dict_type", "model_type", "dataclass_")):
        return f"{key}: must be a mapping"
    return f"{key}: {fault['msg'].removeprefix('Value error, ').replace('Input should be', 'must be')}"


def _text(path: Path) -> str:
    try:
        if not stat.S_ISREG(path.stat().st_mode):
            raise ConfigError(f"{path}: a file of cases is a regular file")
        with path.open("rb") as file:
            raw = file.read(MAX_FILE_BYTES + 1)
    except OSError as exc:
        raise ConfigError(f"{path}: the cases cannot be read: {exc.strerror}") from exc
    if len(raw) > MAX_FILE_BYTES:
        raise ConfigError(f"{path}: the file is longer than {MAX_FILE_BYTES // 1024**2} MiB")
    try:
        return raw.decode("utf-8-sig")
    except UnicodeDecodeError as exc:
        raise ConfigError(f"{path}: it is not UTF-8 text (byte {exc.start})") from exc


def _parsed(path: Path, text: str) -> tuple[Any, list[int], bool]:
    """The data, the line of every case, and whether it is JSON. JSON is read as such: its escapes are not YAML's."""
    if text.lstrip()[:1] in ("{", "["):
        try:
            return json.loads(text), [text.count("\n", 0, at) + 1 for at in _case_offsets(text)], True
        except (ValueError, RecursionError) as exc:
            if path.suffix == ".json":
                raise ConfigError(f"{path}: not valid JSON: {exc}") from exc
    return *_parsed_yaml(path, text), False


def _case_offsets(text: str) -> Iterator[int]:
    """Where each case begins in a JSON text that is known to be valid."""
    decoder = json.JSONDecoder()

    def skip(at: int) -> int:
        while at < len(text) and text[at] in " \t\r\n,:":
            at += 1
        return at

    at = skip(0)
    if text[at] == "{":
        at = skip(at + 1)
        while text[at] != "}":
            key, at = decoder.raw_decode(text, at)
            at = skip(at)
            if key in _LISTS and text[at] == "[":
                break
            at = skip(decoder.raw_decode(text, at)[1])
        else:
            return
    at = skip(at + 1)
    while text[at] != "]":
        yield at
        at = skip(decoder.raw_decode(text, at)[1])


def _parsed_yaml(path: Path, text: str) -> tuple[Any, list[int]]:
    try:
        for event in yaml.parse(text, Loader=_LOADER):
            if isinstance(event, yaml.AliasEvent):
                raise ConfigError(f"{path}: YAML aliases (*{event.anchor}) are not taken; write the value out")
        root = yaml.compose(text, Loader=_LOADER)
        _refuse_repeats(root, path)
        data = yaml.load(text, Loader=_LOADER)
    except yaml.YAMLError as exc:
        mark = getattr(exc, "problem_mark", None)
        line = f":{mark.line + 1}" if mark is not None else ""
        raise ConfigError(f"{path}{line}: not valid YAML: {getattr(exc, 'problem', None) or exc}") from exc
    except RecursionError as exc:
        raise ConfigError(f"{path}: it is nested too deeply") from exc
    nodes = root
    if isinstance(root, yaml.MappingNode):
        nodes = next((value for key, value in root.value if key.value in _LISTS), None)
    items = nodes.value if isinstance(nodes, yaml.SequenceNode) else []
    return data, [_line(item) for item in items]


def _line(node: yaml.Node) -> int:
    return node.start_mark.line + 1 if node.start_mark is not None else 1


def _refuse_repeats(root: Any, path: Path) -> None:
    """A key that is there twice is a slip, and the second would silently win."""
    waiting = [root]
    while waiting:
        node = waiting.pop()
        if isinstance(node, yaml.MappingNode):
            names = [key.value for key, _ in node.value]
            for key, value in node.value:
                if isinstance(key.value, str) and names.count(key.value) > 1:
                    raise ConfigError(f"{path}:{_line(key)}: the key {key.value!r} is there twice")
                waiting.append(value)
        elif isinstance(node, yaml.SequenceNode):
            waiting += node.value
