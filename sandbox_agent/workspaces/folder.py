"""May this folder be a workspace, who do its tools run as, and what should the person know before it starts?"""

from __future__ import annotations

import errno
import os
import pwd
from pathlib import Path

from sandbox_agent.errors import WorkspaceError
from sandbox_agent.workspaces.base import ROOT_FOLDER_ID, Kind, Owner
from sandbox_agent.workspaces.entries import file_kind
from sandbox_agent.workspaces.tree import Tree

_POINTER_BYTES = 4096


def resolve(host: Path, state_dir: Path) -> Path:
    """The real path of a folder that may be used.

    Raises:
        WorkspaceError: it is missing, no folder, not readable, `/`, a home folder or above the user's own, or it
            holds, or lies in, our own state.
    """
    try:
        real = host.resolve(strict=True)
        with Tree(real) as tree:
            tree.listing("")
    except RuntimeError as error:
        raise WorkspaceError(f"{host}: a loop of links; give the folder itself") from error
    except OSError as error:
        raise WorkspaceError(f"{host}: {_cause(error)}; give a folder you can read") from error
    if real == Path("/"):
        raise WorkspaceError(f"{host}: the whole machine cannot be a workspace; give a project folder")
    homes = _homes()
    if real in homes or any(own.is_relative_to(real) for own in _own_homes()):
        raise WorkspaceError(f"{host}: is or holds a home folder, with all its keys; give a project folder in it")
    state = state_dir.resolve()
    if state.is_relative_to(real):
        raise WorkspaceError(f"{host}: holds sandbox-agent's own state ({state_dir}); give a folder without it")
    if real.is_relative_to(state):
        raise WorkspaceError(f"{host}: lies in sandbox-agent's own state; give a project folder")
    return real


def _cause(error: OSError) -> str:
    if isinstance(error, FileNotFoundError):
        return "does not exist"
    if isinstance(error, NotADirectoryError):
        return "is not a folder"
    if isinstance(error, PermissionError):
        return "cannot be read"
    return "a link on its way changed just now" if error.errno == errno.ELOOP else str(error.strerror)


def _own_homes() -> set[Path]:
    own = {Path(os.path.expanduser("~")).resolve()}
    try:
        own.add(Path(pwd.getpwuid(os.geteuid()).pw_dir).resolve())
    except KeyError:
        return own  # a uid without an entry, as in many CI containers
    return own


def _homes() -> set[Path]:
    return _own_homes() | {Path(entry.pw_dir).resolve() for entry in pwd.getpwall() if entry.pw_dir.startswith("/")}


def owner_of(host: Path) -> Owner:
    """Who the tools run as in a copy: the folder's owner when we are root, else ourselves; never 0."""
    info = os.lstat(host)
    uid, gid = (info.st_uid, info.st_gid) if os.geteuid() == 0 else (os.geteuid(), os.getegid())
    if uid == 0:
        return Owner(ROOT_FOLDER_ID, ROOT_FOLDER_ID)
    shared = info.st_gid in os.getgroups() and info.st_gid not in (0, gid)
    # Group 0 may write system files; the tools get a group of their own instead.
    return Owner(uid, gid or uid, (info.st_gid,) if os.geteuid() != 0 and shared else ())


def writable(host: Path) -> bool:
    """Whether we may make and remove files at the top of a folder."""
    return os.access(host, os.W_OK | os.X_OK, effective_ids=os.access in os.supports_effective_ids)


def access_notes(host: Path) -> tuple[str, ...]:
    """Says when nothing can be applied in the end, because the folder is somebody else's."""
    if writable(host):
        return ()
    return ("you cannot write to this folder: changes can be looked at and exported, but not applied",)


def repository_notes(host: Path) -> tuple[str, ...]:
    """Says when git cannot work inside because the repository's data lies elsewhere. Nothing is followed or run."""
    with Tree(host) as tree, tree.at(".git") as place:
        info = place.stat()
        kind = file_kind(info.st_mode) if info is not None else None
        if kind is Kind.LINK:
            return (f".git is a link ({place.readlink()}): git has no repository inside",)
        if kind is Kind.FILE:
            return _pointer_notes(host, place.read_bytes(_POINTER_BYTES))
    if kind is None:
        for above in host.parents:
            if os.path.lexists(above / ".git"):
                return (f"the repository is {above}, outside the workspace: no git inside; use -w {above} to have it",)
    return ()


def _pointer_notes(host: Path, content: bytes) -> tuple[str, ...]:
    text = content.decode("utf-8", "surrogateescape").strip().removeprefix("gitdir:").strip()
    target = Path(os.path.normpath(host / text))
    if target.is_relative_to(host):
        return ()
    return (f".git points to {target}, outside the workspace (a worktree or submodule): git has no repository inside",)
