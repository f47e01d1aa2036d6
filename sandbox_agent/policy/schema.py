"""The policy file as pydantic sees it: every key has a default, the default is the strict one, unknown keys are errors.

Only shapes live here; `load` turns them into a `Policy` and finds the line of what is wrong.
"""

from __future__ import annotations

import re
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

from sandbox_agent.policy.hooks import HooksSection
from sandbox_agent.policy.policy import DEFAULT_MASKS
from sandbox_agent.types import Mode

_SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*(B|[KMGT]iB|[kKMGT]B)?")
_UNITS = {"B": 1, "KB": 1000, "MB": 1000**2, "GB": 1000**3, "TB": 1000**4} | {
    "KIB": 1024,
    "MIB": 1024**2,
    "GIB": 1024**3,
    "TIB": 1024**4,
}
_MIN_BYTES = 16 * 1024**2


def parse_size(value: Any) -> int:
    """Bytes of `2GiB`, `500 MB` or a plain number of bytes.

    Raises:
        ValueError: it is not a size, or less than 16 MiB, with which no container starts.
    """
    if isinstance(value, bool) or not isinstance(value, int | str):
        raise ValueError("a size such as 2GiB or 500MB")
    match = _SIZE.fullmatch(str(value).strip())
    if match is None:
        raise ValueError("a size such as 2GiB or 500MB")
    size_bytes = int(float(match[1]) * _UNITS[(match[2] or "B").upper()])
    if size_bytes < _MIN_BYTES:
        raise ValueError("at least 16MiB; write the unit, as in 2GiB")
    return size_bytes


def _long_form(value: Any) -> Any:
    return {"rule": value} if isinstance(value, str) else value


def _none_to_empty(value: Any) -> Any:
    """An empty key (`deny:`) means the empty list, as people write it."""
    return [] if value is None else value


class _Section(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)


class RuleEntry(_Section):
    """One rule in the long form; the short form is its text alone."""

    rule: str
    id: str | None = Field(default=None, pattern=r"^[a-z0-9][a-z0-9._-]*$")
    reason: str | None = None
    """Shown to the model and to people; gives the alternative."""
    matches: list[str] = []
    """Examples the rule must cover, checked when the file is loaded."""
    not_matches: list[str] = []
    """Examples the rule must not cover, checked when the file is loaded."""


RuleList = Annotated[
    list[Annotated[RuleEntry, BeforeValidator(_long_form)]],
    BeforeValidator(_none_to_empty),
]


class RulesSection(_Section):
    """Deny beats ask beats allow, whatever the order."""

    deny: RuleList = []
    ask: RuleList = []
    allow: RuleList = []


class SandboxSection(_Section):
    """The container. Fixed at start; no decision changes it."""

    image: str = Field(default="base", min_length=1)
    runtime: str = Field(default="runc", min_length=1)
    network: Literal["none"] = "none"
    """Only "none" in this version."""
    memory: Annotated[int, BeforeValidator(parse_size)] = parse_size("2GiB")
    cpus: float = Field(default=2, gt=0, le=1024)
    pids: int = Field(default=512, ge=16, le=1_000_000)
    disk: Annotated[int, BeforeValidator(parse_size)] = parse_size("4GiB")
    masks: list[str] = list(DEFAULT_MASKS)
    """Files of the workspace that read as empty, gitignore syntax."""


class LimitsSection(_Section):
    """null means no limit."""

    turns: int | None = Field(default=200, ge=1)
    wall_s: float | None = Field(default=3600, gt=0)


class PolicyFile(_Section):
    """The whole file."""

    version: Literal[1] = 1
    name: str | None = Field(default=None, pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$")
    description: str | None = None
    mode: Annotated[Mode, Field(strict=False)] = Mode.DEFAULT
    read_only_commands: Literal["allow", "ask"] = "allow"
    """Whether commands that only read (a list shipped with the program) run without a rule."""
    rules: RulesSection = RulesSection()
    sandbox: SandboxSection = SandboxSection()
    limits: LimitsSection = LimitsSection()
    hooks: HooksSection = HooksSection()


NOT_SUPPORTED = {
    ("extends",): "write the rules into this file",
    ("mcp",): "leave it out or empty",
    ("sandbox", "allow_hosts"): "this version has no network; leave it out or empty",
    ("limits", "tokens"): "leave it out or null",
    ("limits", "cost_usd"): "leave it out or null",
    ("limits", "subagents"): "leave it out or null",
}
"""Keys of the format that this version does not act on, with what to do. Empty is fine, anything else is an error."""
