"""ReportFindings: what it takes, what it keeps, and that the model only has it where an allow rule names it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from engine_session import make_session, play

from sandbox_agent.engine import offered
from sandbox_agent.policy.load import parse_policy
from sandbox_agent.sandboxes.fake import FakeSandbox
from sandbox_agent.testing.tool_calls import call, context, refused
from sandbox_agent.tools.report_findings import TOOL


def finding(file: str = "src/a.py", **fields: Any) -> dict[str, Any]:
    return {"file": file, "summary": "It is wrong.", "failure_scenario": "Somebody calls it.", **fields}


async def test_findings_are_kept_with_paths_of_the_workspace() -> None:
    """However the model spells them; what it left out is null."""
    paths = ["src/a.py", "/workspace/src/../src/a.py", "./src//a.py"]
    result = await call(TOOL, context(FakeSandbox()), {"findings": [finding(path, line=3) for path in paths]})
    nothing = {"category": None, "severity": None, "verdict": None}
    assert result.meta["findings"] == [finding(line=3) | nothing] * 3
    assert str(result.content).startswith("Reported: 3 findings (3 unrated).")
    none = await call(TOOL, context(FakeSandbox()), {"findings": []})
    assert str(none.content).startswith("Reported: no findings.")


@pytest.mark.parametrize("path", ["/etc/passwd", "../x", "/workspace", "~/x", "."])
async def test_what_is_not_in_the_workspace_is_no_place_of_a_finding(path: str) -> None:
    """All are refused, so that no report is half of what was found."""
    text = await refused(TOOL, context(FakeSandbox()), findings=[finding(), finding(path)])
    assert text.startswith("Nothing was reported: finding 2 names")


@pytest.mark.parametrize(
    "bad", [{"line": 0}, {"severity": "blocker"}, {"summary": " "}, {"failure_scenario": ""}, {"colour": "red"}]
)
async def test_a_misshapen_finding_is_refused(bad: dict[str, Any]) -> None:
    """And so are more than 32."""
    assert await refused(TOOL, context(FakeSandbox()), findings=[finding(**bad)])
    assert await refused(TOOL, context(FakeSandbox()), findings=[finding()] * 33)


@pytest.mark.parametrize(
    ("rules", "there"),
    [("allow: [ReportFindings]", True), ("allow: [Read]", False)],
)
async def test_the_model_has_it_where_an_allow_rule_names_it(tmp_path: Path, rules: str, there: bool) -> None:
    """Elsewhere a call is told that nobody wants any."""
    async with make_session(
        [{"text": "done"}], tmp_path, tools=[TOOL], policy=parse_policy(f"rules: {{{rules}}}", "p")
    ) as session:
        offered.attach(session, ask=None, opens=None, planned=False)
        assert (session.pool.get("ReportFindings") is not None) is there
        assert ("ReportFindings" in session.pool.absent) is not there
        await play(session)
