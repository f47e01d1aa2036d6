"""A look at an overlay for a person who may not mount: the engine mounts it, and we take the open folder from there.

A container that does nothing runs as the tools' uid, which is the person's own, so the kernel lets the person open its
root (/proc/PID/root). The container goes at once; the folder stays readable through its descriptor. An engine counts
processes as its own machine does, which need not be this one: so the process must be known by a word that we chose.
"""

from __future__ import annotations

import errno
import os
import secrets
import time
from typing import Any

import docker.errors
import requests.exceptions

import sandbox_agent
from sandbox_agent.errors import SandboxUnavailableError, WorkspaceError
from sandbox_agent.sandboxes.base import MIB
from sandbox_agent.sandboxes.endpoint import Endpoint, ping
from sandbox_agent.sandboxes.engine import Engine
from sandbox_agent.sandboxes.owner import LABEL_OWNER, LABEL_SESSION, LABEL_VERSION, this_process
from sandbox_agent.sandboxes.spec import DEFAULT_IMAGE
from sandbox_agent.sandboxes.volumes import overlay_name, overlay_volume
from sandbox_agent.types import WORKSPACE_MOUNT, OverlayMount

SETTLE_S = 5.0
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


def open_view(endpoint: Endpoint, session_id: str, mount: OverlayMount, uid: int, gid: int) -> int:
    """A descriptor of the top folder of an overlay that no container uses now. Blocks; the caller closes it.

    Raises:
        SandboxUnavailableError: no engine answers, or our image is missing.
        WorkspaceError: the engine does not mount it, or what it mounted is out of our sight.
    """
    engine = Engine(endpoint, ping(endpoint))
    control: Any = engine.control  # its stubs know half of it
    volume = overlay_name(session_id)
    labels = {
        LABEL_SESSION: session_id,
        LABEL_OWNER: this_process().label(),
        LABEL_VERSION: sandbox_agent.__version__,
    }
    container: str | None = None
    word = f"60.{secrets.randbelow(10**12):012d}"
    try:
        made = control.create_container_from_config(
            _body(f"{uid}:{gid}", overlay_volume(volume, mount, labels), labels, word)
        )
        container = made["Id"]
        control.start(container)
        pid = int(control.inspect_container(container)["State"]["Pid"])
        return open_root(pid, word)
    except docker.errors.ImageNotFound as exc:
        raise SandboxUnavailableError(f"the image {DEFAULT_IMAGE} is missing; build it with `make setup`") from exc
    except docker.errors.APIError as exc:
        raise WorkspaceError(f"the engine does not show the session's changes: {exc.explanation}") from exc
    except requests.exceptions.RequestException as exc:
        raise SandboxUnavailableError(f"the engine at {endpoint} does not answer: {type(exc).__name__}") from exc
    except OSError as exc:
        raise WorkspaceError(f"the session's changes are out of our sight: {exc}") from exc
    finally:
        _remove(engine, container, volume)
        engine.close()


def open_root(pid: int, word: str, *, within_s: float = SETTLE_S) -> int:
    """The workspace of the process that sleeps for this word. The engine says "started" while the process may still be
    its own helper, which nobody may look into.

    Raises:
        OSError: there is no such process here, or it may not be looked into.
    """
    deadline_s = time.monotonic() + within_s
    while True:
        try:
            # By one descriptor, so that what is opened is of the process that was looked at.
            process = os.open(f"/proc/{pid}", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            try:
                if _words(process)[-2:] == [b"sleep", word.encode()]:  # behind an init, where the engine adds one
                    return os.open(f"root{WORKSPACE_MOUNT}", _FOLDER, dir_fd=process)
            finally:
                os.close(process)
            fault: OSError = ProcessLookupError(errno.ESRCH, "the engine's processes are not this machine's")
        except PermissionError as exc:
            fault = exc
        if time.monotonic() > deadline_s:
            raise fault
        time.sleep(0.005)


def _words(process: int) -> list[bytes]:
    with open(os.open("cmdline", os.O_RDONLY | os.O_CLOEXEC, dir_fd=process), "rb") as file:
        return file.read(4096).split(b"\0")[:-1]


def _remove(engine: Engine, container: str | None, volume: str) -> None:
    try:
        if container is not None:
            engine.control.remove_container(container, force=True, v=True)
        engine.control.remove_volume(volume)
    except docker.errors.APIError as exc:
        if exc.status_code not in (404, 409):
            raise
    except requests.exceptions.RequestException:
        return  # it ends by itself in a minute, and the next start removes what is left


def _body(user: str, mount: dict[str, Any], labels: dict[str, str], word: str) -> dict[str, Any]:
    return {
        "Image": DEFAULT_IMAGE,
        "User": user,
        "Entrypoint": [],
        "Cmd": ["sleep", word],
        "NetworkDisabled": True,
        "Labels": labels,
        "HostConfig": {
            "CapDrop": ["ALL"],
            "SecurityOpt": ["no-new-privileges:true"],
            "ReadonlyRootfs": True,
            "NetworkMode": "none",
            "PidsLimit": 16,
            "Memory": 64 * MIB,
            "MemorySwap": 64 * MIB,
            "LogConfig": {"Type": "none"},
            "Mounts": [mount],
        },
    }
