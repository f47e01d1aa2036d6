"""One plain HTTP request and its answer. Both are parsed and made anew: no byte of either side's framing passes.

The server is told that there is one request on its connection, and so is the client. What a client sends behind its
request is never read as a second one.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import anyio
import h11

from sandbox_agent.sandboxes.egress.dial import Dialled
from sandbox_agent.sandboxes.egress.ledger import Passing
from sandbox_agent.sandboxes.egress.request import MAX_HEAD_BYTES, Request, outgoing
from sandbox_agent.sandboxes.egress.tunnel import Carried

_READ_BYTES = 64 * 1024
_OF_THE_CONNECTION = frozenset(
    (b"connection", b"keep-alive", b"proxy-connection", b"proxy-authenticate", b"upgrade", b"trailer")
)


class BadAnswerError(Exception):
    """The server's answer cannot be passed on; the text says why."""


class Exchange:
    """The two sides of one request. `answered` is True once the client has had some of the answer."""

    def __init__(self, request: Request, client: Carried, dialled: Dialled, passing: Passing) -> None:
        self._request = request
        self._client = client
        self._dialled = dialled
        self._passing = passing
        self._from_client = h11.Connection(h11.SERVER, max_incomplete_event_size=MAX_HEAD_BYTES)
        self._to_server = h11.Connection(h11.CLIENT, max_incomplete_event_size=MAX_HEAD_BYTES)
        self.answered = False

    async def run(self, rest: bytes, moved: Callable[[], None]) -> None:
        """Send the request, with its body, and pass on the answer as it comes.

        Args:
            rest: what came behind the request's head.
            moved: called whenever something was passed on.

        Raises:
            BadAnswerError: what the server said is no answer.
            ClientGoneError, OSError, anyio.BrokenResourceError: one side is gone.
        """
        self._from_client.receive_data(self._request.head + rest)
        self._from_client.next_event()  # the head, which `parse_head` has read more strictly
        try:
            await self._send(outgoing(self._request, self._target(), self._extra()))
        except h11.LocalProtocolError as exc:
            raise BadAnswerError("the request cannot be passed on") from exc
        if self._request.expects_continue:
            await self._client.send(b"HTTP/1.1 100 Continue\r\n\r\n")
        async with anyio.create_task_group() as group:
            group.start_soon(self._body, moved)
            await self._answer(moved)
            group.cancel_scope.cancel()  # a body that the server did not wait for

    def _target(self) -> bytes:
        if self._dialled.route is None:
            return self._request.path
        return b"http://" + self._request.where + self._request.path

    def _extra(self) -> tuple[tuple[bytes, bytes], ...]:
        return () if self._dialled.route is None else self._dialled.route.headers()

    async def _send(self, event: Any) -> None:
        data = self._to_server.send(event)
        if data:
            await self._dialled.stream.send(data)
            self._passing.sent(len(data))

    async def _body(self, moved: Callable[[], None]) -> None:
        try:
            while True:
                event = self._from_client.next_event()
                if event is h11.NEED_DATA:
                    self._from_client.receive_data(await self._client.receive())
                elif isinstance(event, h11.Data):
                    await self._send(event)
                    moved()
                else:
                    await self._send(h11.EndOfMessage())  # without trailers, which are headers nobody has judged
                    return
        except h11.ProtocolError as exc:
            raise BadAnswerError("the body of the request is malformed") from exc

    async def _answer(self, moved: Callable[[], None]) -> None:
        try:
            while True:
                event = self._to_server.next_event()
                if event is h11.NEED_DATA:
                    await self._receive()
                elif isinstance(event, h11.InformationalResponse):
                    continue  # a change to another protocol is not one of these: h11 takes it for malformed
                elif isinstance(event, h11.Response):
                    await self._pass_on(self._head(event))
                elif isinstance(event, h11.Data):
                    await self._pass_on(self._from_client.send(event))
                    moved()
                else:
                    await self._pass_on(self._from_client.send(h11.EndOfMessage()))
                    return
        except h11.RemoteProtocolError as exc:
            raise BadAnswerError("the server's answer is malformed, or ended too early") from exc

    def _head(self, response: h11.Response) -> bytes | None:
        headers = [pair for pair in response.headers if pair[0] not in _OF_THE_CONNECTION]
        headers.append((b"connection", b"close"))
        return self._from_client.send(
            h11.Response(status_code=response.status_code, headers=headers, reason=response.reason)
        )

    async def _pass_on(self, data: bytes | None) -> None:
        if data:
            self.answered = True
            await self._client.send(data)

    async def _receive(self) -> None:
        try:
            data = await self._dialled.stream.receive(_READ_BYTES)
        except anyio.EndOfStream:
            data = b""
        self._passing.received(len(data))
        self._to_server.receive_data(data)
