"""Masked files that a repository tracks are no changes to git inside: else they would show as emptied or deleted, and a
`git commit -a` would carry that into a commit which the person may take over.

The session's own index is told to leave them alone (skip-worktree). It is told in the container, for the host runs no
git in a workspace; a repository whose git does not answer keeps showing them.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from sandbox_agent.engine.metering import Meter, metered
from sandbox_agent.sandboxes.base import Sandbox
from sandbox_agent.types import WORKSPACE_MOUNT
from sandbox_agent.workspaces.base import Workspace

MOST_REPOSITORIES = 20
_GIT_S = 10.0

# Literal: a file may be called like a pattern. What the repository's own configuration could start is switched off.
_SCRIPT = """
export GIT_LITERAL_PATHSPECS=1
git() { command git -c core.fsmonitor=false -c core.hooksPath=/dev/null "$@"; }
names=$(mktemp) && cat > "$names" || exit 1
xargs -0 -a "$names" git -c core.fsmonitor=false ls-files -z -- | git update-index -z --skip-worktree --stdin
rm -f -- "$names"
"""


async def leave_to_git(sandbox: Sandbox, workspace: Workspace) -> None:
    """Tell every repository with masked files; not in a bound folder, whose index is the person's own.

    Raises:
        SandboxError: the sandbox is gone.
    """
    if workspace.mode == "bind":
        return
    for repository, paths in _repositories(workspace.host, workspace.masked).items():
        cwd = f"{WORKSPACE_MOUNT}/{repository}".rstrip("/")
        names = b"\0".join(os.fsencode(path) for path in paths)
        try:
            with metered(Meter()):
                await sandbox.exec(["bash", "-c", _SCRIPT], stdin=names, cwd=cwd, timeout_s=_GIT_S)
        except OSError:
            continue


def _repositories(host: Path, masked: Mapping[str, str]) -> dict[str, list[str]]:
    """Folder of each repository to the masked files in it, relative to that folder."""
    found: dict[str, list[str]] = {}
    known: dict[str, bool] = {}
    for path in masked:
        folder = path
        while folder:
            folder = folder.rpartition("/")[0]
            if folder not in known:
                known[folder] = os.path.lexists(host / folder / ".git")
            if known[folder]:
                if folder in found or len(found) < MOST_REPOSITORIES:
                    found.setdefault(folder, []).append(path[len(folder) :].lstrip("/"))
                break
    return found
