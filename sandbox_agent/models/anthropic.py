"""The Messages API through the real SDK. The only module that imports `anthropic`, which costs 1.2-1.6 s of CPU:
load it late, by `registry.load("models", "anthropic")`, in a thread.

Uses the raw stream with an accumulator of its own and retries of its own (the SDK's are off): the SDK reports a stream
that ended early as a whole answer, raises other libraries' errors for a dropped one, and obeys any retry-after.
"""

from __future__ import annotations

import os
import ssl
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import aclosing, suppress

import anthropic
import httpx2

from sandbox_agent.errors import ConfigError, ModelRejectedError
from sandbox_agent.models.accumulate import Accumulator, BrokenStreamError
from sandbox_agent.models.base import ModelEvent, ModelRequest
from sandbox_agent.models.credentials import ApiAccess, read_access
from sandbox_agent.models.outgoing import proofs_in, replace_lone_surrogates, request_body
from sandbox_agent.models.retry import AttemptFailed, Fault, Retry
from sandbox_agent.types import JsonObject

CONNECT_TIMEOUT_S = 10.0
ASK_WINDOW_FROM_TOKENS = 80_000
"""A model's window is asked for when a conversation is so long. Most never are, and no request is made for them."""
SILENCE_TIMEOUT_S = 300.0
"""Nothing at all came for so long, not even a ping: the attempt has failed."""
MOST_BYTES = 32 * 1024 * 1024
"""Of one answer, on the wire. What `ModelRequest.max_tokens` allows is a fifth of it at most."""

_SHOWN_CHARS = 500


def create(
    name: str,
    *,
    environ: Mapping[str, str] | None = None,
    retry: Retry | None = None,
    silence_timeout_s: float = SILENCE_TIMEOUT_S,
) -> AnthropicModel:
    """The model `name`, with key and endpoint from `environ` (None: the process environment).

    Raises:
        ConfigError: no key, or one that cannot be used; a wrong base URL; an empty name.
    """
    if not name.strip():
        raise ConfigError("the model name is empty; give --model anthropic:NAME")
    access = read_access(os.environ if environ is None else environ)
    return AnthropicModel(name.strip(), access, retry or Retry(), silence_timeout_s)


def _tls(base_url: str) -> bool | ssl.SSLContext:
    """How to check certificates. A plain endpoint gets an empty trust store: to read the real one takes 50-100 ms."""
    return ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT) if base_url.startswith("http://") else True


class _TooMuchError(Exception):
    """An answer that has no end."""

    def __init__(self) -> None:
        super().__init__(f"the answer is over {MOST_BYTES // 1024 // 1024} MiB, which no answer of the model API is")


class _Bounded(httpx2.AsyncByteStream):
    """The body of a response, up to a size: the SDK would keep a line without an end, or an endless error page."""

    def __init__(self, stream: httpx2.AsyncByteStream) -> None:
        self._stream = stream

    async def __aiter__(self) -> AsyncIterator[bytes]:
        size = 0
        async for chunk in self._stream:
            size += len(chunk)
            if size > MOST_BYTES:
                raise _TooMuchError
            yield chunk

    async def aclose(self) -> None:
        await self._stream.aclose()


async def _bound(response: httpx2.Response) -> None:
    assert isinstance(response.stream, httpx2.AsyncByteStream)
    response.stream = _Bounded(response.stream)


def _is_about_thinking(exc: anthropic.APIStatusError) -> bool:
    said = (exc.api_message or exc.message).lower()
    return exc.status_code == httpx2.codes.BAD_REQUEST and "thinking" in said and "signature" in said


