"""The types of sub-agents: what each is told, which tools it has, how far it may go. One Markdown file a type.

The front matter is YAML between two lines of `---`; what follows is the type's own instruction. Types are shipped in
`prompts/agents`, and the person's own lie in `agents/` of their configuration, where a file of a shipped name replaces
it. Nothing of a workspace is ever read as one.
"""

from __future__ import annotations

import fnmatch
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from pydantic import AliasChoices, BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from sandbox_agent.errors import ConfigError, PolicyError
from sandbox_agent.policy.source import Document, parse_document, read_bytes
from sandbox_agent.policy.trust import require_outside
from sandbox_agent.prompts import room
from sandbox_agent.tools.validation import near_names
from sandbox_agent.types import Mode

FOLDER = "agents"
"""Below the person's configuration, and below the prompts."""

MAX_TYPES = 50
MAX_DESCRIPTION_CHARS = 1000

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}\Z")
_PARTS = re.compile(
    r"\A(?:\ufeff)?---[ \t]*\r?\n(?P<front>.*?)^---[ \t]*\r?$\n?(?P<body>.*)\Z", re.DOTALL | re.MULTILINE
)
_OLDER_NAMES = {"Agent": "Task", "BashOutput": "TaskOutput", "AgentOutputTool": "TaskOutput", "KillShell": "TaskStop"}


@dataclass(frozen=True, slots=True)
class AgentType:
    """One type. `tools` are the names or patterns of those it has of its parent's, None is all; `disallowed_tools` are
    taken from that. `model` is another model than the session's, `mode` a permission mode that binds it besides those
    above it, `max_turns` how long one task of it may take. `source` is the file, for people."""

    name: str
    description: str
    instruction: str
    tools: tuple[str, ...] | None = None
    disallowed_tools: tuple[str, ...] = ()
    model: str | None = None
    mode: Mode | None = None
    max_turns: int | None = None
    source: str = ""

    def has(self, tool: str) -> bool:
        """Whether an agent of this type may have a tool of that name, if its parent has it."""
        return (self.tools is None or _matches(tool, self.tools)) and not _matches(tool, self.disallowed_tools)


def _matches(tool: str, patterns: Iterable[str]) -> bool:
    return any(fnmatch.fnmatchcase(tool, pattern) for pattern in patterns)


def _names(value: object) -> object:
    """A list, or names in one text, parted by commas; `Tool(...)` forms are for rules, not for here."""
    return [part.strip() for part in value.split(",") if part.strip()] if isinstance(value, str) else value


_Names = Annotated[tuple[Annotated[str, Field(min_length=1)], ...], BeforeValidator(_names)]


class _Front(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, populate_by_name=True)

    name: str
    description: Annotated[str, Field(min_length=1, max_length=MAX_DESCRIPTION_CHARS)]
    tools: _Names | None = None
    disallowed_tools: _Names = Field(default=(), validation_alias=AliasChoices("disallowed_tools", "disallowedTools"))
    model: Annotated[str, Field(min_length=1)] | None = None
    mode: Mode | None = Field(default=None, validation_alias=AliasChoices("mode", "permissionMode"))
    max_turns: Annotated[int, Field(ge=1, strict=True)] | None = Field(
        default=None, validation_alias=AliasChoices("max_turns", "maxTurns")
    )
    color: str | None = None
    """Of other programs; means nothing here."""


_OTHER_SPELLINGS = {"disallowedTools": "disallowed_tools", "permissionMode": "mode", "maxTurns": "max_turns"}
_FAULTS = {
    "string_too_short": "must not be empty",
    "string_too_long": f"must have at most {MAX_DESCRIPTION_CHARS} characters",
    "string_type": "must be text",
    "tuple_type": "must be a list of names, or names with commas between",
    "enum": f"must be one of {', '.join(mode.value for mode in Mode)}",
    "int_type": "must be a whole number",
    "greater_than_equal": "must be 1 or more",
}
"""What is said of a value in place of the checker's words."""


def load_agent_types(own: Path, tools: Sequence[str], workspace: Path) -> Mapping[str, AgentType]:
    """All types, by name, sorted. One of the person's own replaces a shipped one of its name.

    Args:
        own: the folder of the person's own ones, which may be missing. Files whose name begins with a dot are no types.
        tools: every built-in tool there is; a type that names another one (but for those of MCP servers) is wrong.
        workspace: none of them may lie in there, where the agent could write its own instructions.

    Raises:
        ConfigError: a file cannot be read, is not such a file, lies in the workspace, or two of one folder have one
            name.
    """
    found: dict[str, AgentType] = {}
    for folder in (room(FOLDER), own):
        here: dict[str, AgentType] = {}
        for path in _files(folder):
            if folder == own:
                _require_outside(path, workspace)
            one = read_agent_type(path, tools)
            if one.name in here:
                raise ConfigError(f"{path}: the name {one.name!r} is that of {here[one.name].source} already")
            here[one.name] = one
        found |= here
    if len(found) > MAX_TYPES:
        raise ConfigError(f"{own}: {len(found)} agent types; at most {MAX_TYPES} can be offered to a model")
    return dict(sorted(found.items()))


