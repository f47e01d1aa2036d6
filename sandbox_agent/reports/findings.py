"""The findings of a session: what the model reported with ReportFindings, read back from the record as it is."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from sandbox_agent.reports.story import Story
from sandbox_agent.types import JsonObject

TOOL = "ReportFindings"
Level = Literal["error", "warning", "note"]
_LEVELS: dict[str, Level] = {"critical": "error", "high": "error", "medium": "warning"}


@dataclass(frozen=True, slots=True)
class Finding:
    """One finding; `file` is relative to the workspace, `line` from 1, None where it is the file as a whole."""

    file: str
    line: int | None
    summary: str
    failure_scenario: str
    category: str | None
    severity: str | None
    verdict: str | None
    agent_id: str

    @property
    def level(self) -> Level:
        """What it weighs, as SARIF counts: without a severity it is a warning."""
        return "warning" if self.severity is None else _LEVELS.get(self.severity, "note")


def find(story: Story) -> list[Finding]:
    """All findings in the order they were reported, each once. A call that was refused reported nothing."""
    found: dict[Finding, None] = {}
    for call in story.own_calls:
        if call.tool != TOOL or call.finished is None or call.finished.is_error:
            continue
        given = call.finished.meta.get("findings")
        for one in given if isinstance(given, list) else ():
            if isinstance(one, dict) and _text(one, "file"):
                found[_finding(one, call.agent_id)] = None
    return list(found)


def _finding(one: JsonObject, agent_id: str) -> Finding:
    line = one.get("line")
    return Finding(
        file=_text(one, "file") or "",
        line=line if type(line) is int and line > 0 else None,
        summary=_text(one, "summary") or "",
        failure_scenario=_text(one, "failure_scenario") or "",
        category=_text(one, "category"),
        severity=_text(one, "severity"),
        verdict=_text(one, "verdict"),
        agent_id=agent_id,
    )


def _text(one: JsonObject, name: str) -> str | None:
    value = one.get(name)
    return value if isinstance(value, str) and value else None
