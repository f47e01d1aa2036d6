"""The bounds of the retries, with attempts, sleep, chance and clock made up."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing

import pytest

from sandbox_agent.errors import ModelError, ModelOverloadedError, ModelRejectedError
from sandbox_agent.models.base import Answer, ModelEvent, Retrying, TextPiece
from sandbox_agent.models.retry import AttemptFailed, Fault, Retry, is_passing, rejection, retry_after_s
from sandbox_agent.types import Usage

ANSWER = Answer(content=({"type": "text", "text": "done"},), stop_reason="end_turn", usage=Usage(), model="m")
OVERLOADED = Fault("busy", status=529, kind="overloaded_error")


class Attempts:
    """Attempts that fail with the given faults, one each, and then succeed; keeps what was slept."""

    def __init__(self, faults: Sequence[Fault]) -> None:
        self.faults = list(faults)
        self.made = 0
        self.slept_s: list[float] = []

    async def attempt(self) -> AsyncGenerator[ModelEvent, None]:
        self.made += 1
        yield TextPiece(f"attempt {self.made}")
        if self.made <= len(self.faults):
            raise AttemptFailed(self.faults[self.made - 1])
        yield ANSWER

    async def sleep(self, seconds: float) -> None:
        self.slept_s.append(seconds)

    async def events(self, *, chance: float = 0.0, max_attempts: int = 10) -> list[ModelEvent]:
        retry = Retry(max_attempts=max_attempts, sleep=self.sleep, random=lambda: chance, clock_unix_s=lambda: 0.0)
        async with aclosing(retry.stream(self.attempt, "some-model")) as events:
            return [event async for event in events]


async def test_a_good_attempt_passes_through_unchanged() -> None:
    """Without a fault the events are the attempt's own, and nothing is slept."""
    attempts = Attempts([])

    assert [TextPiece("attempt 1"), ANSWER] == await attempts.events()
    assert attempts.slept_s == []


async def test_a_passing_fault_is_tried_again_and_said() -> None:
    """A failed attempt is followed by a Retrying with number, wait and reason, and by a whole new attempt."""
    attempts = Attempts([OVERLOADED])

    assert [
        TextPiece("attempt 1"),
        Retrying(attempt=1, wait_s=0.5, reason="529 overloaded_error: busy"),
        TextPiece("attempt 2"),
        ANSWER,
    ] == await attempts.events()


async def test_waits_double_up_to_a_cap_and_ten_tries_are_all() -> None:
    """Ten tries, nine waits, 0.5 s doubling to 32 s; then the error names tries, waiting and the last reason."""
    attempts = Attempts([OVERLOADED] * 99)

    with pytest.raises(
        ModelOverloadedError, match=r"after 10 tries, 128 s of waiting; last: 529 overloaded_error: busy"
    ):
        await attempts.events()
    assert attempts.made == 10
    assert attempts.slept_s == [0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 32.0, 32.0]


async def test_jitter_lengthens_a_wait_by_a_quarter_at_most() -> None:
    """With the highest chance the waits are a quarter longer."""
    attempts = Attempts([OVERLOADED] * 2)
    await attempts.events(chance=1.0)

    assert attempts.slept_s == [0.625, 1.25]


async def test_retry_after_is_obeyed_exactly() -> None:
    """What the server asks for, up to the cap, is what is waited, without jitter."""
    attempts = Attempts([Fault("slow down", status=429, headers={"retry-after": "60"})])
    await attempts.events(chance=1.0)

    assert attempts.slept_s == [60.0]


@pytest.mark.parametrize("asked", ["61", "4294967", "1e300"])
async def test_a_long_retry_after_ends_the_request_at_once(asked: str) -> None:
    """More than a minute is not waited for: the error names how long was asked for."""
    attempts = Attempts([Fault("slow down", status=429, headers={"retry-after": asked})])

    with pytest.raises(ModelOverloadedError, match=rf"asks to wait {float(asked):.0f} s .retry-after.") as caught:
        await attempts.events()
    assert caught.value.status == 429
    assert attempts.slept_s == []


async def test_the_server_can_forbid_another_try() -> None:
    """x-should-retry: false on a passing status ends the request at once."""
    attempts = Attempts([Fault("no", status=429, headers={"x-should-retry": "false"})])

    with pytest.raises(ModelOverloadedError, match="not to try again: 429: no"):
        await attempts.events()
    assert attempts.made == 1