def _files(folder: Path) -> list[Path]:
    try:
        names = sorted(os.listdir(folder))
    except FileNotFoundError:
        return []
    except OSError as exc:
        raise ConfigError(f"{folder}: the folder of agents' files cannot be read: {exc.strerror}") from exc
    return [folder / name for name in names if name.endswith(".md") and not name.startswith(".")]


def _require_outside(path: Path, workspace: Path) -> None:
    try:
        require_outside([path], workspace)
    except PolicyError as exc:
        raise ConfigError(_said(exc)) from exc


def _said(exc: PolicyError) -> str:
    """What is said of policy files, of an agent's."""
    said = str(exc).replace("mode: and rules:", "name: and description:")
    return re.sub(r"\b(?:the|a) policy\b", "an agent's file", said)


def read_agent_type(path: Path, tools: Sequence[str]) -> AgentType:
    """The type in a file. See `load_agent_types`.

    Raises:
        ConfigError: as there.
    """
    try:
        text = read_bytes(path, str(path)).decode("utf-8")
        parts = _PARTS.match(text)
        if parts is None:
            raise ConfigError(f"{path}:1: an agent's file begins with `---`, its front matter, and another `---`")
        # The line of the opening mark stays, so that lines in messages are those of the file.
        document = parse_document("\n" + parts["front"], str(path))
    except PolicyError as exc:
        raise ConfigError(_said(exc)) from exc
    except UnicodeDecodeError as exc:
        raise ConfigError(f"{path}: not UTF-8 text (byte {exc.start})") from exc
    if document.faults:
        raise ConfigError(str(document.faults[0]))
    front = _front(document)
    if not _NAME.match(front.name):
        raise ConfigError(f"{document.location(('name',))}: name: letters, digits, `-` and `_`, at most 64")
    if not front.description.strip():
        raise ConfigError(f"{document.location(('description',))}: description: must not be empty")
    kind, colon, _ = (front.model or "").partition(":")
    if colon and kind != "anthropic":
        raise ConfigError(f"{document.location(('model',))}: model: the name of another model of the same API, alone")
    instruction = parts["body"].strip()
    if not instruction:
        raise ConfigError(f"{path}: the text below the front matter, which tells the agent what it is, is empty")
    names = {key: _known(document, key, getattr(front, key), tools) for key in ("tools", "disallowed_tools")}
    return AgentType(
        name=front.name,
        description=" ".join(front.description.split()),
        instruction=instruction,
        tools=names["tools"],
        disallowed_tools=names["disallowed_tools"] or (),
        model=None if front.model == "inherit" else front.model,
        mode=front.mode,
        max_turns=front.max_turns,
        source=str(path),
    )


def _front(document: Document) -> _Front:
    for key, value in document.data.items():
        if value is None:  # as good as left out, and that would be every tool
            raise ConfigError(f"{document.location((key,))}: {key} has no value; give it one, or leave the key out")
    try:
        return _Front.model_validate(document.data)
    except ValidationError as exc:
        error = exc.errors(include_url=False)[0]
        key = str(error["loc"][0]) if error["loc"] else ""
        where = document.location((key,))
        if error["type"] == "missing":
            raise ConfigError(f"{where}: {key} is missing") from exc
        if error["type"] == "extra_forbidden":
            other = _OTHER_SPELLINGS.get(key, key)
            other = next((one for one in document.data if one != key and _OTHER_SPELLINGS.get(one, one) == other), "")
            if other in document.data:
                raise ConfigError(f"{where}: {key} is the same as {other}, which is there, too") from exc
            near = near_names(key, _Front.model_fields)
            hint = f" Did you mean {near[0]}?" if near else f" The keys are: {', '.join(_Front.model_fields)}."
            raise ConfigError(f"{where}: unknown key {key!r}.{hint}") from exc
        raise ConfigError(f"{where}: {key}: {_FAULTS.get(error['type'], str(error['msg']))}") from exc


def _known(document: Document, key: str, names: tuple[str, ...] | None, tools: Sequence[str]) -> tuple[str, ...] | None:
    if names is None:
        return None
    names = tuple(_OLDER_NAMES.get(name, name) for name in names)
    key = next((one for one in document.data if _OTHER_SPELLINGS.get(one) == key), key)
    for name in names:
        if not name.startswith("mcp__") and not fnmatch.filter(tools, name):
            plain = name.partition("(")[0]
            if plain != name and plain in tools:
                told = f"a tool is named without brackets: write {plain}; what it may do with it is for rules"
                raise ConfigError(f"{document.location((key,))}: {key}: {told}")
            near = near_names(name, tools)
            hint = f" Did you mean {near[0]}?" if near else f" The tools are: {', '.join(tools)}."
            raise ConfigError(f"{document.location((key,))}: {key}: there is no tool {name!r}.{hint}")
    return names
