"""A Messages API on loopback that plays turns and stamps the first byte of each request, the last of each answer.

The product's own API double is strict, which other agents need not survive, and does not stamp bytes; this one takes
any request and does nothing else between the two stamps. Standard library only.
"""

from __future__ import annotations

import asyncio
import json
import socket
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any

Turn = Sequence[tuple[str, dict[str, Any]]]
"""The tool calls of one answer; an empty one is the text that ends the run."""


@dataclass(slots=True)
class Seen:
    """One request for a turn of the script. Monotonic seconds, but `arrived_unix_s`."""

    arrived_s: float
    arrived_unix_s: float
    failed: list[str] = field(default_factory=list)
    """What its tool results say of calls that failed."""
    answered_s: float = 0.0


class ScriptedApi:
    """An async context manager; `load` a script, then look at `seen`. `hold_s` is waited before the first answer,
    `pace_s` after each piece of every answer that has calls."""

    def __init__(self) -> None:
        self.seen: list[Seen] = []
        self.hold_s = 0.0
        self.pace_s = 0.0
        self._turns: Sequence[Turn] = ()
        self._calls = 0
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    def load(self, turns: Sequence[Turn]) -> None:
        """Begin a new script; after its last turn every answer is the ending text."""
        self._turns = turns
        self.seen = []

    @property
    def base_url(self) -> str:
        """What ANTHROPIC_BASE_URL must be."""
        assert self._server is not None
        return f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}"

    async def __aenter__(self) -> ScriptedApi:
        self._server = await asyncio.start_server(self._connection, "127.0.0.1", 0, limit=1 << 26)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, exc: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._server is not None
        self._server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _connection(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        writer.get_extra_info("socket").setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        try:
            while first := await reader.read(1):
                seen = Seen(time.monotonic(), time.time())
                method, path, body = await _rest_of_request(first, reader)
                await self._answer(writer, seen, f"{method} {path.partition('?')[0]}", body)
        except (asyncio.IncompleteReadError, ConnectionError, asyncio.CancelledError):
            return
        finally:
            self._tasks.discard(task)
            writer.close()

    async def _answer(self, writer: asyncio.StreamWriter, seen: Seen, what: str, body: dict[str, Any]) -> None:
        if what == "POST /v1/messages/count_tokens":
            await _send_plain(writer, 200, {"input_tokens": 100})
            return
        if what != "POST /v1/messages":
            await _send_plain(writer, 404, {"type": "error", "error": {"type": "not_found_error", "message": what}})
            return
        # Title makers and probes have no tools; they must not use up a turn.
        message = self._message(body, counts=bool(body.get("tools")))
        if body.get("tools"):
            seen.failed = list(_failed_results(body["messages"][-1]))
            self.seen.append(seen)
            if len(self.seen) == 1:
                await asyncio.sleep(self.hold_s)
        if body.get("stream"):
            pieces = _streamed(message)
            paced = self.pace_s > 0 and message["stop_reason"] == "tool_use"
            for piece in pieces if paced else [b"".join(pieces)]:
                writer.write(piece)
                await writer.drain()
                if paced and piece is not pieces[-1]:
                    await asyncio.sleep(self.pace_s)
        else:
            await _send_plain(writer, 200, message)
        seen.answered_s = time.monotonic()

    def _message(self, body: dict[str, Any], *, counts: bool) -> dict[str, Any]:
        place = len(self.seen)
        calls = self._turns[place] if counts and place < len(self._turns) else ()
        content: list[dict[str, Any]] = [{"type": "text", "text": "done"}] if not calls else []
        for name, tool_input in calls:
            self._calls += 1
            content.append(
                {"type": "tool_use", "id": f"toolu_bench{self._calls:06d}", "name": name, "input": tool_input}
            )
        return {
            "id": f"msg_bench{self._calls:06d}",
            "type": "message",
            "role": "assistant",
            "model": body.get("model", "bench"),
            "content": content,
            "stop_reason": "tool_use" if calls else "end_turn",
            "stop_sequence": None,
            "usage": {
                "input_tokens": 100,
                "output_tokens": 20,
                "cache_creation_input_tokens": 0,
                "cache_read_input_tokens": 0,
            },
        }


async def _rest_of_request(first: bytes, reader: asyncio.StreamReader) -> tuple[str, str, dict[str, Any]]:
    head = (first + await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
    method, path, _ = head[0].split(" ", 2)
    headers = {name.strip().lower(): value.strip() for name, _, value in (line.partition(":") for line in head[1:])}
    raw = b""
    if headers.get("transfer-encoding", "").lower() == "chunked":
        while size := int((await reader.readline()).split(b";")[0], 16):
            raw += (await reader.readexactly(size + 2))[:-2]
        await reader.readline()
    else:
        raw = await reader.readexactly(int(headers.get("content-length", "0")))
    return method, path, json.loads(raw) if raw else {}


def _failed_results(message: dict[str, Any]) -> Iterator[str]:
    content = message.get("content")
    for block in content if isinstance(content, list) else []:
        if block.get("type") == "tool_result" and block.get("is_error"):
            yield str(block.get("content"))[:200]


async def _send_plain(writer: asyncio.StreamWriter, status: int, body: dict[str, Any]) -> None:
    content = json.dumps(body).encode()
    head = f"HTTP/1.1 {status} Bench\r\ncontent-type: application/json\r\ncontent-length: {len(content)}\r\n\r\n"
    writer.write(head.encode() + content)
    await writer.drain()


def _streamed(message: dict[str, Any]) -> list[bytes]:
    chunks = [f"event: {event['type']}\ndata: {json.dumps(event)}\n\n".encode() for event in _events(message)]
    head = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream; charset=utf-8\r\ntransfer-encoding: chunked\r\n\r\n"
    return [head, *(b"%x\r\n%s\r\n" % (len(chunk), chunk) for chunk in [*chunks, b""])]


def _events(message: dict[str, Any]) -> Iterator[dict[str, Any]]:
    usage = {**message["usage"], "output_tokens": 1}
    yield {"type": "message_start", "message": {**message, "content": [], "stop_reason": None, "usage": usage}}
    for index, block in enumerate(message["content"]):
        if block["type"] == "text":
            shell, delta = {**block, "text": ""}, {"type": "text_delta", "text": block["text"]}
        else:
            shell = {**block, "input": {}}
            delta = {"type": "input_json_delta", "partial_json": json.dumps(block["input"])}
        yield {"type": "content_block_start", "index": index, "content_block": shell}
        yield {"type": "content_block_delta", "index": index, "delta": delta}
        yield {"type": "content_block_stop", "index": index}
    stop = {"stop_reason": message["stop_reason"], "stop_sequence": None}
    yield {"type": "message_delta", "delta": stop, "usage": {"output_tokens": message["usage"]["output_tokens"]}}
    yield {"type": "message_stop"}
