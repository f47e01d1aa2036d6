"""What a run is asked to be, and where our own files live. Nothing in a workspace is ever read as configuration."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from sandbox_agent.types import JsonObject, Mode

DEFAULT_MODEL = "anthropic:claude-sonnet-5-5"


@dataclass(frozen=True, slots=True, kw_only=True)
class RunConfig:
    """One run. None means "as the policy says"."""

    workspace: Path
    model: str = DEFAULT_MODEL
    """`anthropic:NAME` or `script:FILE`."""
    fallback_model: str | None = None
    """`anthropic:NAME`: asked for the rest of a run when `model` is overloaded for good, not known, or refuses."""
    policy: str | None = None
    """Name of a shipped policy or path of a file; None is the user's own, else the shipped `default`."""
    mode: Mode | None = None
    allow: tuple[str, ...] = ()
    deny: tuple[str, ...] = ()
    image: str | None = None
    workspace_mode: str = "auto"
    """`auto` (overlay where it works, else copy), `overlay`, `copy` or `bind`."""
    max_turns: int | None = None
    max_tokens: int | None = None
    max_cost_usd: float | None = None
    timeout_s: float | None = None
    project_instructions: bool | None = None
    """Whether the model is given AGENTS.md and CLAUDE.md of the folder."""
    mcp_config: tuple[Path, ...] = ()
    """Files of the form of `.mcp.json`, with servers for this run."""
    mcp_servers: tuple[str, ...] | None = None
    """Names of the MCP servers to start; None is all that the policy and these files name."""
    checks: tuple[str, ...] = ()
    """Commands that decide whether the result is taken, see `engine.acceptance`."""
    check_files: tuple[str, ...] = ()
    """Patterns of paths that the checks get as they were before the run."""
    check_timeout_s: float = 600.0
    """For each check."""
    record: Path | None = None
    """Where the bundle of the run goes, see `engine.recording`; None: it is not recorded."""
    record_tree: bool = False
    """Whether the bundle has the folder as it is at the beginning also where it is large."""
    deterministic: bool = True
    """Whether a recorded run gets the determinism profile, see `engine.locking`."""
    answer_schema: JsonObject | None = None
    """The JSON Schema that the answer has to fit; None: it is text."""
    resume: str | None = None
    """A session ID, or "last" for the newest session of this workspace."""


def state_dir() -> Path:
    """Where sessions are kept: `$XDG_STATE_HOME/sandbox-agent`, made 0700 on first use."""
    return _own_dir("XDG_STATE_HOME", ".local/state")


def config_dir() -> Path:
    """Where the user's own policy lives: `$XDG_CONFIG_HOME/sandbox-agent`. Not made here."""
    return _base("XDG_CONFIG_HOME", ".config") / "sandbox-agent"


def sessions_dir() -> Path:
    """One folder a session, named by its ID."""
    path = state_dir() / "sessions"
    path.mkdir(mode=0o700, exist_ok=True)
    return path


def _own_dir(variable: str, default: str) -> Path:
    path = _base(variable, default) / "sandbox-agent"
    path.mkdir(mode=0o700, parents=True, exist_ok=True)
    return path


def _base(variable: str, default: str) -> Path:
    # A relative value is invalid by the XDG rules and would make our state depend on the working directory.
    value = os.environ.get(variable, "")
    return Path(value) if value.startswith("/") else Path.home() / default
