"""The layer between the person's folder and the session's changes: an empty file for each path that must stay hidden.

It lies above the folder, so the real content cannot be reached by any name: not by moving the folder it is in, not by a
link, not by git. Everything else about such a file is as it was: owner, mode, time.
"""

from __future__ import annotations

import contextlib
import os
import stat

from sandbox_agent.workspaces.base import ROOT_FOLDER_ID
from sandbox_agent.workspaces.nofollow import Place, open_folder_at
from sandbox_agent.workspaces.survey import Survey
from sandbox_agent.workspaces.tree import Tree


def build(layer: Tree, top: os.stat_result, survey: Survey, *, swap_root: bool) -> None:
    """Fill an empty folder of ours.

    Args:
        layer: that folder.
        top: the status of the person's folder.
        survey: what is in it, and what of it is to be covered.
        swap_root: show root's files as the tools', as the mapping of the folder itself does.

    Raises:
        OSError: it cannot be written.
    """
    folders = sorted({parent for path in survey.covered for parent in _parents(path)})
    for folder in folders:
        with layer.at(folder) as place:
            place.mkdir(0o700)
    for path in survey.covered:
        with layer.at(path) as place:
            fd = place.create_file()
            try:
                dress(fd, survey.infos[path], swap_root=swap_root)
            finally:
                os.close(fd)
    for folder in reversed(folders):  # what they hold is made by now: its making changed their times
        with layer.at(folder) as place:
            _dress_folder(place, survey.infos[folder], swap_root)
    fd = layer.open_folder("")
    try:
        dress(fd, top, swap_root=swap_root)
    finally:
        os.close(fd)


def dress(fd: int, like: os.stat_result, *, swap_root: bool) -> None:
    """Give a file or folder of ours the owner, mode and times of another, as far as we may."""
    uid, gid = (owner_shown(number, swap_root=swap_root) for number in (like.st_uid, like.st_gid))
    mine = os.fstat(fd)
    if (mine.st_uid, mine.st_gid) != (uid, gid):
        with contextlib.suppress(PermissionError):  # an ordinary user's empty file may stand for somebody else's
            os.fchown(fd, uid if os.geteuid() == 0 else -1, gid)
    mode = stat.S_IMODE(like.st_mode) & 0o3777 if stat.S_ISDIR(mine.st_mode) else like.st_mode & 0o777
    os.fchmod(fd, 0o600 if stat.S_ISLNK(like.st_mode) else mode)  # a link's own mode says nothing
    os.utime(fd, ns=(like.st_atime_ns, like.st_mtime_ns))


def owner_shown(number: int, *, swap_root: bool) -> int:
    """A uid or gid as the session sees it."""
    return ROOT_FOLDER_ID if swap_root and number == 0 else number


def _dress_folder(place: Place, like: os.stat_result, swap_root: bool) -> None:
    fd = open_folder_at(place.folder_fd, place.name)
    try:
        dress(fd, like, swap_root=swap_root)
    finally:
        os.close(fd)


def _parents(path: str) -> list[str]:
    parts = path.split("/")
    return ["/".join(parts[:count]) for count in range(1, len(parts))]
