"""A recorded run is replayed without an engine, and what is not as it was recorded is found."""

from __future__ import annotations

import random
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from engine_session import use
from recording_rig import forged, record, replay

from sandbox_agent.sandboxes.fake import FakeSandbox

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


async def test_a_hundred_steps_make_a_small_bundle(tmp_path: Path) -> None:
    """Of 2 MiB of text that the steps gave, too much to be compressed well; they replay."""
    texts = {f"/workspace/f{number}": random.Random(number).randbytes(10_000).hex().encode() for number in range(100)}
    lined = {name: b"\n".join(data[at : at + 80] for at in range(0, len(data), 80)) for name, data in texts.items()}
    turns = [{"tools": [use("Read", file_path=name)]} for name in lined]
    file = await record([*turns, {"text": "Done."}], tmp_path, sandbox=FakeSandbox(lined))

    assert sum(map(len, lined.values())) > 2_000_000
    assert file.stat().st_size < 5 * 1024 * 1024
    replaying, _ = await replay(file)
    assert (replaying.fault, replaying.agreed) == (None, True)


SCHEMA = {"type": "object", "properties": {"sum": {"type": "integer"}}, "required": ["sum"]}


@pytest.mark.parametrize(
    "turns",
    [
        [
            {"text": "It is three."},
            {"tools": [use("StructuredOutput", sum="three")]},
            {"tools": [use("StructuredOutput", sum=3)]},
            {"text": "Done."},
        ],
        [{"text": f"No {number}."} for number in range(5)],
    ],
    ids=["given at last", "never given"],
)
async def test_an_answer_of_a_form_is_asked_for_and_taken_as_it_was(turns: Any, tmp_path: Path) -> None:
    """The reminders, an answer that does not fit, and the one that does; or none, and the run has failed."""
    file = await record(turns, tmp_path, schema=SCHEMA)
    replaying, events = await replay(file)
    words = str([getattr(event, "content", "") for event in events])

    assert (replaying.fault, replaying.agreed) == (None, True)
    assert events[-1].status == ("done" if len(turns) == 4 else "failed")  # type: ignore[attr-defined]
    assert ("This does not fit: sum" in words) == (len(turns) == 4)

    def other_form(lock: dict[str, Any], _: Any) -> None:
        lock["answer_schema"] = {**SCHEMA, "required": ["sum", "more"]}

    differs, _ = await replay(forged(file, other_form))
    assert differs.fault is not None
    assert differs.fault.what == "the tools"


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


def other_tools(lock: dict[str, Any], _: list[dict[str, Any]]) -> None:
    lock["tools"][0]["description"] += "!"


@pytest.mark.parametrize(
    ("change", "what"),
    [
        (set_data("result", 0, content="     1\tone!"), "the request to the model"),
        (set_data("result", 3, content="denied"), "the result of Bash"),
        (set_data("decision", 0, verdict="deny"), "the decision on Read"),
        (leads_out, "the decision on Write"),
        (set_data("request", 1, sha256="0" * 64), "the request as it is in the bundle"),
        (set_data("request", 0, max_tokens=7), "the request to the model"),
        (set_data("request", 1, kept=0), "the request to the model"),
        (other_tools, "the tools"),
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
