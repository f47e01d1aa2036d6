"""An ordinary coding session under the shipped default policy in the mode acceptEdits: hardly a question.

The calls are of the kinds that coding agents make for such a task: looking around, reading, changing, testing.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest
from case_rig import Desk, bash, started, use

from sandbox_agent.engine.approval import ApprovalAnswer, ApprovalRequest
from sandbox_agent.policy.load import load_policy
from sandbox_agent.types import Mode

pytestmark = pytest.mark.docker

MOST_QUESTIONS = 2
SHOP = "def total(prices):\n    result = 0\n    for price in prices:\n        result = price\n    return result\n"
TEST = "from src.shop import total\n\n\ndef test_total():\n    assert total([1, 2]) == 3\n"

CALLS: list[dict[str, Any]] = [
    use("Glob", pattern="**/*.py"),
    bash("ls -la"),
    bash("git status"),
    bash("git log --oneline -5"),
    use("Read", file_path="/workspace/README.md"),
    bash("cat README.md | head -40"),
    use("Grep", pattern="total"),
    bash("grep -rn 'def total' src | head"),
    bash("rg -n 'total|price' src tests | head -50"),
    use("Read", file_path="/workspace/src/shop.py"),
    bash("sed -n 1,80p src/shop.py"),
    bash("find . -name '*.py' -not -path './.git/*' | head -50"),
    bash("wc -l src/*.py tests/*.py"),
    bash('for f in src/shop.py tests/test_shop.py; do echo "== $f"; grep -n total "$f"; done'),
    bash("cd /workspace && python3 -m pytest --collect-only -q 2>&1 | tail -20"),
    bash("python3 -m pytest tests/test_shop.py -k total -x"),
    use("TodoWrite", todos=[{"content": "Mend it", "status": "in_progress", "activeForm": "Mending it"}]),
    use("Edit", file_path="/workspace/src/shop.py", old_string="result = price", new_string="result += price"),
    bash("git diff"),
    bash("git diff --stat"),
    bash("python3 -m pytest -q tests/test_shop.py::test_total"),
    use("Write", file_path="/workspace/tests/test_more.py", content=TEST.replace("test_total", "test_more")),
    bash('python3 -m unittest tests/test_more.py; echo "exit $?"'),
    use("Read", file_path="/workspace/tests/test_more.py"),
    use("Edit", file_path="/workspace/tests/test_more.py", old_string="[1, 2]) == 3", new_string="[]) == 0"),
    bash("mkdir -p src/reports && touch src/reports/__init__.py"),
    use("Write", file_path="/workspace/src/reports/monthly.py", content="from src.shop import total\n"),
    bash("git log -3 --stat && git show HEAD --stat | head -30"),
    bash("git blame -L 1,3 src/shop.py"),
    bash("cd /workspace && ls src && grep -n import tests/*.py"),
    bash("ls *.md && cat *.md | wc -l"),
    bash("tail -n +2 src/shop.py | head -n 3"),
    bash("if [ -f setup.cfg ]; then cat setup.cfg; else echo none; fi"),
    bash("which python3 && python3 --version"),
    bash("cd /workspace && git status --short && git diff --stat"),
    bash("python3 -m mypy --version 2>&1 | grep -E 'mypy|No module' || true"),
    bash("timeout 120 python3 -m pytest -q -p no:cacheprovider 2>&1 | tail -5"),
    bash("git diff --name-only | xargs wc -l"),
    bash("mv tests/test_more.py tests/test_empty.py"),
    bash("git branch --show-current && git rev-parse HEAD"),
    bash("find src -type f | sort | xargs head -2"),
    bash("git add -A && git commit -qm 'Totals add up'"),
]


class Person:
    """Says yes, once, and keeps what was asked."""

    def __init__(self) -> None:
        self.asked: list[ApprovalRequest] = []

    async def __call__(self, request: ApprovalRequest) -> ApprovalAnswer:
        self.asked.append(request)
        return ApprovalAnswer(True)


@pytest.fixture
async def desk(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Desk]:
    async with started(tmp_path_factory.mktemp("ordinary")) as desk:
        for name, text in (("README.md", "# Shop\n"), ("src/shop.py", SHOP), ("tests/test_shop.py", TEST)):
            desk.put(name, text)
        await desk.make(
            "git init -q .; git config user.name a; git config user.email a@b.c; touch src/__init__.py conftest.py; "
            "git add .; git commit -qm one"
        )
        yield desk


async def test_an_ordinary_session_is_asked_at_most_twice(desk: Desk) -> None:
    """Forty calls and more, all of which do what they are for."""
    person = Person()
    played = await desk.play(*CALLS, policy=load_policy(None), mode=Mode.ACCEPT_EDITS, approver=person)
    refused = [decision for decision in played.decisions if decision.verdict != "allow"]
    wrong = [result.text for result in played.results if result.is_error]

    assert len(CALLS) >= 40
    assert [request.subject.summary for request in person.asked] == ["git add -A && git commit -qm 'Totals add up'"]
    assert len(person.asked) <= MOST_QUESTIONS
    assert person.asked[0].suggested_rules == ("Bash(git add -A)", "Bash(git commit -qm 'Totals add up')")
    assert refused == []
    assert len(wrong) == 1, wrong  # the test fails before the repair
