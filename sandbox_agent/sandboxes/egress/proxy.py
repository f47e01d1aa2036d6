"""The proxy in the engine: one request a connection, CONNECT with TLS inside or plain HTTP, judged by the one gate.

A refusal comes at once, as an HTTP answer whose status line and text name the host and the setting: pip and npm show
the former, git and curl with -v the latter. Redirects are the client's: it asks again, and is judged again.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Any

import anyio
from anyio.abc import ByteStream

from sandbox_agent.hostnames import HostEntry
from sandbox_agent.sandboxes.egress import sni
from sandbox_agent.sandboxes.egress.dial import Dialled, Dialler
from sandbox_agent.sandboxes.egress.exchange import BadAnswerError, Exchange
from sandbox_agent.sandboxes.egress.gate import Asked, Gate, Refusal
from sandbox_agent.sandboxes.egress.ledger import Ledger, Passing
from sandbox_agent.sandboxes.egress.request import MAX_HEAD_BYTES, Request, RequestError, parse_head
from sandbox_agent.sandboxes.egress.tunnel import Carried, ClientGoneError

_PHRASE_CHARS = 300


@dataclass(frozen=True, slots=True, kw_only=True)
class Caps:
    """What one connection may take. `total_bytes` is of a whole session, both directions; None is no limit."""

    head_s: float = 15.0
    """For the whole head of a request, and for a whole ClientHello."""
    idle_s: float = 300.0
    """Without a byte in either direction."""
    total_bytes: int | None = None


class IdleError(Exception):
    """Nothing came for too long."""


class Proxy:
    """Serves the connections of one session's tools."""

    def __init__(self, gate: Gate, dialler: Dialler, ledger: Ledger, caps: Caps | None = None) -> None:
        self._gate = gate
        self._dialler = dialler
        self._ledger = ledger
        self._caps = caps or Caps()

    async def serve(self, client: Carried) -> None:
        """One connection, to its end. Raises nothing but what is a fault of ours."""
        with contextlib.suppress(ClientGoneError):
            try:
                with anyio.fail_after(self._caps.head_s):
                    received = await _until_empty_line(client)
                if received is None:
                    return
                head, rest = received
                request = parse_head(head)
            except TimeoutError:
                await self._refuse(client, None, Refusal("the request did not come in time", 408))
            except RequestError as exc:
                await self._refuse(client, None, Refusal(str(exc), exc.status))
            else:
                await self._serve(client, request, rest)

    async def _serve(self, client: Carried, request: Request, rest: bytes) -> None:
        asked, entry = self._gate.ask(request.host, request.port)
        if isinstance(entry, HostEntry) and self._spent():
            entry = Refusal(f"this session has used up sandbox.egress ({self._caps.total_bytes} bytes)")
        if isinstance(entry, Refusal):
            await self._refuse(client, asked, entry)
            return
        dialled = await self._dialler.dial(asked, entry, tunnel=request.tunnel)
        if isinstance(dialled, Refusal):
            await self._refuse(client, asked, dialled)
            return
        try:
            if request.tunnel:
                await self._tunnel(client, asked, dialled, rest)
            else:
                await self._exchange(client, asked, dialled, request, rest)
        finally:
            with anyio.CancelScope(shield=True):
                await anyio.aclose_forcefully(dialled.stream)

    def _spent(self) -> bool:
        most = self._caps.total_bytes
        return most is not None and self._ledger.total_bytes >= most

    async def _tunnel(self, client: Carried, asked: Asked, dialled: Dialled, rest: bytes) -> None:
        """TLS to the name that was asked for. Nothing is sent to the server before its hello has been read."""
        await client.send(b"HTTP/1.1 200 Connection established\r\n\r\n")
        try:
            with anyio.fail_after(self._caps.head_s):
                hello = await _hello(client, rest)
            if hello is None:
                return
            sni.check_hello(hello[: sni.record_bytes(hello)], asked.host)
        except (sni.HelloError, TimeoutError) as exc:
            reason = str(exc) or "no TLS ClientHello came in time"
            self._ledger.refused(asked, Refusal(f"{asked.text} is refused: {reason}"))
            await client.send(sni.ACCESS_DENIED)
            return
        passing = self._ledger.allowed(asked, "connect", dialled.address)
        try:
            await self._pump(client, dialled.stream, passing, hello)
        finally:
            passing.end()

    async def _pump(self, client: Carried, server: ByteStream, passing: Passing, first: bytes) -> None:
        """Carry bytes both ways until both are over, or one fails, or nothing comes."""
        idle = _Idle(self._caps.idle_s)

        async def up() -> None:
            data = first
            while data:
                await server.send(data)
                passing.sent(len(data))
                self._stop_if_spent(passing)
                idle.reset()
                data = await client.receive()
            with contextlib.suppress(NotImplementedError):
                await server.send_eof()

        async def down() -> None:
            async for data in server:
                passing.received(len(data))
                self._stop_if_spent(passing)
                await client.send(data)
                idle.reset()
            client.send_eof()

        try:
            await idle.run(up, down)
        except* (OSError, anyio.BrokenResourceError, anyio.ClosedResourceError, ClientGoneError) as lost:
            passing.reason = passing.reason or _lost(lost)
        except* IdleError:
            passing.reason = f"nothing came for {self._caps.idle_s:g} s"

    def _stop_if_spent(self, passing: Passing) -> None:
        if self._spent():
            passing.reason = f"this session has used up sandbox.egress ({self._caps.total_bytes} bytes)"
            raise ClientGoneError

    async def _exchange(self, client: Carried, asked: Asked, dialled: Dialled, request: Request, rest: bytes) -> None:
        """One plain request and its answer, both made anew."""
        passing = self._ledger.allowed(asked, "http", dialled.address)
        exchange = Exchange(request, client, dialled, passing)
        idle = _Idle(self._caps.idle_s)

        def moved() -> None:
            idle.reset()
            self._stop_if_spent(passing)

        async def both() -> None:
            await exchange.run(rest, moved)

        try:
            await idle.run(both)
        except* BadAnswerError as bad:
            passing.reason = str(_first(bad))
            await self._answer_instead(client, exchange, Refusal(f"{asked.text}: {passing.reason}", 502))
        except* (OSError, anyio.BrokenResourceError, anyio.ClosedResourceError, ClientGoneError) as lost:
            passing.reason = passing.reason or _lost(lost)
        except* IdleError:
            passing.reason = f"nothing came for {self._caps.idle_s:g} s"
            await self._answer_instead(client, exchange, Refusal(f"{asked.text}: {passing.reason}", 504))
        finally:
            passing.end()

    async def _answer_instead(self, client: Carried, exchange: Exchange, refusal: Refusal) -> None:
        if not exchange.answered:
            with contextlib.suppress(ClientGoneError):
                await client.send(answer(refusal))

    async def _refuse(self, client: Carried, asked: Asked | None, refusal: Refusal) -> None:
        self._ledger.refused(asked, refusal)
        await client.send(answer(refusal))


