"""Secrets of the folder and of the user stay where they are: not in the container, and in nothing that a run leaves."""

from __future__ import annotations

import base64
import json
import os
import subprocess
import time
from pathlib import Path
from urllib.parse import quote

import docker
import pytest
from program import DONE, EDITS, Program, bash, containers_of, use

pytestmark = pytest.mark.docker

PASSWORD = "tr0ub4dor/&3-zebra"
TOKEN = "tok-7Hq2-canary-9Zx"
ENV_FILE = f"# settings\nDB_PASSWORD={PASSWORD}\nNODE_ENV=development\nDEBUG=true\nHOST=localhost\n"


def _forms(value: str) -> dict[str, str]:
    raw = value.encode()
    return {
        "exact": value,
        **{f"base64 {n}": base64.b64encode(b"x" * n + raw).decode()[4:-4] for n in range(3)},
        "hex": raw.hex(),
        "url": quote(value, safe=""),
    }


def _leaks(text: str) -> list[str]:
    return [f"{name} of {value}" for value in (PASSWORD, TOKEN) for name, form in _forms(value).items() if form in text]


def _everything(folder: Path) -> str:
    files = [folder / "events.jsonl", *folder.glob("*.json")]
    return "".join(path.read_text() for path in files)


def test_no_form_of_a_secret_reaches_anything_that_a_run_leaves(program: Program) -> None:
    """What a program prints, a file shows, a command names, the task says: a mark stands for it everywhere."""
    (program.folder / ".env").write_text(ENV_FILE)
    (program.folder / "other.txt").write_text(f"before\npassword: {PASSWORD}\nafter\n")
    encode = f"printf %s 'x{TOKEN}' | base64; printf %s '{PASSWORD}' | od -An -tx1 | tr -d ' \\n'"
    turns = [
        {"text": f"I was told {TOKEN[:9]}, no, {TOKEN}.", "tools": [use("Read", file_path="/workspace/other.txt")]},
        {
            "text": "2",
            "tools": [bash(f"cat other.txt | base64; {encode}"), bash(f"false '{quote(PASSWORD, safe='')}'")],
        },
        {
            "text": "3",
            "tools": [bash("sed s/before/changed/ -i other.txt; cp other.txt copy.txt; NODE_ENV=development")],
        },
        {"text": "4", "tools": [use("Read", file_path="/workspace/.env")]},
        DONE,
    ]
    options = ("-v", "--mode", "bypassPermissions", "--apply", "never", "--model", program.script(turns))
    ran = program.call("run", "--output", "stream-json", *options, f"use {PASSWORD}", SOME_TOKEN=TOKEN)
    assert ran.code == 0, ran.stderr
    record = _everything(program.session())
    shown = [ran.stdout, ran.stderr]
    for command in (("diff", "last"), ("diff", "last", "--json"), ("sessions", "show", "last")):
        shown.append(program.call(*command, SOME_TOKEN=TOKEN).stdout)
    audited = program.call("sessions", "audit", "last")
    assert audited.code == 0, audited.stdout
    shown.append(audited.stdout)
    for text in (record, *shown):
        assert _leaks(text) == []
    for mark in ("[masked: .env DB_PASSWORD]", "[masked: environment SOME_TOKEN]"):
        assert mark in record
        assert mark in ran.stdout
    for text in shown[2:4]:
        assert "[masked: .env DB_PASSWORD]" in text
    assert "NODE_ENV=development" in record
    assert "masked by rule" in record
    assert program.call("apply", "last", "--all").code == 0
    assert (program.folder / "copy.txt").read_text() == f"changed\npassword: {PASSWORD}\nafter\n"


def test_a_mark_is_never_written_in_place_of_what_it_stands_for(program: Program) -> None:
    """A model that writes back what it was shown would destroy the value: the call is refused and says why."""
    (program.folder / ".env").write_text(ENV_FILE)
    text = f"password: {PASSWORD}\n"
    (program.folder / "other.txt").write_text(text)
    shown = text.replace(PASSWORD, "[masked: .env DB_PASSWORD]")
    turns = [
        {"text": "1", "tools": [use("Read", file_path="/workspace/other.txt")]},
        {"text": "2", "tools": [use("Write", file_path="/workspace/other.txt", content=shown)]},
        DONE,
    ]
    ran = program.call("run", "--output", "json", *EDITS, "--apply", "always", "--model", program.script(turns), "x")
    assert ran.code == 0, ran.stderr
    assert (program.folder / "other.txt").read_text() == text
    assert "That is only a mark" in _everything(program.session())


