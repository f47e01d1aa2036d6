"""What a session of a program is made of: the options of `sandbox-agent run`, and what only a program can give."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TypedDict

from sandbox_agent.config import DEFAULT_MODEL, RunConfig
from sandbox_agent.engine.approval import Approver
from sandbox_agent.engine.hooks import ProgramHook
from sandbox_agent.errors import ConfigError
from sandbox_agent.tools.base import Tool
from sandbox_agent.tools.questions import Ask
from sandbox_agent.types import JsonObject, Mode


class Options(TypedDict, total=False):
    """Everything may be left out; None is as the policy says."""

    workspace: str | Path
    """The folder to work on; the current directory where it is left out."""
    model: str
    """`anthropic:NAME`, or `script:FILE`."""
    fallback_model: str | None
    """See `RunConfig.fallback_model`."""
    policy: str | Path | None
    """A shipped policy by name, or a policy file, which may not lie in the workspace."""
    mode: Mode | str | None
    allow: Sequence[str]
    """Rules, as `--allow` of the command line."""
    deny: Sequence[str]
    image: str | None
    workspace_mode: str
    """`auto`, `overlay`, `copy` or `bind`."""
    max_turns: int | None
    max_tokens: int | None
    max_cost_usd: float | None
    timeout_s: float | None
    project_instructions: bool | None
    """Whether the model is given AGENTS.md and CLAUDE.md of the folder."""
    mcp_config: Sequence[str | Path]
    mcp_servers: Sequence[str] | None
    """Names of the MCP servers to start; None is all."""
    checks: Sequence[str]
    """Commands that run on the result, each in a clean container, see `Result.checks`."""
    check_files: Sequence[str]
    """Patterns of paths that the checks get as they were before the run."""
    check_timeout_s: float
    """For each check; 600 where it is left out."""
    record: str | Path | None
    """The file that the run is recorded to, see `engine.recording`; a session that is recorded has one run."""
    record_tree: bool
    """Whether the recording has the folder as it is at the beginning also where it is large."""
    answer_schema: JsonObject | None
    """The JSON Schema of `Result.structured_output`; not with `record`."""
    deterministic: bool
    """Whether a recorded run gets the determinism profile; True where it is left out."""
    resume: str | None
    """The session to go on with, or "last"."""
    tools: Sequence[Tool]
    """Tools that this program carries out, see `build_tool`."""
    approver: Approver | None
    """Asked where the policy asks; None denies."""
    answerer: Ask | None
    """Answers the model's own questions; None: it has no tool to ask any."""
    hooks: Sequence[ProgramHook]


def config_of(options: Options) -> RunConfig:
    """The same as the engine takes it.

    Raises:
        TypeError: there is no such option.
        ConfigError: an option has a value that it cannot have.
    """
    known = Options.__annotations__
    for name in options:
        if name not in known:
            raise TypeError(f"there is no option {name!r}; there are {', '.join(known)}")
    for name in ("allow", "deny", "checks", "check_files"):
        if isinstance(options.get(name), str):
            raise ConfigError(f"{name} is a list, not one text")
    policy, mode = options.get("policy"), options.get("mode")
    try:
        chosen = Mode(mode) if mode is not None else None
    except ValueError as exc:
        raise ConfigError(f"mode {mode!r}: one of {', '.join(Mode)}") from exc
    return RunConfig(
        workspace=Path(options.get("workspace", ".")),
        model=options.get("model", DEFAULT_MODEL),
        fallback_model=options.get("fallback_model"),
        policy=None if policy is None else str(policy),
        mode=chosen,
        allow=tuple(options.get("allow", ())),
        deny=tuple(options.get("deny", ())),
        image=options.get("image"),
        workspace_mode=options.get("workspace_mode", "auto"),
        max_turns=options.get("max_turns"),
        max_tokens=options.get("max_tokens"),
        max_cost_usd=options.get("max_cost_usd"),
        timeout_s=options.get("timeout_s"),
        project_instructions=options.get("project_instructions"),
        mcp_config=tuple(Path(path) for path in options.get("mcp_config", ())),
        mcp_servers=None if (chosen_servers := options.get("mcp_servers")) is None else tuple(chosen_servers),
        checks=tuple(options.get("checks", ())),
        check_files=tuple(options.get("check_files", ())),
        check_timeout_s=options.get("check_timeout_s", 600.0),
        record=None if (file := options.get("record")) is None else Path(file),
        record_tree=options.get("record_tree", False),
        deterministic=options.get("deterministic", True),
        resume=options.get("resume"),
        answer_schema=options.get("answer_schema"),
    )