class _Idle:
    """Ends what it runs when nobody has said for a while that something moved."""

    def __init__(self, idle_s: float) -> None:
        self._idle_s = idle_s
        self._scope = anyio.CancelScope()

    def reset(self) -> None:
        self._scope.deadline = anyio.current_time() + self._idle_s

    async def run(self, *acts: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """All at once, until all have returned.

        Raises:
            IdleError: nothing moved.
            ExceptionGroup: of what they raised.
        """
        self.reset()
        with self._scope:
            async with anyio.create_task_group() as group:
                for act in acts:
                    group.start_soon(act)
        if self._scope.cancelled_caught:
            raise IdleError


def answer(refusal: Refusal) -> bytes:
    """The HTTP answer for a refusal. The reason is in the status line as well: that is what most clients show."""
    text = "".join(char if " " <= char <= "~" else "?" for char in refusal.reason)
    body = f"sandbox-agent: {text}\n".encode("ascii")
    head = (
        f"HTTP/1.1 {refusal.status} {text[:_PHRASE_CHARS]}\r\n"
        "Content-Type: text/plain\r\n"
        f"Content-Length: {len(body)}\r\n"
        "Connection: close\r\n\r\n"
    )
    return head.encode("ascii") + body


async def _until_empty_line(client: Carried) -> tuple[bytes, bytes] | None:
    """The head of a request and what came behind it; None where the client closed without a word.

    Raises:
        RequestError: it ended within the head, or that is too long.
    """
    data = bytearray()
    while (end := data.find(b"\r\n\r\n")) < 0:
        if len(data) > MAX_HEAD_BYTES:
            raise RequestError("the request's head is too long", 431)
        more = await client.receive()
        if not more and not data:
            return None
        data += more
        if not more or (b"\n\n" in data and b"\r\n\r\n" not in data):
            raise RequestError("not an HTTP request")
    return bytes(data[: end + 4]), bytes(data[end + 4 :])


async def _hello(client: Carried, data: bytes) -> bytes | None:
    """What came up to the end of the first TLS record at least; None where the client closed without a word."""
    while (size := sni.record_bytes(data)) is None or len(data) < size:
        more = await client.receive()
        if not more and not data:
            return None
        if not more:
            raise sni.HelloError("the connection ended within the ClientHello")
        data += more
    return data


def _first(group: BaseExceptionGroup[BaseException]) -> BaseException:
    found: BaseException = group
    while isinstance(found, BaseExceptionGroup):
        found = found.exceptions[0]
    return found


def _lost(group: BaseExceptionGroup[BaseException]) -> str:
    return "the client closed" if isinstance(_first(group), ClientGoneError) else "the server closed"
