"""Whether a file may be a policy at all: who could write it, and whether it lies where the agent works."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable, Iterator
from pathlib import Path

from sandbox_agent.errors import PolicyError

_MAX_LINKS = 40


def require_own(path: Path, name: str) -> None:
    """Refuse a file that somebody else than the user or root can write or exchange.

    A group is somebody else unless it has the owner's number, which is how a user's private group is numbered. Root may
    use anybody's file: it is who runs `sudo`, and named the file.

    Raises:
        PolicyError: it can be.
    """
    real = Path(os.path.realpath(path))
    found = _stat(real, name)
    user = os.geteuid()
    if user != 0 and found.st_uid not in (0, user):
        raise PolicyError(
            f"the policy belongs to another user (uid {found.st_uid}); use a copy of your own", location=name
        )
    shared_group = found.st_mode & stat.S_IWGRP and found.st_gid != found.st_uid
    if found.st_mode & stat.S_IWOTH or shared_group:
        raise PolicyError(f"the policy can be written by others; chmod go-w {name}", location=name)
    for folder in real.parents:
        mode = _stat(folder, name).st_mode
        if mode & stat.S_IWOTH and not mode & stat.S_ISVTX:
            told = f"the policy lies in {folder}, where others can exchange it; move it, or chmod o-w that folder"
            raise PolicyError(told, location=name)


def require_administrators(path: Path, name: str, *, owner: int) -> None:
    """Refuse an administrator's file that anybody but the administrator could have written.

    Args:
        path: the file.
        name: what messages call it.
        owner: the user ID that file and folders must belong to; root's folders are fine as well.

    Raises:
        PolicyError: they could.
    """
    real = Path(os.path.realpath(path))
    found = _stat(real, name)
    who = "root" if owner == 0 else f"uid {owner}"
    if found.st_uid != owner or found.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        todo = f"it must belong to {who} and be written by nobody else: chown {owner} {name}; chmod go-w {name}"
        raise PolicyError(f"the administrator's policy is not safe; {todo}", location=name)
    for folder in real.parents:
        about = _stat(folder, name)
        sticky_root = about.st_mode & stat.S_ISVTX and about.st_uid == 0
        if about.st_uid not in (0, owner) or (about.st_mode & (stat.S_IWGRP | stat.S_IWOTH) and not sticky_root):
            told = f"the administrator's policy lies in {folder}, which others than {who} can write"
            raise PolicyError(told, location=name)


def require_outside(files: Iterable[Path], workspace: Path) -> None:
    """Refuse policy files that lie in the workspace: the agent could write its own permissions.

    Raises:
        PolicyError: one does, by its path, by where links lead, or by a link on the way.
    """
    for file in files:
        if lies_in(file, workspace):
            raise PolicyError(
                "a policy must not lie in the workspace, where the agent could change it; move it out",
                location=str(file),
            )


def lies_in(file: Path, workspace: Path) -> bool:
    """Whether a file is in the workspace: by its path, by where links lead, or by a link on the way."""
    roots = (Path(os.path.abspath(workspace)), Path(os.path.realpath(workspace)))
    return any(place.is_relative_to(root) for place in _places(file) for root in roots)


def _places(file: Path) -> Iterator[Path]:
    """Where a file is: as it is spelled, with its folder resolved, and after each link it is itself."""
    place = Path(os.path.abspath(file))
    for _ in range(_MAX_LINKS):
        yield place
        place = Path(os.path.realpath(place.parent)) / place.name
        yield place
        if not place.is_symlink():
            return
        place = Path(os.path.normpath(place.parent / place.readlink()))


def _stat(path: Path, name: str) -> os.stat_result:
    try:
        return path.stat()
    except OSError as exc:
        raise PolicyError(f"the policy cannot be read: {exc.strerror}", location=name) from exc
