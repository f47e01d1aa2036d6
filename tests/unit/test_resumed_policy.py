"""A session that goes on: which folder it is about. What is refused is refused before any engine is asked."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from frontend_events import STARTED

from sandbox_agent.config import RunConfig
from sandbox_agent.engine.container import settings_of
from sandbox_agent.engine.open import open_session
from sandbox_agent.engine.past import load_past
from sandbox_agent.errors import PolicyError
from sandbox_agent.hostnames import entry_of
from sandbox_agent.tape import TapeWriter
from sandbox_agent.workspaces.base import Owner
from sandbox_agent.workspaces.record import Record

ID = "20260101000000abcdef01"


async def test_a_policy_from_the_resumed_folder_is_refused_wherever_the_run_is_started(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The session works on its own folder, not on the one that the run names or is started in."""
    worked_on, elsewhere, kept = tmp_path / "project", tmp_path / "elsewhere", tmp_path / "sandbox-agent/sessions" / ID
    for folder in (worked_on, elsewhere, kept):
        folder.mkdir(parents=True)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    Record.new("copy", worked_on, Owner(1000, 1000), ()).save(kept)
    tape = TapeWriter(kept / "events.jsonl")
    tape.append(STARTED)
    tape.close()
    planted = worked_on / "policy.yaml"
    planted.write_text("mode: bypassPermissions\n")
    config = RunConfig(workspace=elsewhere, model="script:none", policy=str(planted), resume=ID)

    with pytest.raises(PolicyError, match="must not lie in the workspace"):
        async with open_session(config):
            pass


def test_going_on_in_another_folder_is_told(tmp_path: Path) -> None:
    """The conversation speaks of the old one, which a person who only changed the directory may not have meant."""
    (tmp_path / ID).mkdir()
    tape = TapeWriter(tmp_path / ID / "events.jsonl")
    tape.append(STARTED)
    tape.close()
    past = load_past(tmp_path, ID, tmp_path)

    assert past.moved_to(Path(STARTED.workspace)) is None
    assert f"worked on {STARTED.workspace} before, and goes on in {tmp_path}" in (past.moved_to(tmp_path) or "")


@pytest.mark.parametrize(
    "listed",
    [
        None,
        "a.org:443",
        {"host": "a.org", "port": 443},
        ["a.org:443"],
        [{"host": "a.org", "port": 443}, {"host": "a b", "port": 443}],
        [{"host": "a.org", "port": 443}, {"host": "b.org", "port": "443"}],
        [{"host": "a.org", "port": 443}, None],
    ],
)
def test_a_recorded_list_of_hosts_that_cannot_be_read_is_empty(listed: object) -> None:
    """Of one that is wrong in part nothing counts; there is no way to have a list read again while a session runs."""
    good = [{"host": "a.org", "port": 443}]
    assert settings_of(replace(STARTED, sandbox={"allow_hosts": good})).allow_hosts == (entry_of("a.org:443"),)
    assert settings_of(replace(STARTED, sandbox={"allow_hosts": listed})).allow_hosts == ()


async def test_a_list_that_becomes_wrong_starts_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A session that goes on under a policy whose list cannot be read is refused, rather than keep the old one."""
    worked_on, kept = tmp_path / "project", tmp_path / "sandbox-agent/sessions" / ID
    for folder in (worked_on, kept):
        folder.mkdir(parents=True)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    Record.new("copy", worked_on, Owner(1000, 1000), ()).save(kept)
    tape = TapeWriter(kept / "events.jsonl")
    tape.append(replace(STARTED, sandbox={"allow_hosts": [{"host": "a.org", "port": 443}]}))
    tape.close()
    policy = tmp_path / "policy.yaml"
    policy.write_text('sandbox:\n  allow_hosts: ["a.org:443", "*"]\n')
    config = RunConfig(workspace=worked_on, model="script:none", policy=str(policy), resume=ID)

    with pytest.raises(PolicyError, match=r"policy\.yaml:2"):
        async with open_session(config):
            pass
