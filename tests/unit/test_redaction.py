"""Secrets are taken out of text and events in every form that is promised, and nothing else is."""

from __future__ import annotations

import base64
import json
import random
import string
import time
from urllib.parse import quote, quote_plus

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sandbox_agent.engine.secrecy import Secrecy, environment_secrets
from sandbox_agent.events import AssistantMessage, ConversationCompacted, Event, TextDelta, ToolFinished, ToolStarted
from sandbox_agent.events.redaction import CHUNK_CHARS, Redactor, Secret
from sandbox_agent.types import JsonObject, Usage
from sandbox_agent.workspaces.secretvalues import values_in

_VALUES = st.text(string.ascii_letters + string.digits + " !#$%&/()=?+*~-_.:,;<>|äß€'\"\\", min_size=8, max_size=60)
_AROUND = st.binary(max_size=120)
_SECRET = "correct-Horse/7+battery"


def _forms(raw: bytes, before: bytes, after: bytes) -> dict[str, str]:
    whole = before + raw + after
    every_byte = "".join(f"%{byte:02x}" for byte in raw)
    wrapped = base64.encodebytes(whole).decode()
    return {
        "exact": raw.decode(),
        "json": json.dumps(raw.decode()),
        "base64": base64.b64encode(whole).decode(),
        "urlsafe": base64.urlsafe_b64encode(whole).decode(),
        "wrapped": wrapped,
        "in a diff": "".join(f"+{line}\n" for line in wrapped.splitlines()),
        "numbered": "".join(f"{number:>6}\t{line}\n" for number, line in enumerate(wrapped.splitlines(), 1)),
        "carriage returns": wrapped.replace("\n", "\r\n"),
        "hex": raw.hex(),
        "HEX": raw.hex().upper(),
        "quoted": quote(raw),
        "all quoted": quote(raw, safe=""),
        "form": quote_plus(raw),
        "every byte": every_byte,
        "EVERY BYTE": every_byte.upper(),
    }


@settings(max_examples=60, deadline=None)
@given(_VALUES, _AROUND, _AROUND)
def test_no_form_of_a_value_comes_through(value: str, before: bytes, after: bytes) -> None:
    """In all encodings, whatever it is encoded together with, a mark stands in its place."""
    redactor = Redactor([Secret(".env NAME", value)])
    for name, form in _forms(value.encode(), before, after).items():
        clean = redactor.text(f"a {form} b")
        assert "[masked: .env NAME]" in clean, name
        assert value not in clean
        assert clean.count("\n") == form.count("\n")


@settings(max_examples=60, deadline=None)
@given(_VALUES, st.lists(st.integers(1, 9), min_size=1, max_size=40), st.sampled_from(["exact", "base64", "hex"]))
def test_a_stream_in_pieces_is_the_same_as_the_whole(value: str, sizes: list[int], form: str) -> None:
    """However an answer is cut into pieces, what is shown of it is what is shown of the whole."""
    text = f"the value is {_forms(value.encode(), b'', b'')[form]} and that {value[:5]}"
    secrecy = Secrecy({"MY_SECRET": value})
    if not list(environment_secrets({"MY_SECRET": value})):
        return
    shown, at = "", 0
    for size in [*sizes, len(text)]:
        shown += "".join(_texts(secrecy, TextDelta(text=text[at : at + size])))
        at += size
    end = AssistantMessage(content=(), stop_reason="end_turn", model="m", usage=Usage())
    shown += "".join(_texts(secrecy, end))
    assert shown == secrecy.redactor.text(text)


def _texts(secrecy: Secrecy, event: Event) -> list[str]:
    return [one.text for one in secrecy.pass_on(event) if isinstance(one, TextDelta)]


def test_what_is_no_secret_is_the_very_same_object() -> None:
    """Events without a secret are passed on as they are."""
    event = ToolStarted(call_id="c", tool="Bash", summary="ls", input={"command": "ls", "n": [1, {"a": None}]}, batch=0)
    assert Redactor([Secret("x", _SECRET)]).event(event) is event


def test_every_field_of_an_event_is_cleaned() -> None:
    """Inputs with their keys, results, and the bytes of an output, which stay bytes."""
    redactor = Redactor([Secret(".env X", _SECRET)])
    raw = base64.b64encode(b"\xff" + _SECRET.encode() + b"\xfe").decode()
    event = ToolFinished(
        call_id="c",
        tool="Bash",
        content=({"type": "text", "text": f"out {_SECRET}"},),
        is_error=False,
        duration_s=0.0,
        meta={"diff": f"+{_SECRET}\n", _SECRET: [_SECRET], "stdout_base64": raw},
    )
    clean = redactor.event(event)
    assert isinstance(clean, ToolFinished)
    assert _SECRET not in repr(clean)
    assert base64.b64decode(clean.meta["stdout_base64"]) == b"\xff[masked: .env X]\xfe"
    assert clean.meta["diff"] == "+[masked: .env X]\n"