def test_neither_key_nor_environment_enter_the_container(program: Program) -> None:
    """Not its configuration, not the environment or arguments of any process, no file, no event of the engine."""
    began = time.time()
    env = {"ANTHROPIC_API_KEY": f"sk-ant-{TOKEN}", "MY_PLAIN_SETTING": f"plain-{TOKEN}", "SOME_TOKEN": TOKEN}
    hunt = (
        "printf 'tok-7Hq2-can%s' ary > /tmp/planted; "
        "grep -lrs 'tok-7Hq2-can[a]ry' /proc/[0-9]*/environ /proc/[0-9]*/cmdline; "
        "grep -lrs 'tok-7Hq2-can[a]ry' /etc /home /root /run /tmp /usr/local /var /workspace; env | sort"
    )
    script = program.script([{"text": "1", "tools": [bash(hunt)]}, {"text": "2", "tools": [bash("sleep 300")]}])
    os.environ |= env
    try:
        process = program.start("run", "--output", "json", "-v", "--allow", "Bash", *EDITS, "--model", script, "x")
    finally:
        for name in env:
            del os.environ[name]
    assert process.stderr is not None
    while b"* Bash sleep" not in (line := process.stderr.readline()):
        assert line
    client = docker.from_env()
    try:
        session = program.session()
        [name] = containers_of(session.name)
        facts = json.dumps(client.api.inspect_container(name))
        filters = {"label": f"sandbox-agent.session={session.name}"}
        events = client.api.events(since=began - 5, until=time.time() + 1, decode=True, filters=filters)
        facts += json.dumps(list(events))
    finally:
        client.close()
        process.terminate()
        process.communicate(timeout=60)
    assert "sandbox-agent.session" in facts
    for value in (TOKEN, "MY_PLAIN_SETTING", "SOME_TOKEN"):
        assert value not in facts
    [said] = [
        event["content"]
        for event in map(json.loads, (session / "events.jsonl").read_text().splitlines())
        if event["type"] == "tool_finished" and "planted" in str(event["content"])
    ]
    lines = said.splitlines()
    assert [line for line in lines if line.startswith("/")] == ["/tmp/planted"]
    assert not [line for line in lines if "PLAIN" in line or "TOKEN" in line or "ANTHROPIC" in line]


@pytest.mark.parametrize("mode", ["overlay", "copy"])
def test_a_tracked_secret_is_no_change_to_git_and_no_commit_empties_it(program: Program, mode: str) -> None:
    """Inside, git sees a clean tree, and what is committed there leaves the file alone, in nested repositories too."""
    for folder in (program.folder, program.folder / "libs/one"):
        folder.mkdir(parents=True, exist_ok=True)
        (folder / ".env").write_text(ENV_FILE)
        (folder / "code.py").write_text("one\n")
        commit = "git init -q; git add .env code.py; git -c user.name=T -c user.email=t@example.org commit -qm Start"
        subprocess.run(["bash", "-euc", commit], cwd=folder, check=True, timeout=60)
    commit = "git -c user.name=T -c user.email=t@example.org commit -qam Inside"
    look = f"git status --short -uno; echo two > code.py; {commit}; git show --stat --format=%s"
    script = program.script([{"text": "1", "tools": [bash(look), bash(f"cd libs/one; {look}")]}, DONE])
    options = ("--workspace-mode", mode, "--mode", "bypassPermissions", "--apply", "never", "--model", script)
    ran = program.call("run", "--output", "json", *options, "x")
    assert ran.code == 0, ran.stderr
    events = map(json.loads, (program.session() / "events.jsonl").read_text().splitlines())
    for said in [event["content"] for event in events if event["type"] == "tool_finished"]:
        assert said.startswith("Inside")
        assert "code.py" in said
        assert ".env" not in said
