"""Canaries: no form of a secret that the session knows is in any part of a bundle, wherever it stood."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from engine_session import use
from recording_rig import parts_of, record, replay

from sandbox_agent.engine.secrecy import environment_secrets
from sandbox_agent.engine.session import Session
from sandbox_agent.events.encodings import forms
from sandbox_agent.sandboxes.fake import FakeSandbox

SECRET = 'kq7-Wm2x"Ünd%/9fR4+secret'
FORMS = [form.text for form in forms(SECRET)]


def knowing(session: Session) -> None:
    """The person has it as a key."""
    session.secrecy.redactor.add(environment_secrets({"DEPLOY_TOKEN": SECRET}))


def everywhere(form: str) -> list[dict[str, Any]]:
    """The model says it, and writes, reads, runs and hands on what has it in its name, its content and its way."""
    return [
        {"text": f"I see {form}.", "tools": [use("Write", file_path=f"/workspace/{form}/x", content=f"a {form}\n")]},
        {"tools": [use("Read", file_path="/workspace/secret.txt"), use("Bash", command=f"echo '{form}'")]},
        {"tools": [use("Task", description=form, prompt=f"[one] {form}"), use("Nope", a={form: [form]})]},
        {"text": f"It was {form}."},
    ]


@pytest.mark.parametrize("form", FORMS)
async def test_a_secret_is_in_no_part_of_a_bundle(form: str, tmp_path: Path) -> None:
    """In the form that is looked at and in every other; the bundle still holds what it did, and replays."""
    box = FakeSandbox({"/workspace/secret.txt": f"before {form} after\n".encode()})
    agents = {"[one]": [{"text": f"one says {form}"}]}
    file = await record(everywhere(form), tmp_path, sandbox=box, prepare=knowing, agents=agents)
    parts = parts_of(file)
    words = b"\n".join(data for name, data in parts.items())
    values = [word for name in parts if name.endswith(("json", "jsonl")) for word in strings(parts[name])]

    assert words.count(b"[masked: environment DEPLOY_TOKEN]") > 10
    for other in FORMS:
        assert other.encode() not in words
        assert not [word for word in values if other in word]
    replaying, _ = await replay(file)
    assert replaying.tape.done > 5


def strings(data: bytes) -> list[str]:
    """All strings of a part, keys too."""
    found: list[str] = []

    def take(value: Any) -> None:
        if isinstance(value, str):
            found.append(value)
        elif isinstance(value, list):
            list(map(take, value))
        elif isinstance(value, dict):
            list(map(take, [*value, *value.values()]))

    list(map(take, map(partial(json.loads), data.splitlines())))
    return found
