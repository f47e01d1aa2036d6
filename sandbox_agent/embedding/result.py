"""What a run came to, as a value."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from sandbox_agent.events import CheckFinished
from sandbox_agent.types import JsonObject, Usage
from sandbox_agent.workspaces.base import Change


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """How a task ended.

    `status` is one of done, denied (done, but calls were denied), failed, limit, sandbox_error, model_error,
    interrupted; `error` says why, None where it is done. `text` is the agent's last answer. `turns`, `usage`,
    `cost_usd` (None where the price is not known) and `duration_s` are of this task; `model_usage` is the usage by the
    model's name, that of sub-agents with it. `changes` are those of the session's view of the folder, empty until
    somebody asked for them; what of them went to the folder is in `applied`, what did not in `unapplied`, and why not
    in `conflicts`. `checks` are those that were asked for, known once the changes are; where one has not passed, what
    would be `done` or `denied` is `failed`. `structured_output` is the answer in the form of `answer_schema`. `record`
    is the file with everything that happened.
    """

    session_id: str
    status: str
    text: str
    error: str | None
    turns: int
    usage: Usage
    cost_usd: float | None
    duration_s: float
    record: Path
    model_usage: Mapping[str, Usage] = field(default_factory=dict)
    denials: tuple[JsonObject, ...] = ()
    changes: tuple[Change, ...] = ()
    applied: tuple[str, ...] = ()
    unapplied: tuple[str, ...] = ()
    conflicts: Mapping[str, str] = field(default_factory=dict)
    checks: tuple[CheckFinished, ...] = ()
    structured_output: JsonObject | None = None

    @property
    def ok(self) -> bool:
        """Whether the task was done and nothing was denied."""
        return self.status == "done"
