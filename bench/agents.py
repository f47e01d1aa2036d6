"""The agents of the loop part: how each is started on a workspace, with an endpoint and none of the user's settings."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

TASK = "do the task"
MODEL = "claude-sonnet-4-5"
CLAUDE_PACKAGES = ("claude-code-linux-x64", "claude-code-linux-arm64")
KEPT_VARIABLES = ("PATH", "LANG", "TMPDIR", "DOCKER_HOST", "DOCKER_CONTEXT", "DOCKER_CONFIG", "DOCKER_CERT_PATH")


@dataclass(frozen=True, slots=True)
class Agent:
    """A command, and what its environment has besides the endpoint and the key."""

    name: str
    argv: tuple[str, ...]
    env: Mapping[str, str] = field(default_factory=dict)

    def environment(self, base_url: str, home: Path) -> dict[str, str]:
        """The whole environment. `home` stands in for the user's, so that no settings of theirs play a part."""
        kept = {name: os.environ[name] for name in KEPT_VARIABLES if name in os.environ}
        access = {"ANTHROPIC_BASE_URL": base_url, "ANTHROPIC_API_KEY": "sk-bench", "NO_PROXY": "127.0.0.1,localhost"}
        places = {"HOME": home, "XDG_STATE_HOME": home / "state", "XDG_CONFIG_HOME": home / "config"}
        return {**kept, **access, **{name: str(path) for name, path in places.items()}, **self.env}


def claude_path(work: Path) -> Path | None:
    """Claude Code's program where `setup_peers.sh` puts it, or the one that CLAUDE names."""
    named = os.environ.get("CLAUDE")
    places = (
        [Path(named)] if named else [work / "node_modules/@anthropic-ai" / name / "claude" for name in CLAUDE_PACKAGES]
    )
    return next((path for path in places if path.is_file()), None)


def ours_path() -> Path:
    """The console script of the environment that the bench itself runs in."""
    return Path(sys.executable).parent / "sandbox-agent"


def find_agent(name: str, workspace: Path, work: Path) -> Agent | None:
    """The agent of that name, None where it is not installed."""
    match name:
        case "ours":
            options = ("-p", "--output", "stream-json", "--mode", "bypassPermissions", "-w", str(workspace))
            return Agent("ours", (str(ours_path()), "run", *options, "--model", f"anthropic:{MODEL}", TASK))
        case "null":
            return Agent("null", (sys.executable, str(Path(__file__).parent / "null_agent.py"), TASK))
        case _:
            path = claude_path(work)
            return _claude(path) if path is not None else None


def _claude(path: Path) -> Agent:
    options = ("-p", TASK, "--output-format", "stream-json", "--verbose", "--permission-mode", "bypassPermissions")
    tools = ("--tools", "Bash,Read,Write,Edit,Grep,Glob,TodoWrite")
    env = {
        "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
        "DISABLE_AUTOUPDATER": "1",
        "DISABLE_TELEMETRY": "1",
        "DISABLE_ERROR_REPORTING": "1",
        "IS_SANDBOX": "1",  # else it refuses this permission mode to root
    }
    return Agent("claude", (str(path), *options, *tools), env)
