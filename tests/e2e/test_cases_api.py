"""The cases of the API, of records, of limits, and of runs in a pipeline; against the double, through the real SDK."""

from __future__ import annotations

import json
import os
import subprocess
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import anyio.to_thread
import pytest
from case_rig import Played, gather
from program import DONE, Program, bash, containers_of, use

from sandbox_agent.config import RunConfig, sessions_dir
from sandbox_agent.engine.loop import run
from sandbox_agent.engine.open import open_session
from sandbox_agent.engine.session import Session
from sandbox_agent.events import AssistantMessage, Notice, SessionStarted, ToolFinished, UserMessage
from sandbox_agent.tape import TapeWriter, read_tape
from sandbox_agent.testing.api_double import ApiDouble
from sandbox_agent.types import JsonObject, Mode, Usage

pytestmark = pytest.mark.docker

MODEL = "anthropic:claude-test"


@pytest.fixture
def home(program: Program, monkeypatch: pytest.MonkeyPatch) -> Program:
    """The same, also for sessions opened in this process."""
    for name, value in program.environment().items():
        if name.startswith("XDG_"):
            monkeypatch.setenv(name, value)
    return program


@asynccontextmanager
async def opened(home: Program, api: ApiDouble, *, resume: str | None = None) -> AsyncIterator[Session]:
    """A session on the project whose model is the double behind the SDK."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("ANTHROPIC_API_KEY", "k")
        patch.setenv("ANTHROPIC_BASE_URL", api.base_url)
        config = RunConfig(workspace=home.folder, model=MODEL, mode=Mode.BYPASS, workspace_mode="copy", resume=resume)
        async with open_session(config) as session:
            yield session


async def play(
    home: Program, turns: Sequence[Any], task: str, *, resume: str | None = None
) -> tuple[Played, ApiDouble]:
    """One run; none of its requests was refused."""
    async with ApiDouble(turns) as api, opened(home, api, resume=resume) as session:
        with anyio.fail_after(60):
            events = [event async for event in run(session, task)]
        record = sessions_dir() / session.id / "events.jsonl"
    assert [received.refusal for received in api.requests if received.refusal] == []
    bodies = [received.body for received in api.requests]
    return Played(events, bodies, gather(events), record), api


def warnings(played: Played) -> list[str]:
    return [event.text for event in played.events if isinstance(event, Notice) and event.level == "warning"]


def stored(home: Program, calls: Sequence[str], done: Sequence[str], *, results: str = "out") -> str:
    """A session on disk whose last answer has these calls, of which only some have a result."""
    session_id = "20260101000000abcdef01"
    folder = sessions_dir() / session_id
    folder.mkdir(parents=True, mode=0o700)
    tape = TapeWriter(folder / "events.jsonl")
    started: dict[str, Any] = {"workspace_mode": "copy", "image": "base", "policy": "default", "mode": "default"}
    tape.append(
        SessionStarted(
            session_id=session_id, model=MODEL, workspace=str(home.folder), tools=("Bash",), version="0", **started
        )
    )
    tape.append(UserMessage(content=({"type": "text", "text": "do it"},)))
    blocks = [{"type": "tool_use", "id": call, "name": "Bash", "input": {"command": f"echo {call}"}} for call in calls]
    tape.append(AssistantMessage(content=tuple(blocks), stop_reason="tool_use", model="claude-test", usage=Usage(1, 1)))
    for call in done:
        tape.append(ToolFinished(call_id=call, tool="Bash", content=results, is_error=False, duration_s=0.1))
    tape.close()
    return session_id


@pytest.mark.parametrize(
    ("calls", "done"),
    [(("a", "b"), ("a",)), (("a", "b"), ("b",)), (("a", "b", "c"), ("c", "a")), (("a",), ())],
)
async def test_dev_49_a_cut_turn_is_completed_once(
    home: Program, calls: tuple[str, ...], done: tuple[str, ...]
) -> None:
    """Missing results become "interrupted" errors, in order; one warning; the next resume finds all whole."""
    session_id = stored(home, calls, done)
    first, _ = await play(home, [DONE], "go on", resume=session_id)
    again, _ = await play(home, [DONE], "and again", resume=session_id)

    answered = first.requests[0]["messages"][2]["content"]
    results = [block for block in answered if block["type"] == "tool_result"]
    assert [block["tool_use_id"] for block in results] == list(calls)
    assert [block.get("is_error", False) for block in results] == [call not in done for call in calls]
    assert all("Interrupted" in text(block) for block in results if block["tool_use_id"] not in done)
    assert all(text(block) == "out" for block in results if block["tool_use_id"] in done)
    assert [block["text"] for block in answered if block["type"] == "text"] == ["go on"]
    [warning] = warnings(first)
    assert warning == f"the record of the session was not whole: {len(calls)} result(s) of the last turn completed"
    assert warnings(again) == []
    assert without_marks(again.requests[0]["messages"])[:3] == without_marks(first.requests[0]["messages"])
    assert read_tape(first.record).chain_ok


def text(block: JsonObject) -> str:
    content = block["content"]
    return content if isinstance(content, str) else "".join(part["text"] for part in content)


def without_marks(value: Any) -> Any:
    """The same without cache marks, which move on with every request."""
    if isinstance(value, dict):
        return {key: without_marks(item) for key, item in value.items() if key != "cache_control"}
    return [without_marks(item) for item in value] if isinstance(value, list) else value


EMPTY = {"type": "text", "text": ""}
BLANK = {"type": "text", "text": " \n\t"}


@pytest.mark.parametrize(
    "odd",
    [
        {
            "tools": [
                bash("true"),
                bash("printf '  \\n\\n '"),
                use("Glob", pattern="nosuch*"),
                use("Read", file_path="e"),
            ]
        },
        {
            "content": [
                EMPTY,
                {"type": "tool_use", "id": "toolu_x", "name": "Bash", "input": {"command": "true"}},
                BLANK,
            ]
        },
        {"content": [BLANK], "stop_reason": "end_turn"},
        {"content": [{"type": "thinking", "thinking": "hm", "signature": "s"}], "stop_reason": "end_turn"},
    ],
)
async def test_dev_50_no_empty_text_is_ever_sent(home: Program, odd: dict[str, Any]) -> None:
    """Calls alone, empty results, blank answers; stopped, resumed and gone on with: nothing is refused."""
    (home.folder / "e").write_text("")
    first, _ = await play(home, [odd, {"text": "x", "tools": [bash("true")]}, DONE], "do it")
    renamed = json.loads(json.dumps(odd).replace("toolu_x", "toolu_y"))
    again, _ = await play(home, [renamed, DONE], "go on", resume=first.record.parent.name)
    for body in (*first.requests, *again.requests):
        for message in body["messages"]:
            assert message["content"] not in ("", [])
            parts = message["content"] if isinstance(message["content"], list) else []
            inner = [part for block in parts if isinstance(block.get("content"), list) for part in block["content"]]
            assert [part for part in (*parts, *inner) if part["type"] == "text" and not part["text"].strip()] == []
    assert first.end.status == again.end.status == "done"


HALF = '{"file_path": "/workspace/big.txt", "content": "half of it, and th'
CUT: dict[str, dict[str, Any]] = {
    "half a Write": {"tools": [{"name": "Write", "input": HALF}]},
    "a whole one": {"tools": [use("Write", file_path="big.txt", content="cut")]},
    "a whole one before": {
        "tools": [use("Write", file_path="big.txt", content="cut"), {"name": "Write", "input": HALF}]
    },
    "a command": {"tools": [{"name": "Bash", "input": '{"command": "echo cut > big.txt"'}, bash("echo cut > big.txt")]},
}


@pytest.mark.parametrize("cut", list(CUT))
async def test_dev_51_a_call_of_a_cut_answer_never_runs(home: Program, cut: str) -> None:
    """The model is told of its limit and to split; what it sends then works."""
    small = {"text": "Smaller.", "tools": [bash("ls big.txt"), use("Write", file_path="big.txt", content="small\n")]}
    played, _ = await play(
        home, [{**CUT[cut], "stop_reason": "max_tokens"}, small, bash_turn("cat big.txt"), DONE], "x"
    )
    refused, (listed, written, shown) = played.results[:-3], played.results[-3:]
    assert [result.is_error for result in refused] == [True] * len(CUT[cut]["tools"])
    assert all("hit its output limit: split the work" in result.text for result in refused)
    assert (listed.is_error, "No such file" in listed.text) == (True, True)
    assert (written.is_error, shown.text) == (False, "small\nExit code: 0")
    assert played.end.status == "done"


@pytest.mark.parametrize("cut", ["half a Write", "a command"])
async def test_dev_51_cut_answers_do_not_go_on_for_ever(home: Program, cut: str) -> None:
    """After three in a row the run has failed, and says of what."""
    played, api = await play(home, [{**CUT[cut], "stop_reason": "max_tokens"}] * 10, "x")
    assert (played.end.status, len(api.requests)) == ("failed", 3)
    assert played.end.error == "3 answers in a row ended with max_tokens and no usable result"


def bash_turn(command: str) -> dict[str, Any]:
    return {"text": "x", "tools": [bash(command)]}


def in_the_middle(data: bytes) -> bytes:
    return data[: data.rindex(b"\n", 0, -1) + 60]


def one_byte(data: bytes) -> bytes:
    return data[: data.rindex(b"\n", 0, -1) + 2]


def nothing_but_nuls(data: bytes) -> bytes:
    return data[: data.rindex(b"\n", 0, -1) + 1] + bytes(500)


def inside_a_character(data: bytes) -> bytes:
    return data + '{"seq": 99, "text": "é'.encode()[:-1]


def without_its_line_end(data: bytes) -> bytes:
    return data[:-1]


@pytest.mark.parametrize(
    ("damage", "damaged"),
    [(in_the_middle, 1), (one_byte, 1), (nothing_but_nuls, 1), (inside_a_character, 1), (without_its_line_end, 0)],
)
async def test_dev_52_a_cut_record_costs_its_last_line_alone(
    home: Program, damage: Callable[[bytes], bytes], damaged: int
) -> None:
    """Resumed twice: one warning about one record, new lines on their own, and every other line parses."""
    session_id = stored(home, ("a",), ("a",))
    record = sessions_dir() / session_id / "events.jsonl"
    record.write_bytes(damage(record.read_bytes()))
    whole = len(read_tape(record).entries)
    first, _ = await play(home, [bash_turn("echo new"), DONE], "go on", resume=session_id)
    again, _ = await play(home, [DONE], "and again", resume=session_id)

    told = [warning for warning in warnings(first) if "1 damaged line(s) left out" in warning]
    assert len(told) == damaged
    assert json.dumps(first.requests[0]["messages"]).count("do it") == 1
    bad = 0
    for line in record.read_bytes().split(b"\n")[:-1]:
        try:
            json.loads(line)
        except ValueError:
            bad += 1
    assert bad == damaged
    tape = read_tape(record)
    assert (tape.damaged_lines, len(tape.entries) > whole + 5) == (damaged, True)
    assert "echo new" in json.dumps(again.requests[0]["messages"])


@pytest.mark.parametrize("stdin", ["open pipe", "closed", "file"])
async def test_dev_53_standard_input_is_not_waited_for(program: Program, stdin: str) -> None:
    """The first request comes although the pipe never ends, with TERM=dumb and no terminal."""
    read_end, write_end = os.pipe()
    file = (program.folder / "a.txt").open("rb")
    given: dict[str, Any] = {"open pipe": read_end, "closed": subprocess.DEVNULL, "file": file}
    arguments = ("run", "-p", "--workspace-mode", "copy", "--model", MODEL, "say it")
    command = ["sh", "-c", 'exec "$@" <&-', "sh"] if stdin == "closed" else []
    command += [*program.command(), *arguments]
    began_s = time.monotonic()
    async with ApiDouble([DONE]) as api:
        env = program.environment(TERM="dumb", ANTHROPIC_API_KEY="k", ANTHROPIC_BASE_URL=api.base_url)
        with file:
            ended = await anyio.run_process(command, stdin=given[stdin], env=env, cwd=program.folder, check=False)
        [request] = api.requests
    os.close(read_end)
    os.close(write_end)
    assert (ended.returncode, ended.stdout) == (0, b"All done.\n"), ended.stderr
    assert request.at_s - began_s < 20  # 3 to 4 s are usual here, most of it the import of the SDK
    assert "one" not in json.dumps(request.body["messages"])


LOUD = {"text": "\x1b[31mloud\x1b[0m", "tools": [bash('echo {\\"a\\": 1}; echo err >&2'), bash("exit 3")]}
ENDS: dict[str, tuple[list[dict[str, Any]], list[str], dict[str, str], int]] = {
    "done": ([LOUD, DONE], [], {}, 0),
    "denied": (
        [{"text": "x", "tools": [use("Write", file_path="w", content="x")]}, DONE],
        ["--mode", "dontAsk"],
        {},
        3,
    ),
    "limit": ([LOUD] * 9, ["--max-turns", "2"], {}, 4),
    "no engine": ([DONE], [], {"DOCKER_HOST": "unix:///nonexistent.sock"}, 5),
    "no image": ([LOUD, DONE], ["--image", "sandbox-agent-none:latest"], {}, 5),
    "model error": ([LOUD, {"error": {"message": "bad", "kind": "invalid_request_error"}}], [], {}, 6),
    "bad rule": ([DONE], ["--allow", "Bash("], {}, 2),
}


@pytest.mark.parametrize("output", ["json", "stream-json"])
def test_dev_54_standard_output_is_json_and_nothing_else(program: Program, tmp_path: Path, output: str) -> None:
    """With verbose logs and a warning, however the run ends; the logs are on stderr."""
    (program.folder / ".env").write_text("KEY=1")
    for name, (turns, options, env, code) in ENDS.items():
        if output == "stream-json" and name in ("denied", "limit", "no image"):
            continue  # as in the other format; each takes a container
        out, err = tmp_path / f"{name}.out", tmp_path / f"{name}.err"
        arguments = ["run", "--output", output, "-v", "--workspace-mode", "copy", "--allow", "Bash", *options]
        command = [*program.command(), *arguments, "--model", program.script(turns), "x"]
        with out.open("wb") as stdout, err.open("wb") as stderr:
            streams: dict[str, Any] = {"stdin": subprocess.DEVNULL, "stdout": stdout, "stderr": stderr}
            done = subprocess.run(
                command, env=program.environment(**env), cwd=program.folder, timeout=60, check=False, **streams
            )
        lines = out.read_text().splitlines()
        documents = [json.loads(line) for line in (lines if output == "stream-json" else ["".join(lines)])]
        last = documents[-1]
        assert (done.returncode, last["exit_code"], last["type"]) == (code, code, "result"), name
        assert output == "stream-json" or len(documents) == 1
        assert err.read_text() != ""
        if name == "done":
            assert ".env" in err.read_text()
            assert "* Bash" in err.read_text()


KEY = "CANARY-KEY-D55-0123456789"


@pytest.mark.parametrize("variable", ["ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN"])
async def test_dev_55_the_key_appears_nowhere(program: Program, variable: str) -> None:
    """Not in the container, nor in outputs, records or errors: of commands, a timeout, an engine fault, an API echo."""
    looks = "env; cat /proc/*/environ /proc/*/cmdline 2>/dev/null | tr '\\0' '\\n'; grep -rs CANARY /etc /run /tmp; set"
    turns = [
        {"text": "x", "tools": [bash(looks), bash("sleep 9", timeout=300)]},
        {"text": "x", "status": 400, "error_message": f"bad header x-api-key: {KEY}, authorization: Bearer {KEY}"},
    ]
    async with ApiDouble(turns) as api:
        env: dict[str, str | None] = {variable: KEY, "ANTHROPIC_BASE_URL": api.base_url, "OTHER_TOKEN": KEY}
        arguments = ("run", "--output", "stream-json", "-v", "--mode", "bypassPermissions", "--model", MODEL, "x")
        ended = await anyio.to_thread.run_sync(lambda: program.call(*arguments, **env))
        engine = await anyio.to_thread.run_sync(
            lambda: program.call(*arguments, **{**env, "DOCKER_HOST": "unix:///nonexistent.sock"})
        )
    assert (ended.code, engine.code) == (6, 5)
    assert "bad header" in ended.stderr
    assert "LANG=C.UTF-8" in ended.stdout
    assert "the limit of 0.3 s" in ended.stdout
    assert KEY not in "".join(part for end in (ended, engine) for part in (end.stdout, end.stderr))
    assert [path for path in program.home.rglob("*") if path.is_file() and KEY.encode() in path.read_bytes()] == []


LOOK = {"text": "Again.", "tools": [bash("date")]}


@pytest.mark.parametrize(
    ("turn", "options", "said", "most_s"),
    [
        (LOOK, ("--max-turns", "5"), "the limit turns = 5 was reached", 20),
        (LOOK, ("--timeout", "3"), "the limit wall_s = 3 was reached", 30),
        ({"text": "x", "tools": [bash("sleep 60"), bash("date")]}, ("--timeout", "3"), "wall_s = 3 was reached", 30),
        ({"text": "x" * 500, "fault": "stall", "after": 5}, ("--timeout", "3"), "wall_s = 3 was reached", 30),
    ],
)
async def test_dev_59_a_run_stops_at_its_limit(
    program: Program, turn: dict[str, Any], options: tuple[str, ...], said: str, most_s: float
) -> None:
    """Not later than the call in progress; named with its value; the history goes on; no container is left."""
    async with ApiDouble(lambda body: turn) as api:
        env = {"ANTHROPIC_API_KEY": "k", "ANTHROPIC_BASE_URL": api.base_url}
        arguments = ("run", "--output", "json", "--allow", "Bash", "--workspace-mode", "copy", "--model", MODEL)
        began_s = time.monotonic()
        ended = await anyio.to_thread.run_sync(lambda: program.call(*arguments, *options, "x", **env))
        took_s = time.monotonic() - began_s
    assert (ended.code, ended.document["status"]) == (4, "limit"), ended.stderr
    assert said in ended.document["error"]
    assert said in ended.stderr
    assert took_s < most_s
    assert options[0] != "--max-turns" or len(api.requests) == 5
    assert containers_of(program.session().name) == []
    if turn.get("fault"):
        return  # nothing was said that could be gone on with
    async with ApiDouble([DONE]) as api:
        env["ANTHROPIC_BASE_URL"] = api.base_url
        again = await anyio.to_thread.run_sync(lambda: program.call(*arguments, "-c", "go on", **env))
    assert (again.code, [received.refusal for received in api.requests if received.refusal]) == (0, [])
