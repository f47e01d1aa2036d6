"""Copies of dead sessions go, work that is nowhere else stays."""

from __future__ import annotations

import os
from pathlib import Path

from workspace_trees import Link, grow

from sandbox_agent.workspaces.base import Workspace
from sandbox_agent.workspaces.opening import create, reopen
from sandbox_agent.workspaces.reap import Reaped, reap_sessions


def session(tmp_path: Path, name: str, *, prepared: bool = True, edits: dict[str, object] | None = None) -> Workspace:
    """A session folder with a record of its own beside the copy."""
    workspace = create("copy", grow(tmp_path / "host", {"f": b"1"}), tmp_path / "sessions" / name)
    (tmp_path / "sessions" / name / "events.jsonl").write_text("{}\n")
    if prepared:
        workspace.prepare()
    grow(workspace.source, edits or {})  # type: ignore[arg-type]
    return workspace


def dead(_: Path) -> bool:
    return False


def left(tmp_path: Path, name: str) -> list[str]:
    return sorted(os.listdir(tmp_path / "sessions" / name))


def test_a_dead_sessions_unchanged_copy_goes(tmp_path: Path) -> None:
    """Its record stays, the person's folder too; a second look finds nothing to do."""
    session(tmp_path, "one")

    assert reap_sessions(tmp_path / "sessions", dead) == Reaped(removed=("one",))
    assert left(tmp_path, "one") == ["events.jsonl"]
    assert (tmp_path / "host/f").read_bytes() == b"1"
    assert reap_sessions(tmp_path / "sessions", dead) == Reaped()


def test_a_living_session_is_left_alone(tmp_path: Path) -> None:
    """Whatever its copy looks like."""
    session(tmp_path, "one")
    session(tmp_path, "two", prepared=False)

    assert reap_sessions(tmp_path / "sessions", lambda folder: folder.name in ("one", "two")) == Reaped()
    assert "workspace" in left(tmp_path, "one") + left(tmp_path, "two")


def test_unapplied_changes_are_kept_until_told_otherwise(tmp_path: Path) -> None:
    """The work of a killed run can still be applied; dropping it has to be asked for."""
    session(tmp_path, "one", edits={"f": b"work"})

    assert reap_sessions(tmp_path / "sessions", dead) == Reaped(kept=("one",))
    assert "kept" in left(tmp_path, "one")
    assert reap_sessions(tmp_path / "sessions", dead) == Reaped(kept=("one",))
    assert reopen(tmp_path / "sessions/one").apply().applied == ("f",)
    assert reap_sessions(tmp_path / "sessions", dead, drop_kept=True) == Reaped(removed=("one",))
    assert left(tmp_path, "one") == ["applied", "events.jsonl"]


def test_a_copy_that_was_never_finished_goes(tmp_path: Path) -> None:
    """No tool ever ran in it, so it cannot hold work."""
    session(tmp_path, "one", prepared=False, edits={"half": b""})

    assert reap_sessions(tmp_path / "sessions", dead) == Reaped(removed=("one",))


def test_a_removal_that_was_interrupted_is_finished(tmp_path: Path) -> None:
    """Without its record a copy is known to be on its way out, moved folders included."""
    session(tmp_path, "one", edits={"f": b"work"})
    (tmp_path / "sessions/one/workspace.json").unlink()
    grow(tmp_path / "sessions/one", {".removing-0011223344556677/x": b""})

    assert reap_sessions(tmp_path / "sessions", dead) == Reaped(removed=("one",))
    assert left(tmp_path, "one") == ["events.jsonl"]


def test_a_copy_that_cannot_be_judged_is_kept(tmp_path: Path) -> None:
    """A damaged list proves nothing about the work in the copy."""
    session(tmp_path, "one", edits={"f": b"work"})
    (tmp_path / "sessions/one/manifest.jsonl").write_text("nonsense")

    assert reap_sessions(tmp_path / "sessions", dead) == Reaped(kept=("one",))


def test_a_hostile_copy_takes_nothing_with_it(tmp_path: Path) -> None:
    """Links out, folders without permissions, and a session folder that is a link itself."""
    grow(tmp_path, {"victim/f": b"v", "elsewhere/workspace/f": b"v"})
    copy = session(tmp_path, "one", edits={"out": Link(str(tmp_path / "victim")), "shut/in": b""}).source
    (copy / "shut").chmod(0)
    (tmp_path / "sessions/two").symlink_to(tmp_path / "elsewhere")

    assert reap_sessions(tmp_path / "sessions", dead, drop_kept=True) == Reaped(removed=("one",))
    assert (tmp_path / "victim/f").read_bytes() + (tmp_path / "elsewhere/workspace/f").read_bytes() == b"vv"


def test_no_sessions_is_nothing_to_do(tmp_path: Path) -> None:
    """Before the first run there is no folder to look into."""
    assert reap_sessions(tmp_path / "none", dead) == Reaped()
