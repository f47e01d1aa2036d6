"""Shell forms that bash really runs: whatever ran, the judge had seen; data that is evaluated as code is asked.

The forms come from a grammar (tests/data/shell_grammar.yaml) in which a marker program stands in every place that can
run one; `make soak` tries 5,000 fresh ones.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, Sequence
from pathlib import Path

import pytest
from shell_forms import Form, drawn
from shell_verdicts import faults, outcomes
from tool_box import ToolBox, started

pytestmark = pytest.mark.docker
BATCH = 100
LEAST_THAT_RUN = 0.8
"""Of all; the rest is not valid, or takes another way."""


@pytest.fixture
async def box(tmp_path: Path) -> AsyncIterator[ToolBox]:
    async with started(tmp_path) as made:
        yield made


def batches(forms: Sequence[Form]) -> Iterator[Sequence[Form]]:
    return (forms[at : at + BATCH] for at in range(0, len(forms), BATCH))


async def check(box: ToolBox, forms: Sequence[Form]) -> None:
    """Run all of them, then name those that the judge got wrong."""
    wrong: list[tuple[str, tuple[tuple[str, ...], ...], list[str]]] = []
    ran = 0
    for batch in batches(forms):
        for form, outcome in zip(batch, await outcomes(box.sandbox, [form.text for form in batch]), strict=True):
            ran += bool(outcome.runs)
            found = faults(form, outcome)
            wrong += [(form.text, outcome.runs, found)] if found else []
    assert not wrong
    assert ran >= LEAST_THAT_RUN * len(forms)


async def test_what_runs_was_seen(box: ToolBox) -> None:
    """300 forms."""
    await check(box, drawn(300))


@pytest.mark.soak
@pytest.mark.timeout(1800)
async def test_what_runs_was_seen_in_the_long_run(box: ToolBox) -> None:
    """5,000 forms."""
    await check(box, drawn(5000))