def test_thinking_with_a_secret_goes_as_a_whole_and_any_other_stays_untouched() -> None:
    """A changed block would not be taken back by the API; signatures are never searched."""
    kept: JsonObject = {"type": "thinking", "thinking": "hm", "signature": base64.b64encode(_SECRET.encode()).decode()}
    told: JsonObject = {"type": "thinking", "thinking": f"it is {_SECRET}", "signature": "s"}
    text: JsonObject = {"type": "text", "text": _SECRET}
    event = AssistantMessage(content=(kept, told, text), stop_reason="end_turn", model="m", usage=Usage())
    clean = Redactor([Secret("x", _SECRET)]).event(event)
    assert isinstance(clean, AssistantMessage)
    assert clean.content == (kept, {"type": "text", "text": "[masked: x]"})


def test_a_compacted_conversation_is_looked_through_as_its_messages_were() -> None:
    """Words get a mark, thinking goes or stays as a whole, and what the API has sealed is not touched."""
    sealed = base64.b64encode(_SECRET.encode()).decode()
    kept: JsonObject = {"type": "thinking", "thinking": "hm", "signature": sealed}
    told: JsonObject = {"type": "thinking", "thinking": f"it is {_SECRET}", "signature": "s"}
    messages: list[JsonObject] = [
        {"role": "user", "content": [{"type": "text", "text": f"use {_SECRET}"}]},
        {"role": "assistant", "content": [kept, told, {"type": "text", "text": "ok"}]},
    ]
    event = ConversationCompacted(
        messages=tuple(messages),
        reason="full",
        tokens_before=2,
        tokens_after=1,
        window_tokens=2,
        model="m",
        usage=Usage(),
    )
    clean = Redactor([Secret("a b", _SECRET)]).event(event)
    assert isinstance(clean, ConversationCompacted)
    assert clean.messages == (
        {"role": "user", "content": [{"type": "text", "text": "use [masked: a b]"}]},
        {"role": "assistant", "content": [kept, {"type": "text", "text": "ok"}]},
    )
    assert Redactor([Secret("a b", "another-secret")]).event(event) is event


@pytest.mark.parametrize("name", ["signature", "encrypted_content", "data", "stdout_base64"])
def test_no_field_is_left_unsearched_for_its_name(name: str) -> None:
    """A model names the fields of its inputs, a program those of its output; only the API's own blocks are sealed."""
    secret = "abcd1234EFGH5678"  # valid base64 itself
    redactor = Redactor([Secret("x", secret)])
    disguised: JsonObject = {"type": "thinking", name: secret, "content": [{"type": "web_search_result", name: secret}]}
    picture: JsonObject = {"type": "image", "source": {"data": [secret], "x": secret}, name: secret, secret: 1}
    use: JsonObject = {"type": "tool_use", "id": "c", "name": "T", "input": disguised, "content": [disguised, picture]}
    asked = redactor.event(AssistantMessage(content=(use,), stop_reason="tool_use", model="m", usage=Usage()))
    started = redactor.event(ToolStarted(call_id="c", tool="T", summary="", input=disguised, batch=0))
    ended = redactor.event(
        ToolFinished(
            call_id="c", tool="T", content=(disguised, picture), is_error=False, duration_s=0.0, meta=disguised
        )
    )
    for event in (asked, started, ended):
        assert secret not in repr(event)


def test_what_the_api_has_sealed_stays_as_it_was() -> None:
    """Beside what is cleaned in the same block."""
    sealed = base64.b64encode(_SECRET.encode()).decode()
    result: JsonObject = {"type": "web_search_result", "title": f"on {_SECRET}", "encrypted_content": sealed}
    block: JsonObject = {"type": "web_search_tool_result", "tool_use_id": "s", "content": [result]}
    hidden: JsonObject = {"type": "redacted_thinking", "data": sealed}
    event = AssistantMessage(content=(block, hidden), stop_reason="end_turn", model="m", usage=Usage())
    clean = Redactor([Secret("x", _SECRET)]).event(event)
    assert isinstance(clean, AssistantMessage)
    assert clean.content == ({**block, "content": [{**result, "title": "on [masked: x]"}]}, hidden)


