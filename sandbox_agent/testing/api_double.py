"""A strict double of the Messages API on loopback: plays turns, goes wrong on demand, refuses what the real one does.

    async with ApiDouble([{"text": "hello"}]) as api:
        ...  # ANTHROPIC_BASE_URL=api.base_url, any key

    python -m sandbox_agent.testing.api_double --script FILE --port N

Serves POST /v1/messages (SSE and plain), POST /v1/messages/count_tokens, GET /v1/models and /v1/models/NAME. Turns are
those of a model script (docs/scripted-model.md), widened by the faults of `api_turns.DoubleTurn`.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any

from sandbox_agent.errors import ModelError
from sandbox_agent.models.base import ModelRequest
from sandbox_agent.models.outgoing import proofs_in
from sandbox_agent.models.script_file import read_script
from sandbox_agent.models.script_player import ScriptPlayer, Taken, build_answer
from sandbox_agent.testing.api_http import (
    BadHttp,
    Client,
    ClientLeft,
    read_request,
    write_chunk,
    write_head,
    write_plain,
)
from sandbox_agent.testing.api_refusal import Refused
from sandbox_agent.testing.api_rules import check_headers, check_request, check_signers
from sandbox_agent.testing.api_turns import (
    ERROR_KINDS,
    DoubleScript,
    DoubleTurn,
    as_events,
    as_message,
    as_sse,
    error_body,
    model_entry,
    model_list,
)
from sandbox_agent.types import JsonObject


@dataclass(frozen=True, slots=True)
class Received:
    """One request that came. `left` is set when the client goes away before its answer is complete."""

    method: str
    path: str
    headers: Mapping[str, str]
    body: Any
    at_s: float
    """When it was complete, on the monotonic clock."""
    left: asyncio.Event = field(default_factory=asyncio.Event)
    refusal: list[str] = field(default_factory=list)
    """What it was refused for, if it was."""


Turns = Sequence[Mapping[str, Any] | DoubleTurn] | DoubleScript | Callable[[JsonObject], Mapping[str, Any] | DoubleTurn]


class ApiDouble:
    """An async context manager. `requests` holds all requests that came, oldest first, refused ones too.

    Args:
        turns: turns in the format of the script, a whole script, or a function from request body to turn.
        port: 0 picks a free one.
        api_key: the only key that is taken; None takes any.
        models: the names that are known; None takes any.
        window_tokens: a longer prompt (four characters of JSON are a token) is refused; None takes any, as does a
            script that says nothing of it.
    """

    def __init__(
        self,
        turns: Turns,
        *,
        port: int = 0,
        api_key: str | None = None,
        models: Sequence[str] | None = None,
        window_tokens: int | None = None,
        source: str = "API double",
    ) -> None:
        self.requests: list[Received] = []
        self._turns = turns
        self._port = port
        self._api_key = api_key
        self._models = models
        self._window_tokens = window_tokens
        self._chunk_chars = 24
        self._pace_s = 0.0
        self._player: ScriptPlayer[DoubleTurn] | None = None
        if not callable(turns):
            script = turns if isinstance(turns, DoubleScript) else DoubleScript.model_validate({"turns": tuple(turns)})
            self._player = ScriptPlayer(script.turns, script.agents, source)
            self._chunk_chars, self._pace_s = script.chunk_chars, script.pace_s
            self._window_tokens = window_tokens or script.window_tokens
        self._sent_kinds: frozenset[str] = frozenset()
        self._signed: dict[str, set[str]] = {}
        self._answers = 0
        self._server: asyncio.Server | None = None
        self._connections: set[asyncio.Task[None]] = set()

    @property
    def base_url(self) -> str:
        """What ANTHROPIC_BASE_URL must be."""
        return f"http://127.0.0.1:{self._port}"

    @property
    def turns_left(self) -> int:
        """How many turns of the main list were not played; 0 where a function answers."""
        return self._player.turns_left if self._player is not None else 0

    @property
    def message_bodies(self) -> list[JsonObject]:
        """The bodies of all requests for a message, oldest first."""
        return [received.body for received in self.requests if received.path == "/v1/messages"]

    async def __aenter__(self) -> ApiDouble:
        self._server = await asyncio.start_server(self._connection, "127.0.0.1", self._port)
        self._port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, exc: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._server is not None
        self._server.close()
        for task in self._connections:
            task.cancel()
        await asyncio.gather(*self._connections, return_exceptions=True)
        await self._server.wait_closed()

    async def serve_forever(self) -> None:
        """Wait until cancelled."""
        assert self._server is not None
        await self._server.serve_forever()

    async def _connection(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._connections.add(task)
        try:
            while (request := await read_request(reader, writer)) is not None:
                received = Received(request.method, request.path, request.headers, request.json(), time.monotonic())
                self.requests.append(received)
                try:
                    going_on = await self._answer(Client(reader, writer), received)
                except (ClientLeft, ConnectionError):
                    received.left.set()
                    return
                if not going_on:
                    return
        except (BadHttp, ConnectionError, asyncio.CancelledError):
            # Cancelled only by the end of the double itself. asyncio 3.11 asks a connection's task for its exception
            # and prints a traceback if it ended as cancelled, so it ends here as done.
            return
        finally:
            self._connections.discard(task)
            writer.close()
            with suppress(ConnectionError, asyncio.CancelledError):
                await writer.wait_closed()

    async def _answer(self, client: Client, received: Received) -> bool:
        """Answer one request; False when the connection is over."""
        writer = client.writer
        try:
            check_headers(received.headers, self._api_key, has_body=received.method == "POST")
            if received.method == "GET" and received.path.startswith("/v1/models"):
                await write_plain(writer, 200, self._model_page(received.path))
                return True
            if received.method != "POST" or received.path not in ("/v1/messages", "/v1/messages/count_tokens"):
                raise Refused(404, "not_found_error", f"Not found: {received.method} {received.path}")
            counting = received.path.endswith("count_tokens")
            check_request(received.body, counting=counting, own_blocks=self._sent_kinds)
            self._check_model(received.body["model"])
            check_signers(received.body, self._signed)
            if counting:
                await write_plain(writer, 200, {"input_tokens": _estimate(received.body)})
                return True
            self._check_length(received.body)
            taken = self._take(received.body)
        except Refused as refusal:
            received.refusal.append(refusal.message)
            await write_plain(writer, refusal.status, error_body(refusal.kind, refusal.message))
            return True
        return await self._play(client, received.body, taken)

    def _take(self, body: JsonObject) -> Taken[DoubleTurn]:
        if self._player is None:
            assert callable(self._turns)
            turn = DoubleTurn.model_validate(self._turns(body))
            return Taken(turn, f"toolu_double_{self._answers + 1}", {})
        try:
            return self._player.take(ModelRequest(messages=tuple(body["messages"])))
        except ModelError as exc:
            raise Refused(400, "invalid_request_error", str(exc)) from exc

    async def _play(self, client: Client, body: JsonObject, taken: Taken[DoubleTurn]) -> bool:
        turn = taken.turn
        writer = client.writer
        await client.pause(turn.delay_s)
        if turn.fault == "reset" and turn.after == 0:
            client.reset()
            return False
        if turn.status is not None or turn.body is not None:
            status = turn.status or 200
            kind = ERROR_KINDS.get(status, "api_error")
            content: str | JsonObject = turn.body or error_body(kind, turn.error_message or f"the double says {status}")
            await write_plain(writer, status, content, turn.headers)
            return True
        self._answers += 1
        answer = build_answer(turn, taken.id_stem, body["model"], taken.names)
        self._sent_kinds |= {str(block.get("type")) for block in answer.content} - {"text", "tool_use", "thinking"}
        for proof in proofs_in([as_message(answer, "", {})]):
            self._signed.setdefault(proof, set()).add(body["model"])
        default_usage: JsonObject = {
            "input_tokens": _estimate(body),
            "output_tokens": max(1, len(json.dumps(answer.content)) // 4),
        }
        usage: JsonObject = (
            {"cache_creation_input_tokens": 0, "cache_read_input_tokens": 0} | default_usage | dict(turn.usage)
        )
        an_hour = usage.pop("cache_creation_1h_input_tokens", 0)
        usage["cache_creation"] = {
            "ephemeral_5m_input_tokens": usage["cache_creation_input_tokens"] - an_hour,
            "ephemeral_1h_input_tokens": an_hour,
        }
        message = as_message(answer, f"msg_double_{self._answers}", usage)
        if not body.get("stream"):
            await write_plain(writer, 200, message, turn.headers)
            return True
        await write_head(writer, 200, {"content-type": "text/event-stream; charset=utf-8", **turn.headers})
        events = list(as_events(message, answer.malformed, turn.chunk_chars or self._chunk_chars, turn.stop_details))
        return await self._stream(client, events, turn)

    async def _stream(self, client: Client, events: list[JsonObject], turn: DoubleTurn) -> bool:
        writer = client.writer
        pace_s = self._pace_s if turn.pace_s is None else turn.pace_s
        for place in range(len(events) + 1):
            if turn.fault is not None and place == min(turn.after, len(events)):
                if turn.fault in ("reset", "eof") and turn.part_bytes and place < len(events):
                    write_chunk(writer, as_sse(events[place])[: turn.part_bytes])
                match turn.fault:
                    case "reset":
                        await writer.drain()
                        client.reset()
                        return False
                    case "eof":
                        break
                    case "error":
                        message = turn.error_message or "the double says so"
                        write_chunk(writer, as_sse(error_body(turn.error_kind, message)))
                        break
                    case "raw":
                        write_chunk(writer, turn.raw.encode("utf-8", "surrogateescape"))
                    case "stall":
                        await writer.drain()
                        await client.pause(turn.stall_s)
            if place < len(events):
                write_chunk(writer, as_sse(events[place]))
                await writer.drain()
                if events[place]["type"] == "content_block_delta":
                    await client.pause(pace_s)
        write_chunk(writer, b"")
        await writer.drain()
        return True

    def _check_model(self, name: str) -> None:
        if self._models is not None and name not in self._models:
            raise Refused(404, "not_found_error", f"model: {name}")

    def _check_length(self, body: JsonObject) -> None:
        length = _estimate(body)
        if self._window_tokens is not None and length > self._window_tokens:
            text = f"prompt is too long: {length} tokens > {self._window_tokens} maximum"
            raise Refused(400, "invalid_request_error", text)

    def _model_page(self, path: str) -> JsonObject:
        name = path.removeprefix("/v1/models").strip("/")
        if name:
            self._check_model(name)
            return model_entry(name, self._window_tokens)
        return model_list(self._models or (), self._window_tokens)


def _estimate(body: JsonObject) -> int:
    return max(1, len(json.dumps(body)) // 4)


def main() -> None:
    """Serve a script until interrupted."""
    parser = argparse.ArgumentParser(prog="sandbox_agent.testing.api_double", description=main.__doc__)
    parser.add_argument("--script", type=Path, required=True)
    parser.add_argument("--port", type=int, default=0)
    arguments = parser.parse_args()

    async def serve() -> None:
        script = read_script(arguments.script, DoubleScript)
        async with ApiDouble(script, port=arguments.port, source=str(arguments.script)) as api:
            print(f"listening on {api.base_url}", flush=True)
            await api.serve_forever()

    with suppress(KeyboardInterrupt):
        asyncio.run(serve())


if __name__ == "__main__":
    main()
