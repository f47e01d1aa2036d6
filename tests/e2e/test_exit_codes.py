"""The headless contract of `run`: each exit code of the design produced for real, and stdout that parses each time.

A replay that differs from its record (7) has its test where replays are; signals (130, 143) are in test_run_signals.
"""

from __future__ import annotations

import json
import subprocess
from typing import Any

import pytest
from program import DONE, EDITS, WRITE, Program, bash, use

pytestmark = pytest.mark.docker

CODES = {"done": 0, "failed": 1, "config_error": 2, "denied": 3, "limit": 4, "sandbox_error": 5, "model_error": 6}
REFUSED = {"error": {"message": "no such model", "kind": "not_found_error", "status": 404}}
SCHEMA = '{"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}'


def turns_of(status: str) -> list[dict[str, Any]]:
    """What the model says for a run to end so."""
    match status:
        case "failed":
            return [{"text": "Cut.", "stop_reason": "max_tokens"}] * 3
        case "denied":
            return [{"text": "I try.", "tools": [bash("touch x")]}, {"text": "I could not."}]
        case "model_error":
            return [REFUSED]
        case _:
            return [WRITE, DONE]


def options_of(status: str) -> tuple[str, ...]:
    """The options for a run to end so."""
    match status:
        case "config_error":
            return ("--allow", "NoSuchTool(")
        case "denied":
            return ()
        case "limit":
            return (*EDITS, "--max-turns", "1")
        case _:
            return EDITS


@pytest.mark.parametrize(("status", "output"), list(zip(CODES, ["json", "stream-json"] * 4, strict=False)))
def test_each_exit_code_comes_with_a_document_that_says_the_same(program: Program, status: str, output: str) -> None:
    """stdout is JSON alone, its last line the result, and that names the status, the code and the error."""
    env = {"DOCKER_HOST": "unix:///nowhere/docker.sock"} if status == "sandbox_error" else {}
    arguments = ("run", "--output", output, *options_of(status), "--model", program.script(turns_of(status)), "x")
    ended = program.call(*arguments, **env)
    lines = [json.loads(line) for line in ended.stdout.splitlines()]
    result = lines[-1]

    assert (ended.code, result["exit_code"], result["status"]) == (CODES[status], CODES[status], status)
    assert result["type"] == "result"
    assert output == "stream-json" or len(lines) == 1
    assert result["is_error"] is (status not in ("done", "denied"))
    assert bool(result["error"]) is bool(result["is_error"])
    assert (program.folder / "new.txt").exists() is False


def test_an_answer_of_a_form_is_given_or_the_task_has_failed(program: Program) -> None:
    """What does not fit goes back to the model, and after a few reminders the run ends with a subtype of its own."""
    given = [
        {"tools": [use("StructuredOutput", n="many")]},
        {"text": "Done?"},
        {"tools": [use("StructuredOutput", n=7)]},
    ]
    ended = program.call(
        "run", "--output", "json", "--json-schema", SCHEMA, "--model", program.script([*given, DONE]), "x"
    )
    assert (ended.code, ended.document["structured_output"]) == (0, {"n": 7})
    assert (ended.document["result"], ended.document["terminal_reason"]) == ("All done.", "completed")

    script = program.script([{"text": "no"}] * 5)
    ended = program.call("run", "--output", "json", "--json-schema", SCHEMA, "--model", script, "x")
    assert (ended.code, ended.document["subtype"]) == (1, "error_max_structured_output_retries")
    assert (ended.document["structured_output"], ended.document["is_error"]) == (None, True)

    ended = program.call("run", "--output", "json", "--json-schema", "{", "--model", script, "x")
    assert (ended.code, ended.document["status"]) == (2, "config_error")


def test_messages_come_as_json_lines_and_each_has_its_result(program: Program) -> None:
    """The end of the input ends the session after the last turn; the exit code is that of the last one."""
    said = [{"type": "user", "message": {"role": "user", "content": text}} for text in ("first", "second")]
    script = program.script([{"text": "one"}, {"text": "I try.", "tools": [bash("touch x")]}, {"text": "two"}])
    streams = ("--input", "stream-json", "--output", "stream-json")
    process = program.start("run", "-p", *streams, "--model", script, "-", stdin=subprocess.PIPE)
    assert process.stdin is not None
    assert process.stdout is not None
    lines: list[dict[str, Any]] = []
    for message in said:
        process.stdin.write(json.dumps(message).encode() + b"\n")
        process.stdin.flush()
        lines.append(json.loads(process.stdout.readline()))
        while lines[-1]["type"] != "result":
            lines.append(json.loads(process.stdout.readline()))
    rest, err = process.communicate(timeout=60)
    results = [line for line in lines if line["type"] == "result"]

    assert (process.returncode, rest) == (3, b""), err
    assert [one["result"] for one in results] == ["one", "two"]
    assert [denial["tool_name"] for denial in results[-1]["permission_denials"]] == ["Bash"]
    assert lines[0]["subtype"] == "init"

    ended = program.call("run", "-p", *streams, "--model", script, "a task", stdin=subprocess.DEVNULL)
    assert (ended.code, "write - as the TASK" in ended.stderr) == (2, True)
    assert json.loads(ended.stdout)["type"] == "result"


def test_a_line_that_is_no_message_ends_the_session_in_words(program: Program) -> None:
    """Also behind one that was answered; there is a result that says it, and the exit code of wrong usage."""
    streams = ("--input", "stream-json", "--output", "stream-json")
    process = program.start("run", "-p", *streams, "--model", program.script([DONE]), "-", stdin=subprocess.PIPE)
    assert process.stdin is not None
    assert process.stdout is not None
    said = {"type": "user", "message": {"role": "user", "content": "first"}}
    process.stdin.write(json.dumps(said).encode() + b"\n")
    process.stdin.flush()
    first = json.loads(process.stdout.readline())
    while first["type"] != "result":
        first = json.loads(process.stdout.readline())
    rest, err = process.communicate(b"second\n", timeout=60)
    last = json.loads(rest.splitlines()[-1])

    assert (first["result"], first["is_error"]) == ("All done.", False)
    assert (process.returncode, last["type"], last["is_error"]) == (2, "result", True)
    assert "a line of the input is not JSON" in last["errors"][0]
    assert last["errors"][0] in err.decode()
