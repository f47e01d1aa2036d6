"""Which tools a session has, in an order that does not change: the request's prefix stays the same for the cache."""

from __future__ import annotations

import pkgutil
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from sandbox_agent import registry
from sandbox_agent.tools.base import Tool
from sandbox_agent.types import JsonObject

_ROOM = Path(__file__).parent


@dataclass(frozen=True, slots=True)
class DroppedTool:
    """A tool that was left out because of its name; `kept` is the source of the one that stayed."""

    name: str
    source: str
    kept: str


@dataclass(frozen=True, slots=True)
class ToolPool:
    """The tools of an agent, in the order the model sees them. `absent` says of tools that others have why they are not
    here, by their name."""

    tools: tuple[Tool, ...]
    dropped: tuple[DroppedTool, ...] = ()
    absent: Mapping[str, str] = field(default_factory=dict)

    def get(self, name: str) -> Tool | None:
        """The tool of exactly this name."""
        return next((tool for tool in self.tools if tool.name == name), None)

    def names(self) -> tuple[str, ...]:
        return tuple(tool.name for tool in self.tools)

    def definitions(self) -> tuple[JsonObject, ...]:
        """All tools as the Messages API takes them."""
        return tuple(tool.definition() for tool in self.tools)


def assemble_tool_pool(builtins: Iterable[Tool], mcp: Iterable[Tool] = ()) -> ToolPool:
    """Built-ins sorted by name, then the others sorted by name; the first of a name stays, so built-ins win.

    Names that differ only in upper and lower case are the same name here: a model, a rule or a person would mix them
    up. Of several others with one name the one whose source sorts first stays, whatever order they came in.
    """
    ordered = [*sorted(builtins, key=_key), *sorted(mcp, key=_key)]
    taken: dict[str, Tool] = {}
    dropped: list[DroppedTool] = []
    for tool in ordered:
        winner = taken.setdefault(tool.name.casefold(), tool)
        if winner is not tool:
            dropped.append(DroppedTool(tool.name, tool.source, winner.source))
    return ToolPool(tuple(taken.values()), tuple(dropped))


def builtin_tools() -> tuple[Tool, ...]:
    """The `TOOL` of every file in this folder that has one, sorted by name: adding a tool is adding a file."""
    found: list[Tool] = []
    for module in pkgutil.iter_modules([str(_ROOM)]):
        tool = getattr(registry.load("tools", module.name), "TOOL", None)
        if isinstance(tool, Tool):
            found.append(tool)
    return tuple(sorted(found, key=_key))


def _key(tool: Tool) -> tuple[str, str]:
    return (tool.name, tool.source)