class AnthropicModel:
    """A model behind the Messages API. Use one per session; requests may run at the same time."""

    def __init__(self, model: str, access: ApiAccess, retry: Retry, silence_timeout_s: float) -> None:
        self._model = model
        self._access = access
        self._retry = retry
        timeout = httpx2.Timeout(silence_timeout_s, connect=CONNECT_TIMEOUT_S)
        self._client = anthropic.AsyncAnthropic(
            api_key=access.api_key,
            auth_token=access.auth_token,
            base_url=access.base_url,
            max_retries=0,
            timeout=timeout,
            # A redirect would carry the key to a host that nobody named.
            http_client=anthropic.DefaultAsyncHttpxClient(
                follow_redirects=False,
                timeout=timeout,
                verify=_tls(access.base_url),
                event_hooks={"response": [_bound]},
            ),
        )
        self._windows: dict[str, int | None] = {}
        self._unwanted: set[str] = set()
        """Proofs of the thinking that the API did not take back."""

    @property
    def name(self) -> str:
        return f"anthropic:{self._model}"

    async def stream(self, request: ModelRequest) -> AsyncIterator[ModelEvent]:
        """Send one request and stream its answer. See `Model.stream`."""
        model = request.model or self._model
        async with aclosing(self._retry.stream(lambda: self._attempt(request), model)) as events:
            async for event in events:
                yield event

    async def window_tokens(self, used_tokens: int, model: str | None = None) -> int | None:
        """What the Models API says; asked once, and not before half of the usual window is used."""
        name = model or self._model
        if name not in self._windows and used_tokens >= ASK_WINDOW_FROM_TOKENS:
            self._windows[name] = None
            with suppress(anthropic.AnthropicError, httpx2.RequestError, _TooMuchError, ValueError):
                found = await self._client.models.retrieve(name, timeout=CONNECT_TIMEOUT_S)
                self._windows[name] = found.max_input_tokens
        return self._windows.get(name)

    async def aclose(self) -> None:
        """Close the connections."""
        await self._client.close()

    async def _attempt(self, request: ModelRequest) -> AsyncGenerator[ModelEvent, None]:
        """One request. What the SDK raises becomes a `Fault` first, and is raised outside of its handler: no error
        of ours has one of the SDK's behind it, which may quote the key."""
        fault: Fault | None = None
        accumulator = Accumulator()
        content_type = ""
        try:
            stream = await self._open(request_body(request, request.model or self._model, self._unwanted))
            async with stream:
                content_type = stream.response.headers.get("content-type", "")
                async for event in stream:
                    if not isinstance(event, dict):
                        raise BrokenStreamError("a stream event that is not an object")
                    shown = accumulator.feed(event)
                    if shown is not None:
                        yield shown
            answer = accumulator.answer()
        except _TooMuchError as exc:
            fault = Fault(str(exc), fatal=True)
        except BrokenStreamError as exc:
            note = "" if "event-stream" in content_type else f" (content-type {content_type or 'missing'})"
            fault = Fault(self._clean(f"{exc}{note}"))
        except anthropic.APIStatusError as exc:
            fault = self._status_fault(exc, request)
        except (anthropic.AnthropicError, httpx2.RequestError) as exc:
            fault = self._connection_fault(exc)
        except (ValueError, RecursionError) as exc:
            fault = Fault(self._clean(f"the stream is damaged: {exc}"))
        if fault is not None:
            raise AttemptFailed(fault)
        yield answer

    async def _open(self, body: JsonObject) -> anthropic.AsyncStream[object]:
        try:
            try:
                return await self._post(body)
            except UnicodeEncodeError:
                # Rare, and a walk over the whole history, so only when the encoder met one.
                return await self._post(replace_lone_surrogates(body))
        except ValueError as exc:
            raise ModelRejectedError(f"the request cannot be written as JSON: {exc}") from exc

    async def _post(self, body: JsonObject) -> anthropic.AsyncStream[object]:
        # What `messages.create(stream=True)` does, less its typed events: they take as much CPU again as all the rest
        # of the stream (1.9 s against 0.97 s for 16,700 deltas), and put the keys of blocks in another order.
        return await self._client.post(
            "/v1/messages",
            body={**body, "stream": True},
            cast_to=object,
            stream=True,
            stream_cls=anthropic.AsyncStream[object],
        )

    def _status_fault(self, exc: anthropic.APIStatusError, request: ModelRequest) -> Fault:
        status = exc.status_code
        location = exc.response.headers.get("location")
        message = exc.api_message or exc.message
        mended = _is_about_thinking(exc) and self._leave_out_thinking(request)
        if mended:
            message += "; the thinking so far is left out from here on"
        if 300 <= status < 400:
            message = f"{self._access.endpoint} redirects to {location}; set ANTHROPIC_BASE_URL to where the API is"
        return Fault(
            self._clean(message),
            # An error event comes in a stream of status 200, which says nothing.
            status=None if status == httpx2.codes.OK else status,
            kind=exc.type,
            headers=dict(exc.response.headers),
            mended=mended,
        )

    def _leave_out_thinking(self, request: ModelRequest) -> bool:
        """Keep all thinking of a request out of it and of all that follow; whether there was any.

        A signature holds for one model, and for what stood before it: after another model, in a conversation that was
        shortened, or behind another endpoint the API takes it no more, and the rest is worth going on with.
        """
        found = proofs_in(request.messages) - self._unwanted
        self._unwanted |= found
        return bool(found)

    def _connection_fault(self, exc: anthropic.AnthropicError | httpx2.RequestError) -> Fault:
        cause = exc.__cause__ if isinstance(exc, anthropic.APIConnectionError) and exc.__cause__ else exc
        detail = str(cause) or type(cause).__name__
        untrusted = "CERTIFICATE_VERIFY_FAILED" in detail
        if isinstance(exc, anthropic.APITimeoutError) or isinstance(cause, httpx2.TimeoutException):
            detail = f"no answer in time ({type(cause).__name__})"
        hint = "; if a company proxy signs, name its certificate in SSL_CERT_FILE" if untrusted else ""
        return Fault(self._clean(f"connection to {self._access.endpoint}: {detail}{hint}"), fatal=untrusted)

    def _clean(self, text: str) -> str:
        """One line, bounded, without the key."""
        line = " ".join(self._access.mask(text).split())
        return line if len(line) <= _SHOWN_CHARS else line[:_SHOWN_CHARS] + " ..."
