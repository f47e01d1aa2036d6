"""What `export` does: the session's lock, a sandbox over its copy, and what to do with what came out."""

from __future__ import annotations

import os
import shlex
from pathlib import Path

import anyio
import click

from sandbox_agent.config import sessions_dir
from sandbox_agent.engine.discarding import viewer
from sandbox_agent.engine.exporting import Commits, Exporter, exporting
from sandbox_agent.engine.lock import SessionLock
from sandbox_agent.engine.past import find_session
from sandbox_agent.errors import ConfigError
from sandbox_agent.frontends import words
from sandbox_agent.frontends.sanitise import sanitise
from sandbox_agent.sandboxes.endpoint import resolve_endpoint
from sandbox_agent.workspaces.opening import reopen

NONE_NEW = 1


def run_export(wanted: str, bundle: Path | None, patches: Path | None, repository: str) -> int:
    """Export; returns the exit code.

    Raises:
        ConfigError: no such session, it is running, no repository, or the target cannot be written.
        WorkspaceError: the session keeps no copy.
        SandboxError: no sandbox, or git inside does not answer as git does.
    """
    session_id = find_session(sessions_dir(), wanted)
    folder = sessions_dir() / session_id
    lock = SessionLock(folder)
    try:
        return anyio.run(_export, session_id, folder, bundle, patches, repository)
    finally:
        lock.release()


async def _export(session_id: str, folder: Path, bundle: Path | None, patches: Path | None, repository: str) -> int:
    workspace = reopen(folder, view=viewer(session_id))
    if workspace.mode == "bind":
        raise ConfigError(f"session {session_id} worked in the folder itself: its commits are there already")
    async with exporting(workspace, folder, repository, resolve_endpoint(os.environ)) as exporter:
        commits = await exporter.find()
        for name in commits.left_out:
            click.echo(f"not exported for its name: {sanitise(name)}", err=True)
        if not commits.count:
            click.echo(f"There are no new commits in {repository or 'the workspace'}.")
            return NONE_NEW
        if bundle is not None:
            await _bundle(exporter, commits, bundle)
        else:
            assert patches is not None
            await _patches(exporter, commits, patches)
    return 0


async def _bundle(exporter: Exporter, commits: Commits, target: Path) -> None:
    size = await exporter.bundle(commits, target)
    click.echo(f"{words.count(commits.count, 'new commit')}, {size} bytes in {sanitise(str(target))}:")
    for name, sha in sorted(commits.refs.items()):
        click.echo(f"  {sha[:12]} {name}")
    branch = next((name for name in sorted(commits.refs) if name.startswith("refs/heads/")), "HEAD")
    source = branch.removeprefix("refs/heads/")
    file = shlex.quote(str(target.absolute()))
    fetch = f"git -c transfer.fsckObjects=true fetch {file} {source}:from-agent/{source}"
    click.echo(f"To look at them in your repository: {sanitise(fetch)}")


async def _patches(exporter: Exporter, commits: Commits, target: Path) -> None:
    names = await exporter.patches(commits, target)
    click.echo(f"{words.count(len(names), 'patch')} in {sanitise(str(target))}:")
    for name in names:
        click.echo(f"  {name}")
    if len(names) < commits.count:
        rest = words.count(commits.count - len(names), "new commit")
        click.echo(f"{rest} (merges, or of other branches) are only in a bundle: --bundle FILE", err=True)
