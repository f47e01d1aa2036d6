"""The pool's order and its treatment of equal names, the strict defaults of a tool, and the cut of long results."""

from __future__ import annotations

from pathlib import Path

import pytest
from pydantic import BaseModel

from sandbox_agent.tools import pool as pool_room
from sandbox_agent.tools.base import Tool, ToolContext, build_tool
from sandbox_agent.tools.cap import cap
from sandbox_agent.tools.pool import DroppedTool, assemble_tool_pool, builtin_tools
from sandbox_agent.types import ToolResult


class Nothing(BaseModel):
    pass


async def _run(value: Nothing, ctx: ToolContext) -> ToolResult:
    return ToolResult("done")


def tool(name: str, source: str = "builtin") -> Tool:
    return build_tool(name=name, description="A tool.", input_model=Nothing, run=_run, source=source)


def test_builtins_come_first_and_both_are_sorted() -> None:
    """The order depends on names alone, so the request's prefix stays the same."""
    pool = assemble_tool_pool([tool("Write"), tool("Bash")], [tool("mcp__b__x", "b"), tool("mcp__a__y", "a")])
    assert pool.names() == ("Bash", "Write", "mcp__a__y", "mcp__b__x")
    assert pool.dropped == ()


@pytest.mark.parametrize("name", ["Bash", "bash", "BASH"])
def test_a_builtin_wins_over_an_equal_name(name: str) -> None:
    """A server cannot take the place of a built-in, not even by other case."""
    pool = assemble_tool_pool([tool("Bash")], [tool(name, "mcp:evil")])
    assert pool.names() == ("Bash",)
    assert pool.dropped == (DroppedTool(name, "mcp:evil", "builtin"),)


def test_of_two_servers_the_same_one_wins_in_any_order() -> None:
    """Which of two equal tools stays does not depend on which server answered first."""
    one, two = tool("x", "mcp:one"), tool("x", "mcp:two")
    assert assemble_tool_pool([], [one, two]) == assemble_tool_pool([], [two, one])
    assert assemble_tool_pool([], [two, one]).dropped == (DroppedTool("x", "mcp:two", "mcp:one"),)


def test_a_tool_is_found_by_its_exact_name() -> None:
    """Other case is another name."""
    pool = assemble_tool_pool(builtin_tools())
    assert pool.get("Read") is not None
    assert pool.get("read") is None


def test_every_file_with_a_tool_is_found() -> None:
    """The built-ins are the files of the folder, in the order of their names."""
    folder = Path(pool_room.__file__).parent
    files = [file for file in folder.glob("*.py") if "\nTOOL = build_tool(" in file.read_text("utf-8")]
    names = [found.name for found in builtin_tools()]
    assert names == sorted(names)
    assert len(names) == len(files)
    assert {"Bash", "Edit", "Glob", "Grep", "NotebookEdit", "Read", "TodoWrite", "Write"} <= set(names)


def test_what_a_tool_does_not_claim_is_false() -> None:
    """Left out, the predicates are the strict ones."""
    plain = tool("x")
    assert (plain.read_only(Nothing()), plain.parallel_safe(Nothing()), plain.edits(Nothing())) == (False,) * 3


@pytest.mark.parametrize(
    ("name", "flags"),
    [
        ("AskUserQuestion", (True, False, False)),
        ("Bash", (False, False, False)),
        ("Edit", (False, False, True)),
        ("EnterPlanMode", (True, False, False)),
        ("ExitPlanMode", (True, False, False)),
        ("Glob", (True, True, False)),
        ("Grep", (True, True, False)),
        ("NotebookEdit", (False, False, True)),
        ("Read", (True, True, False)),
        ("TaskOutput", (True, True, False)),
        ("TaskStop", (True, False, False)),
        ("TodoWrite", (True, False, False)),
        ("WebFetch", (True, True, False)),
        ("Write", (False, False, True)),
    ],
)
def test_what_the_builtins_claim(name: str, flags: tuple[bool, bool, bool]) -> None:
    """read_only, parallel_safe and edits of each; a command that changes something for Bash."""
    [found] = [each for each in builtin_tools() if each.name == name]
    inputs = {"Bash": {"command": "rm -rf x"}, "Glob": {"pattern": "*"}, "Grep": {"pattern": "x"}}
    value = found.input_model.model_construct(**inputs.get(name, {}))
    assert (found.read_only(value), found.parallel_safe(value), found.edits(value)) == flags


def test_a_long_text_keeps_head_and_tail() -> None:
    """The note between says how much is missing."""
    result = cap(ToolResult("a" * 600 + "b" * 600), 1000)
    assert result.content == "a" * 500 + "\n[... 200 of 1,200 characters are not shown here ...]\n" + "b" * 500
    assert result.meta["truncated"] is True


def test_text_blocks_share_the_budget_and_pictures_stay() -> None:
    """Blocks are cut in order; what is not text is not touched."""
    picture = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "x" * 5000}}
    blocks = ({"type": "text", "text": "a" * 800}, picture, {"type": "text", "text": "b" * 800})
    result = cap(ToolResult(blocks), 1000)
    assert result.content[:2] == blocks[:2]
    assert str(result.content[2]).count("b") < 250
    assert "600 of 800 characters" in str(result.content[2])


def test_a_result_that_fits_is_left_alone() -> None:
    """Nothing is added to it."""
    result = ToolResult("a" * 1000, meta={"exit_code": 0})
    assert cap(result, 1000) is result
