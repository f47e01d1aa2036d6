"""Hooks as a person has them: the documented examples, every form of failure, this machine, and the end by a signal."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest
from program import DONE, Program, bash, use

from sandbox_agent.events import Event, HookRan, PermissionDecided, ToolFinished, ToolStarted, UserMessage
from sandbox_agent.tape import read_tape

pytestmark = pytest.mark.docker

DOCS = (Path(__file__).parents[2] / "docs" / "hooks.md").read_text()


def examples(language: str) -> list[str]:
    """The code blocks of the page on hooks."""
    return re.findall(rf"^```{language}\n(.*?)^```$", DOCS, re.DOTALL | re.MULTILINE)


def policy(program: Program, text: str | dict[str, Any]) -> str:
    """A policy file beside the project."""
    path = program.folder.parent / "hooks.yaml"
    path.write_text(text if isinstance(text, str) else json.dumps({"version": 1, **text}))
    return str(path)


def own_policy(program: Program, text: str | dict[str, Any]) -> Path:
    """The user's own policy; its folder."""
    folder = program.home / "config" / "sandbox-agent"
    folder.mkdir(parents=True)
    (folder / "policy.yaml").write_text(text if isinstance(text, str) else json.dumps({"version": 1, **text}))
    return folder


def recorded(program: Program) -> list[Event]:
    tape = read_tape(program.session() / "events.jsonl")
    assert tape.chain_ok
    return [entry.event for entry in tape.entries]


def of(events: list[Event], kind: type[Any]) -> list[Any]:
    return [event for event in events if isinstance(event, kind)]


def test_the_documented_hooks_do_what_the_page_says(program: Program) -> None:
    """Context at the start, a push that is blocked, a command that is changed, feedback after an edit, a stop that is
    refused once."""
    for arguments in (["init", "-q"], ["commit", "-qm", "Begun", "--allow-empty"]):
        identity = ["-c", "user.name=A", "-c", "user.email=a@example.org"]
        subprocess.run(["git", *identity, *arguments], cwd=program.folder, check=True)
    (program.folder / ".freeze").touch()
    (program.folder / "test_it.py").write_text("def test_it():\n    pass\n")
    turns = [
        {"text": "Push.", "tools": [bash("git push origin main")]},
        {"text": "Test.", "tools": [bash("python3 -m pytest -p no:cacheprovider test_it.py")]},
        {"text": "Edit.", "tools": [use("Write", file_path="/workspace/b.py", content="if 1:\n\tpass\n")]},
        {"text": "Finished."},
        {"text": "Log.", "tools": [use("Write", file_path="/workspace/CHANGES.md", content="* b.py\n")]},
        DONE,
    ]
    script = program.script(turns)
    done = program.call(
        *("run", "-p", "--output", "json", "-v", "--policy", policy(program, examples("yaml")[0])),
        *("--model", script, "x"),
    )

    assert (done.code, done.document["result"]) == (3, "All done."), done.stderr
    events = recorded(program)
    said = [event.content[0]["text"] for event in of(events, UserMessage)]
    assert said[0] == "x"
    assert " Begun\n</hook-output>" in said[1]
    assert said[2].startswith(
        "The user's hook changelog does not let you stop yet: \nWhat follows was written by a program"
    )
    assert "\nWrite CHANGES.md: one line on what was done.\n</hook-output>" in said[2]
    pushed, tested, edited, logged = [str(event.content) for event in of(events, ToolFinished)]
    assert "the hook no-push-on-friday blocked it.\nWhat follows was written by a program in the container" in pushed
    assert "Nothing is published today. Leave the commit in the workspace.\n</hook-output>" in pushed
    assert "1 passed" in tested
    assert "test session starts" not in tested
    assert "/workspace/b.py\nThese Python files hold tabs; use spaces." in edited
    assert "hold tabs" in logged
    assert of(events, ToolStarted)[0].input["command"].endswith("test_it.py -q")
    assert "hook quiet-tests (pre_tool_use, container, exit code 0" in done.stderr
    assert '! the hook quiet-tests changed the input of Bash to {"command"' in done.stderr


