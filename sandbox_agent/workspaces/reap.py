"""Removes the copies that sessions of dead engines left, unless they hold work that is nowhere else."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from sandbox_agent.errors import WorkspaceError
from sandbox_agent.workspaces.disk import DISK_NAME, has_disk, mounted
from sandbox_agent.workspaces.gitfolder import git_notes
from sandbox_agent.workspaces.ledger import interrupted
from sandbox_agent.workspaces.manifest import Manifest
from sandbox_agent.workspaces.notes import Notes
from sandbox_agent.workspaces.opening import reopen
from sandbox_agent.workspaces.overlay import upper_holds
from sandbox_agent.workspaces.record import (
    COPY_NAME,
    KEPT_NAME,
    LAST_STEP_NAME,
    MANIFEST_NAME,
    OVERLAY_NAME,
    RECORD_NAME,
    LeftToRootError,
    give_back_mounts,
    remove_remains,
    volume_of,
)
from sandbox_agent.workspaces.removal import MOVED_PREFIX
from sandbox_agent.workspaces.review import compare
from sandbox_agent.workspaces.source import TreeSource
from sandbox_agent.workspaces.steps import CHECKPOINTS_NAME, Steps
from sandbox_agent.workspaces.tree import Tree


@dataclass(frozen=True, slots=True)
class Reaped:
    """Names of session folders: whose copy was removed, whose was kept for its unapplied changes, and what failed.

    `left` are folders whose removal needs the engine: see `engine.discarding.discard`.
    """

    removed: tuple[str, ...] = ()
    kept: tuple[str, ...] = ()
    failed: tuple[str, ...] = ()
    left: tuple[Path, ...] = ()


def reap_sessions(sessions_dir: Path, is_owner_alive: Callable[[Path], bool], *, drop_kept: bool = False) -> Reaped:
    """Look at every session folder and remove copies nobody needs; transcripts and the folders themselves stay.

    Args:
        sessions_dir: holds one folder a session, as given to `create` as `state_dir`.
        is_owner_alive: whether the engine that made a session may still use it; only False lets us touch it.
        drop_kept: remove kept changes too. The work in them is lost.
    """
    removed, kept, failed, left = [], [], [], []
    if not sessions_dir.is_dir():
        return Reaped()
    for state_dir in sorted(sessions_dir.iterdir()):
        if state_dir.is_symlink() or not _has_remains(state_dir) or is_owner_alive(state_dir):
            continue
        try:
            give_back_mounts(state_dir)
            if not drop_kept and _holds_changes(state_dir):
                kept.append(state_dir.name)
                continue
            if volume_of(state_dir):
                left.append(state_dir)
                continue
            remove_remains(state_dir)
            removed.append(state_dir.name)
        except LeftToRootError:
            left.append(state_dir)
        except OSError as error:
            failed.append(f"{state_dir.name}: {error}")
    return Reaped(tuple(removed), tuple(kept), tuple(failed), tuple(left))


def _has_remains(state_dir: Path) -> bool:
    if not state_dir.is_dir():
        return False
    names = {path.name for path in state_dir.iterdir()}
    ours = {COPY_NAME, OVERLAY_NAME, MANIFEST_NAME, RECORD_NAME, DISK_NAME}
    return bool(names & ours) or any(name.startswith(MOVED_PREFIX) for name in names)


def _holds_changes(state_dir: Path) -> bool:
    """Whether the copy differs from what the folder was. In doubt it does: only what cannot be read by anyone goes."""
    if (state_dir / KEPT_NAME).exists() or interrupted(state_dir):
        return True
    if not (state_dir / MANIFEST_NAME).exists() or not (state_dir / RECORD_NAME).exists():
        return False  # copying never ended, so no tool ever ran in it; or removing it was under way
    try:
        mode = reopen(state_dir).mode
        steps = Steps(state_dir / CHECKPOINTS_NAME).headers()
        if steps and steps[-1].restored is not None:
            return True  # what was undone is only there
        if mode == "bind" and (len(steps) > 1 or (state_dir / LAST_STEP_NAME).exists()):
            return len(steps) > 1  # so that the folder itself can be brought back
        if mode == "overlay":
            changed = upper_holds(state_dir)
            if not has_disk(state_dir):
                return changed  # looking costs nothing
        elif mode == "bind" or volume_of(state_dir):
            changed = bool(reopen(state_dir).changes())
        else:
            manifest = Manifest.load(state_dir / MANIFEST_NAME)
            place = state_dir.resolve() / COPY_NAME
            with mounted(state_dir, place), Tree(place, grant=True) as copy:
                scan = TreeSource(copy).scan(manifest, Notes())
                changed = bool(compare(manifest, scan) or git_notes(manifest, scan).commits)
    except (WorkspaceError, OSError):
        return True
    if changed:
        (state_dir / KEPT_NAME).touch(mode=0o600)  # so that the next start need not look again
    return changed
