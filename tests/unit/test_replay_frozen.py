"""A recorded run is replayed without an engine, and every change of its bundle is found, at its step."""

from __future__ import annotations

import copy
import json
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from engine_session import use
from recording_rig import forged, parts_of, record, replay, steps_of, write

from sandbox_agent.errors import ReplayMismatchError
from sandbox_agent.records import bundle
from sandbox_agent.records.steps import canonical

TURNS: list[dict[str, Any]] = [
    {"text": "I look.", "tools": [use("Read", file_path="/workspace/a.txt"), use("Bash", command="echo hello")]},
    {"tools": [use("Write", file_path="/workspace/b.txt", content="two\n"), use("Bash", command="rm -r /etc")]},
    {"tools": [use("Read", file_path="/workspace/none.txt"), use("Nope", a=1)]},
    {"text": "All done."},
]


@pytest.fixture
async def file(tmp_path: Path) -> Path:
    return await record(TURNS, tmp_path)


async def test_a_frozen_replay_agrees_and_opens_no_socket(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every request, decision and result is the recorded one, and nothing is asked of anybody."""

    def refused(*_: object, **__: object) -> None:
        raise AssertionError("a socket was opened")

    monkeypatch.setattr(socket.socket, "connect", refused)
    monkeypatch.setattr(socket, "create_connection", refused)
    replaying, events = await replay(file)

    assert replaying.fault is None
    assert replaying.agreed
    assert events[-1].status == "denied"  # type: ignore[attr-defined]
    assert replaying.tape.left() is None


def test_a_frozen_replay_needs_no_engine_and_no_client_of_one(tmp_path: Path) -> None:
    """In a process that may neither open a socket nor import what could talk to an engine."""
    made = f"import anyio, sys; sys.path.insert(0, {str(Path(__file__).parent)!r})\n"
    made += "from pathlib import Path; from recording_rig import record; from test_replay_frozen import TURNS\n"
    made += f"anyio.run(record, TURNS, Path({str(tmp_path)!r}))"
    subprocess.run([sys.executable, "-c", made], check=True, timeout=60)
    program = """
import socket, sys
pair = socket.socketpair
class Refused(socket.socket):
    def __init__(self, family=-1, *rest, **more):
        if family not in (-1, socket.AF_UNIX) or sys._getframe(1).f_code.co_name not in ("socketpair", "accept"):
            raise AssertionError("a socket was opened")
        super().__init__(family, *rest, **more)
socket.socket = Refused
for name in ("docker", "aiodocker", "anthropic", "mcp"):
    sys.modules[name] = None
sys.argv[1:] = ["replay", "--frozen", FILE]
from sandbox_agent.cli import main
main()
""".replace("FILE", repr(str(tmp_path / "run.bundle")))
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60)

    assert (ended.returncode, ended.stderr) == (0, "")
    assert "The replay agrees (frozen)" in ended.stdout


def leaves(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The paths of all values in a JSON value."""
    if isinstance(value, dict | list) and value:
        for key, one in value.items() if isinstance(value, dict) else enumerate(value):
            yield from leaves(one, (*path, key))
    else:
        yield path


def other(value: Any) -> Any:
    """Another value than this."""
    match value:
        case bool():
            return not value
        case int() | float():
            return value + 1
        case str():
            return value[:-1] + ("0" if value[-1:] != "0" else "1")
        case _:
            return "changed"


def put(value: Any, path: tuple[Any, ...]) -> Any:
    changed = copy.deepcopy(value)
    at = changed
    for key in path[:-1]:
        at = at[key]
    at[path[-1]] = other(at[path[-1]])
    return changed


async def test_a_change_of_any_field_of_the_bundle_fails_at_its_step(file: Path) -> None:
    """Tried for every field of the lock, of every step and of every event, and for what is added, moved or cut."""
    parts, tried = parts_of(file), 0

    def fails(changed: dict[str, bytes], *steps: int) -> None:
        nonlocal tried
        tried += 1
        with pytest.raises(ReplayMismatchError) as caught:
            bundle.read(write(file, changed))
        assert caught.value.step in steps, str(caught.value)
        assert caught.value.exit_code == 7

    lock, steps = json.loads(parts[bundle.LOCK]), steps_of(parts)
    for path in leaves(lock):
        fails({**parts, bundle.LOCK: canonical(put(lock, path))}, 0)
    lines = parts[bundle.STEPS].splitlines(keepends=True)
    for number, step in enumerate(steps):
        for path in leaves(step):
            line = canonical(put(step, path)) + b"\n"
            fails({**parts, bundle.STEPS: b"".join([*lines[:number], line, *lines[number + 1 :]])}, number)
        swapped = [*lines[:number], *reversed(lines[number : number + 2]), *lines[number + 2 :]]
        if len(lines) - number > 1:
            fails({**parts, bundle.STEPS: b"".join(swapped)}, number)
        fails({**parts, bundle.STEPS: b"".join([*lines[:number], *lines[number + 1 :]])}, number)
        fails({**parts, bundle.STEPS: b"".join(lines[:number])}, number)
    last = len(steps) - 1
    for at in range(0, len(parts[bundle.EVENTS]), 97):
        data = bytearray(parts[bundle.EVENTS])
        data[at] ^= 1
        fails({**parts, bundle.EVENTS: bytes(data)}, last)
    fails({name: data for name, data in parts.items() if name != bundle.EVENTS}, last)
    fails({**parts, "blobs/" + "0" * 64: b"more"}, 0)
    assert tried > 400


def set_data(kind: str, at: int, **changes: Any) -> Any:
    def change(_: dict[str, Any], steps: list[dict[str, Any]]) -> None:
        [step for step in steps if step["kind"] == kind][at]["data"].update(changes)

    return change


def policy_that_denies(lock: dict[str, Any], _: list[dict[str, Any]]) -> None:
    lock["policy"]["rules"]["deny"].append(
        {"text": "Read(a.txt)", "reason": None, "id": None, "location": None, "layer": None}
    )


def other_answer(_: dict[str, Any], steps: list[dict[str, Any]]) -> None:
    step = next(step for step in steps if step["kind"] == "answer")
    step["data"]["content"][1]["input"]["file_path"] = "/workspace/c.txt"


def swapped_answers(_: dict[str, Any], steps: list[dict[str, Any]]) -> None:
    first, second = [step for step in steps if step["kind"] == "answer"][:2]
    first["data"], second["data"] = second["data"], first["data"]


def leads_out(_: dict[str, Any], steps: list[dict[str, Any]]) -> None:
    path = "/workspace/b.txt"
    next(one for one in steps if one["kind"] == "paths" and path in one["data"]["found"])["data"]["found"][path] = (
        "/etc/b"
    )


def other_prompt(lock: dict[str, Any], _: list[dict[str, Any]]) -> None:
    lock["system"] = [{"type": "text", "text": "be another"}]


@pytest.mark.parametrize(
    ("change", "what"),
    [
        (set_data("result", 0, content="     1\tone!"), "the request to the model"),
        (set_data("result", 3, content="denied"), "the result of Bash"),
        (set_data("decision", 0, verdict="deny"), "the decision on Read"),
        (leads_out, "the decision on Write"),
        (set_data("request", 1, sha256="0" * 64), "the request to the model"),
        (set_data("turn", 1, calls=["other"]), "the next calls"),
        (set_data("outcome", 0, status="done"), "how the run ended"),
        (set_data("outcome", 0, text="All undone."), "the last words"),
        (policy_that_denies, "the decision on Read"),
        (other_answer, "the paths that are asked for"),
        (swapped_answers, "the next calls"),
        (other_prompt, "the request to the model"),
    ],
)
async def test_what_a_chain_made_anew_hides_the_replay_finds(file: Path, change: Any, what: str) -> None:
    """The first difference is told with both sides, and ends the run with its own status."""
    replaying, events = await replay(forged(file, change))

    assert replaying.fault is not None
    assert replaying.fault.what == what
    assert replaying.fault.recorded != replaying.fault.replayed
    assert events[-1].status == "replay_mismatch"  # type: ignore[attr-defined]
    assert not replaying.agreed
