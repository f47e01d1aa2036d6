"""The container that a session gets later: as its record says, but for what the new run names."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from sandbox_agent.engine.container import facts_of, recorded_spec, settings_to_go_on, spec_of
from sandbox_agent.events import SessionStarted
from sandbox_agent.hostnames import HostEntry
from sandbox_agent.policy.policy import Policy, SandboxSettings
from sandbox_agent.tape import TapeWriter
from sandbox_agent.workspaces.opening import create

NARROW = SandboxSettings(
    image="mine:1",
    runtime="runsc",
    memory_bytes=2**28,
    cpus=0.5,
    pids=64,
    allow_hosts=(HostEntry("*.a.org", 443, True), HostEntry("@python"), HostEntry("::1", 80)),
    egress_bytes=2**30,
    ca_bundle="/etc/ca.pem",
)
STARTED = SessionStarted(
    session_id="s",
    model="m",
    workspace="/w",
    workspace_mode="copy",
    image=NARROW.image,
    policy="strict",
    mode="default",
    tools=(),
    version="0",
)
LAST = replace(STARTED, sandbox=facts_of(NARROW))
"""A start under the narrow settings."""


def session(folder: Path, *starts: SessionStarted) -> Path:
    """The state folder of a session that was started so."""
    state = folder / "session"
    state.mkdir()
    tape = TapeWriter(state / "events.jsonl")
    for start in starts:
        tape.append(start)
    tape.close()
    return state


def test_an_undo_gets_the_container_that_the_session_had_last(tmp_path: Path) -> None:
    """Image, runtime and limits are in the record."""
    host = tmp_path / "host"
    host.mkdir()
    state = session(tmp_path, replace(STARTED, image="older:1"), LAST)
    workspace = create("copy", host, state)

    assert recorded_spec(workspace, state) == spec_of(workspace, state, NARROW)


def test_a_session_goes_on_in_the_container_it_had(tmp_path: Path) -> None:
    """Nothing that this run's policy leaves at its default widens it; masks are the workspace's own matter."""
    host = tmp_path / "host"
    host.mkdir()
    state = session(tmp_path, LAST)

    assert settings_to_go_on(Policy("default"), state) == NARROW


def test_what_this_run_names_holds(tmp_path: Path) -> None:
    """An image by option and memory by policy; the rest is as it was."""
    host = tmp_path / "host"
    host.mkdir()
    state = session(tmp_path, LAST)
    here = SandboxSettings(image="new:2", memory_bytes=2**30)
    policy = Policy("own", sandbox=here, sources=(("sandbox.image", "--image"), ("sandbox.memory", "policy.yaml:3")))

    assert settings_to_go_on(policy, state) == replace(NARROW, image="new:2", memory_bytes=2**30)


def test_a_record_of_an_older_version_means_the_defaults(tmp_path: Path) -> None:
    """It has the image and no limits."""
    state = session(tmp_path, STARTED)

    assert settings_to_go_on(Policy("default"), state) == SandboxSettings(image="mine:1")


def test_hosts_that_cannot_be_read_in_a_record_are_none(tmp_path: Path) -> None:
    """A record that somebody changed opens nothing."""
    broken = {"allow_hosts": [{"host": "a.org", "port": 443}, {"host": "a.org/x", "port": 443}]}
    state = session(tmp_path, replace(STARTED, sandbox=broken))

    assert settings_to_go_on(Policy("default"), state).allow_hosts == ()