def test_every_way_to_fail_denies(program: Program) -> None:
    """In a mode that allows everything, and with each hook for one command only."""
    ways = {
        "code": "exit 1",
        "signal": "kill -9 $$",
        "words": "echo fine",
        "silence": "sleep 600",
        "flood": "yes | head -c 1200000",
        "input": 'echo \'{"updated_input": {"comand": "x"}}\'',
        "missing": "exec /no/such/program",
    }
    hooks = [
        {"id": name, "command": command, "matcher": f"Bash(echo {name})", "timeout_s": 1 if name == "silence" else 20}
        for name, command in ways.items()
    ]
    file = policy(program, {"mode": "bypassPermissions", "hooks": {"pre_tool_use": hooks}})
    script = program.script([{"text": "All.", "tools": [bash(f"echo {name}") for name in (*ways, "free")]}, DONE])
    done = program.call("run", "-p", "--policy", file, "--model", script, "x")

    assert done.code == 3, done.stderr
    events = recorded(program)
    assert [ran.hook for ran in of(events, HookRan)] == [*ways]
    assert [(decided.verdict, decided.hook) for decided in of(events, PermissionDecided)] == [
        *(("deny", name) for name in ways),
        ("allow", None),
    ]
    assert [started.input["command"] for started in of(events, ToolStarted)] == ["echo free"]


def test_a_question_can_be_refused_by_a_hook_in_the_container(program: Program) -> None:
    """In place of the person; and the hook can neither write the workspace nor see the environment of the tools."""
    look = 'touch /workspace/x 2>/dev/null && exit 0; [ -z "$GIT_PAGER" ] || exit 0; id -un >&2; exit 2'
    hooks = {"permission_request": [{"id": "asked", "command": look}]}
    script = program.script([{"text": "x", "tools": [bash("touch y")]}, DONE])
    done = program.call(
        "run", "-p", "--policy", policy(program, {"hooks": hooks}), "--model", script, "x", ANTHROPIC_API_KEY="CANARY"
    )

    assert done.code == 3
    [decided] = of(recorded(program), PermissionDecided)
    assert (decided.verdict, decided.answered_by) == ("deny", "hook")
    assert decided.reason == "the hook asked blocked it: hooks."


def test_a_hook_on_this_machine_is_the_users_own(program: Program) -> None:
    """Named at the start, run in the folder of its file without the key, and told how the run ended: by a limit."""
    text = examples("yaml")[1].replace("cat >> log/sessions.jsonl", "cat >> log/sessions.jsonl; env > log/env")
    folder = own_policy(program, "version: 1\nmode: bypassPermissions\n" + text)
    turns = [{"text": "x", "tools": [bash("echo x")]}, DONE]
    done = program.call(
        *("run", "--max-turns", "1", "--apply", "never", "--model", program.script(turns), "x"),
        ANTHROPIC_API_KEY="CANARY",
    )

    assert done.code == 4, done.stderr
    assert "hooks that run on this machine, outside the container: log (" in done.stderr
    [told] = [json.loads(line) for line in (folder / "log" / "sessions.jsonl").read_text().splitlines()]
    assert (told["hook_event_name"], told["reason"], told["session_id"]) == (
        "SessionEnd",
        "limit",
        program.session().name,
    )
    env = (folder / "log" / "env").read_text()
    assert "CANARY" not in env
    assert {line.split("=")[0] for line in env.splitlines()} <= {*("PATH", "HOME", "LANG", "PWD", "SANDBOX_AGENT_HOOK")}


def test_no_other_file_may_name_a_hook_for_this_machine(program: Program) -> None:
    """One that is named for a run neither: exit code 2, with file and line, and nothing was run."""
    file = policy(program, "version: 1\nhooks:\n  session_start:\n    - {command: touch ran, place: host}\n")
    done = program.call("run", "-p", "--policy", file, "--model", program.script([DONE]), "x")

    assert done.code == 2
    assert f"{file}:4: place: host is only for your own policy" in done.stderr
    assert not (program.folder / "ran").exists()


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
def test_a_signal_still_tells_the_end(program: Program, number: signal.Signals, code: int) -> None:
    """To a hook in the container and to one here; one that hangs does not hold the program up."""
    hooks = [
        {"id": "hangs", "command": "sleep 600"},
        {"id": "here", "place": "host", "command": "cat > told.json"},
    ]
    folder = own_policy(program, {"hooks": {"session_end": hooks}})
    process = program.sleeping()
    started = time.monotonic()
    process.send_signal(number)
    process.communicate(timeout=60)

    assert process.returncode == code
    assert time.monotonic() - started < 8
    assert json.loads((folder / "told.json").read_text())["reason"] == "interrupted"
    assert [ran.hook for ran in of(recorded(program), HookRan)][-1] == "here"


def test_the_functions_of_the_page_are_real() -> None:
    """They import, and the matcher fits."""
    names: dict[str, Any] = {}
    exec(compile(examples("python")[0], "docs/hooks.md", "exec"), names)

    [hook] = names["hooks"]
    assert (hook.id, hook.event) == ("small-files", "pre_tool_use")