@pytest.mark.parametrize("status", [400, 401, 402, 403, 404, 413, 422])
async def test_a_refusal_is_not_tried_again(status: int) -> None:
    """A refused request is one attempt."""
    attempts = Attempts([Fault("no", status=status)])

    with pytest.raises(ModelRejectedError) as caught:
        await attempts.events()
    assert status == caught.value.status
    assert attempts.made == 1


async def test_an_own_error_of_the_attempt_passes_through() -> None:
    """What is not an AttemptFailed is not caught."""

    async def attempt() -> AsyncGenerator[ModelEvent, None]:
        yield TextPiece("x")
        raise ModelError("something else")

    with pytest.raises(ModelError, match="something else"):
        [event async for event in Retry().stream(attempt, "m")]


async def test_leaving_early_closes_the_attempt() -> None:
    """A consumer that stops listening ends the attempt's own clean-up before it goes on."""
    closed = []

    async def attempt() -> AsyncGenerator[ModelEvent, None]:
        try:
            yield TextPiece("x")
            yield ANSWER
        finally:
            closed.append(True)

    async with aclosing(Retry().stream(attempt, "m")) as events:
        await anext(events)

    assert closed == [True]


@pytest.mark.parametrize(
    ("fault", "passing"),
    [
        (Fault("x"), True),
        (Fault("x", kind="overloaded_error"), True),
        (Fault("x", kind="a_kind_of_tomorrow"), True),
        (Fault("x", kind="invalid_request_error"), False),
        (Fault("x", kind="authentication_error"), False),
        (Fault("x", fatal=True), False),
        *((Fault("x", status=status), True) for status in (408, 409, 429, 500, 502, 503, 504, 529)),
        *((Fault("x", status=status), False) for status in (301, 307, 400, 401, 402, 403, 404, 413, 422)),
        (Fault("x", status=400, headers={"x-should-retry": "true"}), True),
    ],
)
def test_which_faults_pass(fault: Fault, passing: bool) -> None:
    """By status where there is one that speaks, else by kind; in doubt another try, for tries are bounded."""
    assert passing is is_passing(fault)


@pytest.mark.parametrize(
    ("fault", "text", "kind"),
    [
        (
            Fault("prompt is too long: 9 tokens > 8", status=400, kind="invalid_request_error"),
            "window",
            "prompt_too_long",
        ),
        (Fault("bad", status=400, kind="invalid_request_error"), "as invalid: bad", "invalid_request_error"),
        (Fault("bad", status=401), "ANTHROPIC_API_KEY", None),
        (Fault("bad", status=402), "billing", None),
        (Fault("bad", status=403), "permissions", None),
        (Fault("bad", status=404), "'some-model'", None),
        (Fault("bad", status=413), "larger", None),
        (Fault("bad", status=418), "status 418: bad", None),
        (Fault("bad", kind="authentication_error"), "ANTHROPIC_API_KEY", "authentication_error"),
        (Fault("no way", fatal=True), "no way", None),
    ],
)
def test_a_refusal_is_one_clear_line(fault: Fault, text: str, kind: str | None) -> None:
    """Each refusal says what to look at, in one line; a conversation that is too long has a kind of its own."""
    error = rejection(fault, "some-model")

    assert text in str(error)
    assert "\n" not in str(error)
    assert kind == error.kind


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({}, None),
        ({"retry-after": "3"}, 3.0),
        ({"retry-after": "0.25"}, 0.25),
        ({"retry-after-ms": "1500", "retry-after": "9"}, 1.5),
        ({"retry-after": "Thu, 01 Jan 1970 00:00:50 GMT"}, 40.0),
        ({"retry-after": "Thu, 01 Jan 1970 00:00:01 GMT"}, 0.0),
        ({"retry-after": "-5"}, 0.0),
        ({"retry-after": "soon"}, None),
        ({"retry-after": "nan"}, None),
        ({"retry-after": "inf"}, None),
    ],
)
def test_reading_retry_after(headers: dict[str, str], seconds: float | None) -> None:
    """Milliseconds, seconds and dates are understood; what is none of them counts as not asked."""
    assert seconds == retry_after_s(headers, 10.0)
