"""What the read-only list lets run unasked really reads only: every option that the programs of the image name."""

from __future__ import annotations

import random
import shlex
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

import pytest
from listed_commands import commands, listed, options, programs
from shell_verdicts import outcomes
from tool_box import ToolBox, started

pytestmark = pytest.mark.docker
TOGETHER = 20
"""Commands in one text: what one of them changed is then looked for by itself."""
TEXTS_AT_ONCE = 20
TRIED = 4000
LIMIT_S = 20.0


@pytest.fixture
async def box(tmp_path: Path) -> AsyncIterator[ToolBox]:
    async with started(tmp_path) as made:
        yield made


async def that_did_something(box: ToolBox, groups: Sequence[Sequence[str]]) -> list[Sequence[str]]:
    """The groups of commands after which the marker had run or a file was another one."""
    found: list[Sequence[str]] = []
    for at in range(0, len(groups), TEXTS_AT_ONCE):
        some = groups[at : at + TEXTS_AT_ONCE]
        texts = ["\n".join(group) for group in some]
        done = await outcomes(box.sandbox, texts, limit_s=LIMIT_S)
        found += [group for group, outcome in zip(some, done, strict=True) if outcome.runs or outcome.changed]
    return found


@pytest.mark.soak
@pytest.mark.timeout(1800)
async def test_a_listed_command_changes_and_runs_nothing(box: ToolBox) -> None:
    """Of all programs, subcommands and options some thousand, other ones every time."""
    known = await options(box.sandbox, programs())
    every = [words for head, names in known.items() for words in commands(head, names) if listed(words)]
    tried = random.Random().sample(every, min(TRIED, len(every)))
    lines = ["timeout -s KILL 0.5 " + shlex.join(words) + " </dev/null" for words in tried]

    groups = [lines[at : at + TOGETHER] for at in range(0, len(lines), TOGETHER)]
    suspects = [line for group in await that_did_something(box, groups) for line in group]

    assert len(tried) == TRIED
    assert await that_did_something(box, [[line] for line in suspects]) == []
