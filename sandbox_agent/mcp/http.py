"""Servers behind a URL, by the same rules as the network gate: a name is resolved once, where it leads is judged, and
the judged address is the one that is connected to. Nothing is followed to another host, and answers have a size."""

from __future__ import annotations

import ssl
import urllib.request
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any
from urllib.parse import urlsplit

import httpx2
from mcp.client.sse import sse_client
from mcp.client.streamable_http import streamable_http_client

from sandbox_agent.errors import SandboxAgentError
from sandbox_agent.hostnames import is_address
from sandbox_agent.policy.servers import McpServer, Transport
from sandbox_agent.sandboxes.base import MIB
from sandbox_agent.sandboxes.egress.dial import resolve as resolve_name
from sandbox_agent.sandboxes.egress.ranges import opens, range_of

MAX_ANSWER_BYTES = 16 * MIB
"""Of one answer that is no stream of events; events are bounded one by one, by the package."""

CONNECT_S = 10.0
SILENCE_S = 300.0

Resolve = Callable[[str, int], Awaitable[Sequence[str]]]


class UnreachableServerError(SandboxAgentError):
    """A server's URL leads where it may not, or nowhere. The text says what to do."""


@asynccontextmanager
async def open_url(server: McpServer, resolve: Resolve = resolve_name) -> AsyncGenerator[Any, None]:
    """The streams that `mcp.Client` wants, to a server behind a URL.

    Raises:
        UnreachableServerError: see there.
        httpx2.HTTPError: it does not answer.
    """
    assert server.url is not None
    timeout = httpx2.Timeout(CONNECT_S, read=SILENCE_S)

    def client(
        headers: dict[str, str] | None = None,
        timeout: httpx2.Timeout | None = timeout,
        auth: httpx2.Auth | None = None,
    ) -> httpx2.AsyncClient:
        if _has_proxy(server.url or ""):
            # It resolves names itself, out of our sight; whoever runs the machine chose it.
            return httpx2.AsyncClient(headers={**server.headers, **(headers or {})}, timeout=timeout, auth=auth)
        return httpx2.AsyncClient(
            headers={**server.headers, **(headers or {})},
            timeout=timeout,
            auth=auth,
            transport=_Judged(server, resolve),
            trust_env=False,
        )

    if server.transport is Transport.SSE:
        async with sse_client(server.url, httpx_client_factory=client) as streams:
            yield streams
        return
    async with client() as http, streamable_http_client(server.url, http_client=http) as streams:
        yield streams


def _has_proxy(url: str) -> bool:
    parts = urlsplit(url)
    proxies = urllib.request.getproxies()
    return parts.scheme in proxies and not urllib.request.proxy_bypass(parts.netloc)


class _Judged(httpx2.AsyncBaseTransport):
    """Connects to the judged address of a name, under that name."""

    def __init__(self, server: McpServer, resolve: Resolve) -> None:
        self._server = server
        self._resolve = resolve
        self._inner = httpx2.AsyncHTTPTransport(verify=ssl.create_default_context(), trust_env=False)

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        host = request.url.host
        port = request.url.port or (443 if request.url.scheme == "https" else 80)
        address = await self._address(host, port)
        pinned = httpx2.Request(
            request.method,
            request.url.copy_with(host=address),
            headers=[(name, value) for name, value in request.headers.raw if name.lower() != b"host"]
            + [(b"Host", request.url.netloc)],
            stream=request.stream,
            extensions={**request.extensions, "sni_hostname": host},
        )
        response = await self._inner.handle_async_request(pinned)
        if not response.headers.get("content-type", "").startswith("text/event-stream"):
            assert isinstance(response.stream, httpx2.AsyncByteStream)
            response.stream = _Bounded(response.stream)
        return response

    async def aclose(self) -> None:
        await self._inner.aclose()

    async def _address(self, host: str, port: int) -> str:
        try:
            found = [host] if is_address(host) else list(await self._resolve(host, port))
        except OSError as exc:
            raise UnreachableServerError(f"{host} cannot be resolved: {exc.strerror or exc}") from exc
        for address in found:
            where = range_of(address)
            if where is not None and not opens(
                where.opening, allow_private=self._server.allow_private, literal=is_address(host) or host == "localhost"
            ):
                advice = "" if where.opening == "never" else "; if it should, write allow_private: true in its entry"
                raise UnreachableServerError(f"{host} leads to {address} ({where.name}), which is refused{advice}")
        if not found:
            raise UnreachableServerError(f"{host} leads to no address")
        return found[0]


class _Bounded(httpx2.AsyncByteStream):
    """The body of an answer, up to a size."""

    def __init__(self, stream: httpx2.AsyncByteStream) -> None:
        self._stream = stream

    async def __aiter__(self) -> AsyncIterator[bytes]:
        size_bytes = 0
        async for chunk in self._stream:
            size_bytes += len(chunk)
            if size_bytes > MAX_ANSWER_BYTES:
                raise httpx2.ReadError(f"an answer of over {MAX_ANSWER_BYTES // MIB} MiB")
            yield chunk

    async def aclose(self) -> None:
        await self._stream.aclose()
