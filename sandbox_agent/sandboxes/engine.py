"""The two Docker clients for one endpoint: docker-py for the control plane (in threads), aiodocker for byte streams.

docker-py loses output that comes in one packet with the upgrade's headers (docker-py #3332), so no stream goes over it.
"""

from __future__ import annotations

import socket
import struct
from collections.abc import Callable
from functools import partial
from typing import Any, TypeVar

import aiodocker
import aiohttp
import anyio
import anyio.to_thread
import docker
import docker.errors
import docker.tls
import requests.exceptions

from sandbox_agent.errors import SandboxUnavailableError
from sandbox_agent.sandboxes.endpoint import PING_S, Endpoint, connect, greet

T = TypeVar("T")

REQUEST_S = 60
"""For one request to the engine, the wait for a busy disk included."""

APIError = docker.errors.APIError


class Streams:
    """The aiodocker client, and the session under it where that is ours."""

    def __init__(self, client: aiodocker.Docker, session: aiohttp.ClientSession | None = None) -> None:
        self.client = client
        self._session = session

    async def aclose(self) -> None:
        await self.client.close()
        if self._session is not None:
            await self._session.close()


class Engine:
    """An engine that answered a ping. Made by `reach`."""

    def __init__(self, endpoint: Endpoint, version: str, *, podman: bool = False) -> None:
        self.endpoint = endpoint
        self.version = version
        self.podman = podman
        tls = endpoint.tls
        self.control = docker.APIClient(
            base_url=endpoint.url.replace("unix://", "http+unix://", 1),
            version=version,
            timeout=REQUEST_S,
            tls=docker.tls.TLSConfig((tls.cert, tls.key), tls.ca, tls.verify)
            if tls and tls.cert and tls.key
            else False,
        )
        # Proxies and certificate bundles of the environment are for other hosts than the engine.
        self.control.trust_env = False
        self._limiter = anyio.CapacityLimiter(4)

    async def ask(self, act: Callable[..., T], *arguments: Any, **options: Any) -> T:
        """Call docker-py in a thread.

        Raises:
            docker.errors.APIError: the engine refuses.
            SandboxUnavailableError: it is not there, or does not answer.
        """
        try:
            return await anyio.to_thread.run_sync(
                lambda: act(*arguments, **options), limiter=self._limiter, abandon_on_cancel=True
            )
        except docker.errors.APIError:
            raise  # an answer; docker-py derives it from requests' own error
        except requests.exceptions.RequestException as exc:
            text = f"the engine at {self.endpoint} does not answer: {type(exc).__name__}"
            raise SandboxUnavailableError(text) from exc

    def streams(self) -> Streams:
        """A client for byte streams, of the running event loop; close it."""
        url, tls, version = self.endpoint.url, self.endpoint.tls, f"v{self.version}"
        if url.startswith("unix://"):
            # Our own connector, because the default limit of 100 connections would cap the open streams.
            connector = aiohttp.UnixConnector(url.removeprefix("unix://"), limit=0)
            session = aiohttp.ClientSession(connector=connector)
            return Streams(aiodocker.Docker("unix://localhost", connector, session, api_version=version), session)
        if tls is None:
            return Streams(aiodocker.Docker(url, api_version=version))
        url = url.replace("tcp://", "https://", 1)
        return Streams(aiodocker.Docker(url, ssl_context=tls.context(), api_version=version))

    def close(self) -> None:
        self.control.close()


async def reach(endpoint: Endpoint) -> Engine:
    """The engine, if it answers.

    Raises:
        SandboxUnavailableError: see `endpoint.ping`.
    """
    said = await anyio.to_thread.run_sync(greet, endpoint)
    return await anyio.to_thread.run_sync(partial(Engine, endpoint, said.version, podman=said.podman))


def allowed_nofile(endpoint: Endpoint, wanted: int) -> int:
    """How many descriptors the engine may grant a process: what is wanted, or less if its own hard limit is below."""
    hard = own_limit(endpoint, "Max open files")
    return wanted if hard is None else min(wanted, hard)


def own_limit(endpoint: Endpoint, name: str) -> int | None:
    """A hard limit of the engine's own process, by its name in /proc/PID/limits; None if it is unknown or has none.

    The process at the other end of a local socket is the engine itself (or the init that listens for it, whose
    limits say nothing: then the start is refused, and tried again without this limit).
    """
    if not endpoint.url.startswith("unix://"):
        return None
    try:
        with connect(endpoint, PING_S) as channel:
            peer = channel.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
        pid = struct.unpack("3i", peer)[0]
        with open(f"/proc/{pid}/limits", encoding="ascii") as file:
            line = next(line for line in file if line.startswith(name))
    except (OSError, StopIteration):
        return None
    hard = line.removeprefix(name).split()[1]
    return None if hard == "unlimited" else int(hard)
