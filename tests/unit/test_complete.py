"""What a shell offers where a session or a policy is named."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.shell_completion import ShellComplete

from sandbox_agent.cli import cli


def offered(*words: str, incomplete: str = "") -> list[tuple[str, str]]:
    """Type and value of everything that is offered behind these words."""
    found = ShellComplete(cli, {}, "sandbox-agent", "_SANDBOX_AGENT_COMPLETE").get_completions(list(words), incomplete)
    return [(item.type, item.value) for item in found]


@pytest.fixture
def two_sessions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[str, str]:
    """Newest first."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    newer, older = "20261202101500abcdef01", "20261201101500abcdef02"
    for name in (newer, older):
        folder = tmp_path / "sandbox-agent" / "sessions" / name
        folder.mkdir(parents=True, mode=0o700)
        (folder / "events.jsonl").touch()
    return newer, older


@pytest.mark.parametrize(
    "words", [("diff",), ("sessions", "show"), ("resume",), ("run", "--resume"), ("policy", "learn")], ids=" ".join
)
def test_a_session_is_offered_by_last_and_by_its_id(words: tuple[str, ...], two_sessions: tuple[str, str]) -> None:
    """The newest first."""
    assert offered(*words) == [("plain", one) for one in ("last", *two_sessions)]
    assert offered(*words, incomplete="20261201") == [("plain", two_sessions[1])]


def test_without_a_state_folder_nothing_is_offered(monkeypatch: pytest.MonkeyPatch) -> None:
    """No trace in the middle of a line that somebody types."""
    monkeypatch.setenv("XDG_STATE_HOME", "/dev/null/none")

    assert offered("diff") == []


@pytest.mark.parametrize("command", ["run", "chat", "escape-test"])
def test_a_policy_is_a_shipped_one_or_a_file(command: str) -> None:
    """A shell completes paths itself once it is told to."""
    assert offered(command, "--policy", incomplete="un") == [("file", "un"), ("plain", "untrusted")]
