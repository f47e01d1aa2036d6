"""Glob in a real container: which files, in which order, how many, and how fast."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
from search_tree import TREE
from tool_box import ToolBox, refused, said, started

from sandbox_agent.policy.load import load_policy
from sandbox_agent.testing.tool_calls import HOST_FOLDER
from sandbox_agent.tools.glob import TOOL as GLOB

pytestmark = pytest.mark.docker


@pytest.fixture(scope="module")
async def box(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[ToolBox]:
    async with started(tmp_path_factory.mktemp("glob")) as box:
        await box.make(TREE)
        yield box


@pytest.mark.parametrize(
    ("fields", "found"),
    [
        ({"pattern": "src/**/*.py"}, {"src/a.py", "src/deep/b.py"}),
        ({"pattern": "*.py"}, set()),
        ({"pattern": "*.{log,dat}"}, {"a.log", "keep.log", "bin.dat"}),
        ({"pattern": "/workspace/src/*.py"}, {"src/a.py"}),
        ({"pattern": f"{HOST_FOLDER}/src/*.py"}, {"src/a.py"}),
        ({"pattern": "**/*.yml"}, {".github/workflows/ci.yml"}),
        ({"pattern": "deep/*", "path": "src"}, {"src/deep/b.py"}),
        ({"pattern": "src/a.py"}, {"src/a.py"}),
        ({"pattern": "build/*"}, {"build/out.txt"}),
        ({"pattern": "**/description"}, set()),
    ],
)
async def test_glob_lists_files(box: ToolBox, fields: dict[str, str], found: set[str]) -> None:
    """Braces, absolute patterns, hidden and ignored files; never .git, never directories."""
    text = await said(GLOB, box.fresh(), **fields)
    assert {line for line in text.split("\n") if not line.startswith("[")} == found


async def test_glob_of_nothing_helps(box: ToolBox) -> None:
    """A pattern for one level names the one for all."""
    text = await said(GLOB, box.fresh(), pattern="*.py")
    assert text == "[No files match '*.py' in /workspace itself. For all levels use \"**/*.py\".]"


@pytest.mark.parametrize(
    ("fields", "why"),
    [
        ({"pattern": "*", "path": "scr"}, "Did you mean /workspace/src"),
        ({"pattern": "*", "path": "src/a.py"}, "is a file"),
        ({"pattern": "*/../x"}, "before the first wildcard"),
        ({"pattern": "{a,b}" * 20}, "more than 512"),
    ],
)
async def test_glob_of_what_is_not_there_is_an_error(box: ToolBox, fields: dict[str, str], why: str) -> None:
    """The place and the pattern are checked."""
    assert why in await refused(GLOB, box.fresh(), **fields)


async def test_glob_sorts_newest_first_and_ties_by_path(box: ToolBox) -> None:
    """And a hundred at most, with the total."""
    await box.make(
        "mkdir t; cd t; touch -d 2020-01-01 b; touch -r b a c; touch -d 2021-01-01 new; touch -d 2019-01-01 old"
    )
    assert await said(GLOB, box.fresh(), pattern="t/*") == "t/new\nt/a\nt/b\nt/c\nt/old"
    text = await said(GLOB, box.fresh(), pattern="many/*")
    assert text.endswith("[The 100 newest of 300 files. Narrow the pattern to see others.]")


async def test_paths_are_relative_to_where_the_model_stands(box: ToolBox) -> None:
    """Below the working directory relative, elsewhere absolute; a linked folder keeps its own name."""
    ctx = box.fresh()
    ctx.cwd = "/workspace/src"
    assert await said(GLOB, ctx, pattern="**/b.py") == "deep/b.py"
    assert await said(GLOB, ctx, pattern="../sub/*.txt") == "/workspace/sub/anchored.txt"
    assert await said(GLOB, box.fresh(), pattern="*.py", path="linked/src") == "linked/src/a.py"


async def test_what_rules_keep_from_being_read_is_not_listed(box: ToolBox) -> None:
    """However many newer files of that kind there are; and it is said that they are left out."""
    await box.make(
        "mkdir -p kept/secret; echo > kept/open.cfg; touch -d '1 day ago' kept/open.cfg; touch kept/secret/{1..150}.cfg"
    )
    ctx = box.fresh()
    ctx.withheld = load_policy(None, deny=["Read(/kept/secret/**)"]).withheld
    text = await said(GLOB, ctx, pattern="**/*.cfg", path="kept")
    note = "[Left out, if there are any: files that Read(/kept/secret/**) keeps from being read.]"
    assert text == f"kept/open.cfg\n\n{note}"
