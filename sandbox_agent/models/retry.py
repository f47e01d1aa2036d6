"""Bounded retries around one attempt at an answer. Knows no SDK: an attempt says of itself what went wrong.

A failed attempt is void as a whole, also when half an answer came: a half answer has no signature, half a tool
call, and no right place in the history.
"""

from __future__ import annotations

import email.utils
import math
import random
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import aclosing
from dataclasses import dataclass, field

import anyio

from sandbox_agent.errors import ModelError, ModelOverloadedError, ModelRejectedError
from sandbox_agent.models.base import ModelEvent, Retrying

MAX_ATTEMPTS = 10
FIRST_WAIT_S = 0.5
LONGEST_WAIT_S = 32.0
LONGEST_RETRY_AFTER_S = 60.0
"""A server that asks for more is not waited for: the person is told instead."""
JITTER = 0.25
"""The most a wait is lengthened by, as a part of it, so that many clients do not come back at once."""

_PASSING_STATUS = frozenset({408, 409, 429})
_REFUSALS = {
    "invalid_request_error": 400,
    "authentication_error": 401,
    "billing_error": 402,
    "permission_error": 403,
    "not_found_error": 404,
    "request_too_large": 413,
}


@dataclass(frozen=True, slots=True)
class Fault:
    """What went wrong with one attempt, in plain values.

    `status` is the HTTP status, None where there was none or where it says nothing (an error event in a stream of
    status 200). `kind` is the API's error type. `message` must be free of secrets.
    """

    message: str
    status: int | None = None
    kind: str | None = None
    headers: Mapping[str, str] = field(default_factory=dict)
    fatal: bool = False
    """No try can help, whatever status and kind say."""
    mended: bool = False
    """The attempt has taken out of the request what was refused: the next one starts at once."""


class AttemptFailed(Exception):
    """Raised by an attempt; carries the `Fault`. Never leaves this room."""

    def __init__(self, fault: Fault) -> None:
        super().__init__(fault.message)
        self.fault = fault


Attempt = Callable[[], AsyncGenerator[ModelEvent, None]]
"""Makes one attempt: yields its events, the answer last, or raises `AttemptFailed`."""


@dataclass(frozen=True, slots=True)
class Retry:
    """The bounds, and the three things a test replaces."""

    max_attempts: int = MAX_ATTEMPTS
    sleep: Callable[[float], Awaitable[None]] = anyio.sleep
    random: Callable[[], float] = random.random
    clock_unix_s: Callable[[], float] = time.time

    async def stream(self, attempt: Attempt, model: str) -> AsyncGenerator[ModelEvent, None]:
        """The events of the first attempt that ends well, with a `Retrying` after each that does not.

        Raises:
            ModelOverloadedError: the last attempt failed in a passing way too, or the server asks for too long a wait.
            ModelRejectedError: an attempt was refused for good.
        """
        number = 0
        waited_s = 0.0
        while True:
            number += 1
            fault: Fault | None = None
            async with aclosing(attempt()) as events:
                try:
                    async for event in events:
                        yield event
                except AttemptFailed as failed:
                    fault = failed.fault
            if fault is None:
                return
            # Raised here and not in the handler, so that no context of the SDK's, which may hold a key, hangs on it.
            wait_s = self._wait_s(fault, number, waited_s, model)
            waited_s += wait_s
            yield Retrying(attempt=number, wait_s=wait_s, reason=_reason(fault))
            await self.sleep(wait_s)

    def _wait_s(self, fault: Fault, number: int, waited_s: float, model: str) -> float:
        if fault.mended and number < self.max_attempts:
            return 0.0
        if not is_passing(fault):
            raise rejection(fault, model)
        reason = _reason(fault)
        asked_s = retry_after_s(fault.headers, self.clock_unix_s())
        given_up = None
        if fault.headers.get("x-should-retry") == "false":
            given_up = f"the model API said not to try again: {reason}"
        elif asked_s is not None and asked_s > LONGEST_RETRY_AFTER_S:
            given_up = (
                f"the model API asks to wait {asked_s:.0f} s (retry-after), more than the "
                f"{LONGEST_RETRY_AFTER_S:.0f} s this program waits; run it again later: {reason}"
            )
        elif number >= self.max_attempts:
            given_up = f"no answer from the model after {number} tries, {waited_s:.0f} s of waiting; last: {reason}"
        if given_up is not None:
            raise ModelOverloadedError(given_up, kind=fault.kind, status=fault.status)
        if asked_s is not None:
            return asked_s
        backoff_s = min(FIRST_WAIT_S * 2.0 ** (number - 1), LONGEST_WAIT_S)
        return backoff_s * (1 + JITTER * self.random())


def is_passing(fault: Fault) -> bool:
    """Whether another try may help. Without a status and with an unknown kind it may: the tries are bounded."""
    if fault.fatal:
        return False
    if fault.status is None:
        return fault.kind not in _REFUSALS
    if fault.headers.get("x-should-retry") == "true":
        return True
    return fault.status in _PASSING_STATUS or fault.status >= 500


def rejection(fault: Fault, model: str) -> ModelError:
    """The error for a refusal: one line that says what to do."""
    status = fault.status if fault.status is not None else _REFUSALS.get(fault.kind or "")
    said = f": {fault.message}" if fault.message else ""
    kind = fault.kind
    match status:
        case 400 if "prompt is too long" in fault.message.lower():
            kind, text = "prompt_too_long", f"the conversation no longer fits the model's window{said}"
        case 400:
            text = f"the model API refused the request as invalid{said}"
        case 401:
            text = f"the model API refused the key; check ANTHROPIC_API_KEY (or ANTHROPIC_AUTH_TOKEN){said}"
        case 402:
            text = f"the model API wants payment; check the account's billing{said}"
        case 403:
            text = f"the key may not do this; check its workspace and permissions{said}"
        case 404:
            text = f"the model API does not know the model {model!r}; check --model and ANTHROPIC_BASE_URL{said}"
        case 413:
            text = f"the request is larger than the model API takes{said}"
        case None:
            text = fault.message
        case _:
            text = f"the model API refused the request with status {status}{said}"
    return ModelRejectedError(text, kind=kind, status=fault.status)


def retry_after_s(headers: Mapping[str, str], now_unix_s: float) -> float | None:
    """How long the server asks to wait: `retry-after-ms`, or `retry-after` in seconds or as a date; else None.

    What is not a number or a date, or not finite, counts as not asked; a time in the past as 0.
    """
    for name, scale in (("retry-after-ms", 1000.0), ("retry-after", 1.0)):
        text = headers.get(name)
        if text is None:
            continue
        try:
            value = float(text) / scale
        except ValueError:
            value = _date_unix_s(text) - now_unix_s
        if math.isfinite(value):
            return max(value, 0.0)
    return None


def _date_unix_s(text: str) -> float:
    try:
        return email.utils.parsedate_to_datetime(text).timestamp()
    except (ValueError, OverflowError):
        return math.nan


def _reason(fault: Fault) -> str:
    parts = [str(fault.status) if fault.status is not None else "", fault.kind or ""]
    head = " ".join(part for part in parts if part)
    return f"{head}: {fault.message}" if head and fault.message else head or fault.message
