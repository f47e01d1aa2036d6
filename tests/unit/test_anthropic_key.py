"""The key of the Anthropic model: where it comes from, and that it is never shown."""

from __future__ import annotations

import logging
import subprocess
import sys
from collections.abc import AsyncIterator

import pytest
from model_rig import GOOD, KEY, REQUEST, ask, connected

from sandbox_agent.errors import ConfigError, ModelOverloadedError, ModelRejectedError
from sandbox_agent.models.anthropic import create
from sandbox_agent.models.base import ModelEvent
from sandbox_agent.models.credentials import check_credentials, read_access
from sandbox_agent.testing.api_double import ApiDouble
from sandbox_agent.types import JsonObject


def all_texts(error: BaseException | None) -> str:
    """Everything a traceback of the error could print."""
    texts = []
    while error is not None:
        texts += [str(error), repr(error), repr(error.args), repr(vars(error))]
        error = error.__cause__ or error.__context__
    return "\n".join(texts)


async def keep(events: AsyncIterator[ModelEvent], seen: list[ModelEvent]) -> None:
    async for event in events:
        seen.append(event)


@pytest.mark.parametrize(
    "turn",
    [
        {"status": 400, "error_message": f"what is {KEY}?"},
        {"status": 401, "body": f"<html>{KEY}</html>"},
        {"status": 529, "error_message": f"what is {KEY}?"},
        {"text": "x", "fault": "error", "after": 4, "error_message": f"busy with {KEY}"},
        {"text": "x", "fault": "raw", "after": 3, "raw": f"event: x\ndata: {{{KEY}\n\n"},
        {"body": KEY, "headers": {"content-type": KEY}},
        {"status": 307, "headers": {"location": f"http://x/{KEY}"}},
    ],
)
async def test_the_key_is_never_shown_even_when_echoed(turn: JsonObject, caplog: pytest.LogCaptureFixture) -> None:
    """Not in the error, not in what hangs on it, not in a reason, a repr or a log line of our own."""
    seen: list[ModelEvent] = []
    caplog.set_level(logging.DEBUG, logger="sandbox_agent")
    async with connected([turn, turn], max_attempts=2) as (model, api):
        with pytest.raises((ModelRejectedError, ModelOverloadedError)) as caught:
            await keep(model.stream(REQUEST), seen)
        shown = all_texts(caught.value) + repr(seen) + repr(model) + repr(vars(model)) + model.name + caplog.text

    assert api.requests[0].headers["authorization"] == f"Bearer {KEY}"
    assert KEY not in shown


async def test_a_token_is_sent_as_bearer() -> None:
    """ANTHROPIC_AUTH_TOKEN goes into the authorization header, and no x-api-key with it."""
    async with ApiDouble([GOOD]) as api:
        model = create("m", environ={"ANTHROPIC_AUTH_TOKEN": f" {KEY}\n", "ANTHROPIC_BASE_URL": api.base_url})
        await ask(model)
        await model.aclose()

    assert f"Bearer {KEY}" == api.requests[0].headers["authorization"]
    assert "x-api-key" not in api.requests[0].headers


def test_a_missing_key_is_one_clear_line() -> None:
    """It names both variables and what needs no key."""
    with pytest.raises(ConfigError) as caught:
        check_credentials({"ANTHROPIC_API_KEY": "  "})

    text = str(caught.value)
    assert all(
        part in text for part in ("ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN", "script:FILE", "sandbox-agent demo")
    )
    assert "\n" not in text


@pytest.mark.parametrize("key", ["two words", "ke\ny", "schlüssel"])
def test_a_key_that_cannot_be_sent_is_refused_unseen(key: str) -> None:
    """The HTTP library would quote it in its error."""
    with pytest.raises(ConfigError, match="ANTHROPIC_API_KEY") as caught:
        check_credentials({"ANTHROPIC_API_KEY": key})
    assert key not in str(caught.value)


@pytest.mark.parametrize("url", ["localhost:8080", "ftp://x", "https://", "http://x:port", "http://x:0"])
def test_a_wrong_base_url_is_refused(url: str) -> None:
    """Before anything is sent, naming the variable."""
    with pytest.raises(ConfigError, match="ANTHROPIC_BASE_URL"):
        check_credentials({"ANTHROPIC_API_KEY": KEY, "ANTHROPIC_BASE_URL": url})


def test_where_access_came_from_can_be_shown() -> None:
    """doctor names the endpoint and the variables; the repr holds no secret."""
    access = read_access({"ANTHROPIC_API_KEY": KEY, "ANTHROPIC_AUTH_TOKEN": "other"})

    assert (access.endpoint, access.base_url_from) == ("https://api.anthropic.com", "default")
    assert (access.secret_from, access.auth_token) == ("ANTHROPIC_API_KEY", None)
    assert KEY not in repr(access)


def test_an_empty_model_name_is_refused() -> None:
    """`--model anthropic:` says what is missing."""
    with pytest.raises(ConfigError, match="anthropic:NAME"):
        create(" ", environ={"ANTHROPIC_API_KEY": KEY})


def test_only_the_back_end_itself_imports_the_sdk() -> None:
    """Its import costs more than a second of CPU, so the key check and the scripted model must do without."""
    code = (
        "import sys; from sandbox_agent.models import accumulate, base, credentials, outgoing, retry, scripted; "
        "assert not {'anthropic', 'httpx2'} & set(sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)

    assert (done.returncode, done.stderr) == (0, "")
