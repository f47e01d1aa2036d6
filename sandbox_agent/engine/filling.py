"""Fills a copy that only the engine holds: a stream of tar through the sandbox, at the tools' uid."""

from __future__ import annotations

import anyio
import anyio.from_thread
import anyio.to_thread

from sandbox_agent.errors import WorkspaceError
from sandbox_agent.sandboxes.base import Sandbox, Stream
from sandbox_agent.types import WORKSPACE_MOUNT
from sandbox_agent.workspaces.manifest import Manifest
from sandbox_agent.workspaces.volume import VolumeWorkspace

_SAID_CHARS = 300

# First everything goes that an interrupted filling left; find, for a name may be anything.
_UNPACK = (
    "find . -mindepth 1 -maxdepth 1 -exec rm -rf -- {} + && exec tar --extract --file - --no-same-owner "
    "--preserve-permissions --delay-directory-restore 2>&1"
)


async def fill(sandbox: Sandbox, workspace: VolumeWorkspace) -> None:
    """Copy the person's folder into the started sandbox's workspace, unless that was done before.

    Raises:
        WorkspaceError: the folder cannot be read, or what is in the sandbox does not take it (a full disk, no tar).
        SandboxDiedError: the sandbox is gone.
    """
    if workspace.filled:
        return
    stream = await sandbox.open(["sh", "-c", _UNPACK], cwd=WORKSPACE_MOUNT)
    said: list[bytes] = []
    try:
        async with anyio.create_task_group() as group:
            group.start_soon(_listen, stream, said)
            manifest = await _send(stream, workspace)
        code = await stream.exit_code()
    finally:
        with anyio.CancelScope(shield=True):
            await stream.aclose()
    if manifest is None or code != 0:
        text = " ".join(b"".join(said).decode("utf-8", "replace").split())[-_SAID_CHARS:]
        raise WorkspaceError(f"{workspace.host}: cannot be copied into the engine's volume (tar: {text or code})")
    await anyio.to_thread.run_sync(workspace.keep, manifest)


async def _send(stream: Stream, workspace: VolumeWorkspace) -> Manifest | None:
    """None if the other end stopped taking it; it says why on its stdout."""

    def write(data: bytes) -> None:
        anyio.from_thread.run(stream.send, data)

    try:
        manifest = await anyio.to_thread.run_sync(workspace.fill, write)
        await stream.send_eof()
    except BrokenPipeError:
        return None
    return manifest


async def _listen(stream: Stream, said: list[bytes]) -> None:
    while data := await stream.receive():
        said.append(data)
