"""Which tools a session has: the built-in ones, and those of the embedding program, which run on this machine."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from sandbox_agent.errors import ConfigError
from sandbox_agent.policy.policy import Policy
from sandbox_agent.tools.base import Tool
from sandbox_agent.tools.pool import ToolPool, assemble_tool_pool, builtin_tools

SOURCE = "program"
"""The `source` of every tool of the embedding program."""


def pool_of(policy: Policy, own: Sequence[Tool], served: Sequence[Tool] = ()) -> ToolPool:
    """The tools the model sees; a tool that a rule denies altogether is not among them.

    `own` are the program's, `served` those of MCP servers inside the program.

    Raises:
        ConfigError: a tool of the program has a name that it cannot have.
    """
    builtins = builtin_tools()
    _check_names(own, builtins)
    own = [replace(tool, source=SOURCE) for tool in own]  # whatever it says of itself
    hidden = policy.hidden_tools([tool.name for tool in (*builtins, *own, *served)])
    seen = [[tool for tool in tools if tool.name not in hidden] for tools in (builtins, (*own, *served))]
    return assemble_tool_pool(*seen)


def names_of(own: Sequence[Tool]) -> list[str]:
    """Of all tools that there can be, those that a rule hides among them."""
    return [tool.name for tool in (*builtin_tools(), *own) if isinstance(tool, Tool)]


def told(pool: ToolPool) -> tuple[str, ...]:
    """What the person is to know of the program's tools at the start."""
    names = [tool.name for tool in pool.tools if tool.source != "builtin"]
    return (f"tools that run in the program, outside the container: {', '.join(names)}",) if names else ()


def _check_names(own: Sequence[Tool], builtins: Sequence[Tool]) -> None:
    taken = {tool.name.casefold(): f"the built-in tool {tool.name}" for tool in builtins}
    for tool in own:
        if not isinstance(tool, Tool):
            raise ConfigError(f"tools has a {type(tool).__name__} in it; make a tool with build_tool")
        if tool.name.casefold().startswith("mcp__"):
            raise ConfigError(f"the tool {tool.name!r}: names in mcp__ are of MCP servers; rename it")
        if tool.name.casefold() in taken:
            raise ConfigError(f"the tool {tool.name!r} is called like {taken[tool.name.casefold()]}; rename it")
        taken[tool.name.casefold()] = f"another one of the program, {tool.name}"
