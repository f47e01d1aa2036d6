"""ReportFindings: what a review found, as data for the record and for reports (SARIF). It touches nothing."""

from __future__ import annotations

from collections import Counter
from typing import Annotated, Literal

from pydantic import Field, StringConstraints

from sandbox_agent.errors import ToolError
from sandbox_agent.prompts import prompt
from sandbox_agent.tools.base import ToolContext, ToolInput, build_tool
from sandbox_agent.types import WORKSPACE_MOUNT, Subject, ToolResult

NAME = "ReportFindings"
MAX_FINDINGS = 32

Line = Annotated[str, StringConstraints(min_length=1, max_length=500, strip_whitespace=True)]
Word = Annotated[str, StringConstraints(min_length=1, max_length=80, strip_whitespace=True)]


class Found(ToolInput):
    """One finding."""

    file: Annotated[str, StringConstraints(min_length=1, max_length=4096)] = Field(
        description="The file it is in, in the workspace."
    )
    line: int | None = Field(default=None, ge=1, le=100_000_000, description="The line, from 1.")
    summary: Line = Field(description="What is wrong, in one sentence.")
    failure_scenario: Annotated[str, StringConstraints(min_length=1, max_length=8_000)] = Field(
        description="What has to happen for it to do harm, and what comes of it."
    )
    category: Word | None = Field(default=None, description="A word for its kind, for example: injection.")
    severity: Literal["critical", "high", "medium", "low", "info"] | None = None
    verdict: Word | None = Field(default=None, description="How sure it is, for example: confirmed, plausible.")


class ReportFindingsInput(ToolInput):
    """See prompts/tools/report_findings.md."""

    findings: list[Found] = Field(max_length=MAX_FINDINGS)


async def run(value: ReportFindingsInput, ctx: ToolContext) -> ToolResult:
    """Take them over; they live in the events of the run, nowhere else.

    Raises:
        ToolError: a file is not in the workspace.
    """
    found = []
    for number, one in enumerate(value.findings, start=1):
        path = ctx.container_path(one.file)
        inside = path.removeprefix(WORKSPACE_MOUNT + "/")
        if inside in (path, ""):
            raise ToolError(
                f"Nothing was reported: finding {number} names {one.file!r}, which is not in {WORKSPACE_MOUNT}. Name "
                f"the file of the workspace that has to change, and send all findings again."
            )
        found.append({**one.model_dump(), "file": inside})
    text = f"Reported: {_counted(value)}. Whoever reads the report of this session sees them."
    return ToolResult(text, meta={"findings": found})


def _counted(value: ReportFindingsInput) -> str:
    counts = Counter(one.severity or "unrated" for one in value.findings)
    parts = ", ".join(f"{number} {severity}" for severity, number in counts.items())
    what = "1 finding" if len(value.findings) == 1 else f"{len(value.findings)} findings"
    return f"{what} ({parts})" if parts else "no findings"


def _subject(value: ReportFindingsInput, ctx: ToolContext) -> Subject:
    return Subject(summary=_counted(value))


TOOL = build_tool(
    name=NAME,
    description=prompt("tools/report_findings"),
    input_model=ReportFindingsInput,
    run=run,
    # It only says something, as an answer does; but two reports at once would come in no order.
    read_only=True,
    subject=_subject,
)