def test_a_picture_with_a_secret_in_it_becomes_a_mark() -> None:
    """Its bytes cannot be cut without breaking it."""
    data = base64.b64encode(b"\x89PNG" + _SECRET.encode()).decode()
    picture = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": data}}
    event = ToolFinished(call_id="c", tool="Read", content=(picture,), is_error=False, duration_s=0)
    clean = Redactor([Secret("x", _SECRET)]).event(event)
    assert isinstance(clean, ToolFinished)
    assert clean.content == ({"type": "text", "text": "[masked: x]"},)


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("DB_PASSWORD=hunter2hunter2", ["hunter2hunter2"]),
        ("export API_TOKEN='tok 1 2 3 4' # for tests", ["tok 1 2 3 4"]),
        ('A="with \\"quotes\\" 12"', ['with \\"quotes\\" 12', 'with "quotes" 12']),
        ("URL=postgres://me:pa55w0rd%21x@db/x", ["postgres://me:pa55w0rd%21x@db/x", "pa55w0rd%21x", "pa55w0rd!x"]),
        ("machine h login me password s3cretword1", ["s3cretword1"]),
        ("//registry.example.org/:_authToken=npm_0123456789", ["npm_0123456789"]),
        ("token: abcDEF123456", ["abcDEF123456"]),
        ('{"auths": {"h": {"auth": "dXNlcjpwYXNzd29yZA"}}}', ["dXNlcjpwYXNzd29yZA"]),
        (
            "-----BEGIN PRIVATE KEY-----\nMIIEvQIBADANBgkqhkiG9w0B\n-----END PRIVATE KEY-----",
            ["MIIEvQIBADANBgkqhkiG9w0B"],
        ),
        ("a-plain-Line-4711-x", ["a-plain-Line-4711-x"]),
    ],
)
def test_values_are_found_in_every_kind_of_secret_file(text: str, wanted: list[str]) -> None:
    """Dotenv, netrc, npm, YAML, JSON, PEM and files of one line."""
    assert set(wanted) <= {value for _, value in values_in(text)}


@pytest.mark.parametrize(
    "line",
    [
        "DEBUG=true",
        "NODE_ENV=development",
        "RAILS_ENV=production",
        "HOST=localhost",
        "DB_HOST=localhost:5432",
        "ADDRESS=127.0.0.1:8080",
        "URL=http://localhost:3000/api",
        "API=https://api.example.com/v1",
        "PORT=8080",
        "TZ=Europe/Berlin",
        "LANG=en_US.UTF-8",
        "DB_NAME=my_app_development",
        "NAME=my-app-service",
        "LOG=/var/log/app.log",
        "KEY_FILE=/etc/ssl/private/key.pem",
        "PASSWORD=password",
        "SECRET=changeme",
        "TOKEN=${OTHER_TOKEN}",
        "API_KEY=<your key>",
        "PASSWORD=********",
        "MAIL=somebody@example.org",
        "# SECRET=abcDEF123456",
        "-----BEGIN CERTIFICATE-----",
        "PIN=1234",
    ],
)
def test_what_stands_everywhere_is_never_looked_for(line: str) -> None:
    """Short and common values would mark innocent text."""
    assert list(values_in(line)) == []


def test_the_persons_own_secrets_are_known_by_the_names_of_their_variables() -> None:
    """Keys, tokens and passwords, and the password in a proxy's URL; nothing else of the environment."""
    environ = {
        "ANTHROPIC_API_KEY": "sk-ant-0123456789",
        "GITHUB_TOKEN": "ghp_abcdefgh",
        "AWS_SECRET_ACCESS_KEY": "wJalrXUtnFEMI/K7MDENG",
        "MYSQL_PASSWORD": "abcdefgh1",
        "HTTPS_PROXY": "http://me:secretpw1@proxy:3128",
        "PWD": "/home/me/project",
        "SSH_AUTH_SOCK": "/run/user/1000/ssh-agent",
        "HOME": "/home/me",
        "EDITOR": "emacs-nox-29.1",
    }
    assert {secret.value for secret in environment_secrets(environ)} == {
        *("sk-ant-0123456789", "ghp_abcdefgh", "wJalrXUtnFEMI/K7MDENG", "abcdefgh1", "secretpw1"),
    }


def test_any_part_of_a_long_value_is_found() -> None:
    """A stretch of twice the length that is looked for holds one of the parts."""
    value = "".join(random.Random(4).choices(string.ascii_letters, k=1000))
    redactor = Redactor([Secret("x", value)])
    for start in (0, 1, 95, 300, 1000 - 2 * CHUNK_CHARS):
        assert "[masked: x]" in redactor.text(value[start : start + 2 * CHUNK_CHARS])
    assert value[:CHUNK_CHARS] not in redactor.text(value)


def test_a_large_output_takes_no_seconds_of_cpu() -> None:
    """10 MB of the worst kind, base64 in lines, against 200 values: as much as a large record can hold."""
    chance = random.Random(5)
    redactor = Redactor(Secret(f"x{n}", base64.b64encode(chance.randbytes(24)).decode()) for n in range(200))
    text = base64.encodebytes(chance.randbytes(7_500_000)).decode()
    began = time.process_time()
    assert redactor.text(text) is text
    assert time.process_time() - began < 5


@pytest.mark.parametrize(
    "line",
    [
        pytest.param(f"A=x{' ' * 20_000}y", id="white space within a value"),
        pytest.param(f"A={':' * 30_000}z", id="colons"),
    ],
)
def test_a_line_of_a_secret_file_takes_no_more_than_its_length(line: str) -> None:
    """A repository's own `.env` cannot hold the engine up, however its lines are made."""
    began_s = time.process_time()
    assert list(values_in(line)) == [("A", line.removeprefix("A="))]
    assert time.process_time() - began_s < 1.0
