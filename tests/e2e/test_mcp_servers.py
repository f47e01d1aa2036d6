"""Real MCP servers from the command line, in all three places; and hostile ones, which leave nothing behind."""

from __future__ import annotations

import json
import os
import select
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import docker
import pytest
from program import DONE, Program, bash, use
from public_servers import NoServersError, had, image_of

pytestmark = pytest.mark.docker

HOSTILE = Path(__file__).parent.parent / "data" / "hostile_mcp.py"
UID = 1234
TALL = {"startup_timeout_s": 60}


@dataclass(frozen=True)
class Public:
    """Where the public servers are: on this machine, and in an image."""

    folder: Path
    image: str


@pytest.fixture(scope="module")
def public() -> Public:
    """The servers; a machine that cannot have them fails here, with one line."""
    try:
        folder = had()
        return Public(folder, image_of(folder))
    except NoServersError as exc:
        pytest.fail(str(exc), pytrace=False)


def _entries(root: str, python: str, files: str) -> dict[str, dict[str, Any]]:
    """The five servers, of this folder; `files` is what they work on."""
    node = f"{root}/node/node_modules/@modelcontextprotocol"
    path = {"PYTHONPATH": f"{root}/py"}
    return {
        "everything": {"command": "node", "args": [f"{node}/server-everything/dist/index.js"], **TALL},
        "files": {"command": "node", "args": [f"{node}/server-filesystem/dist/index.js", files], **TALL},
        "memory": {
            "command": "node",
            "args": [f"{node}/server-memory/dist/index.js"],
            "env": {"MEMORY_FILE_PATH": "/tmp/memory-of-a-test.json"},
            **TALL,
        },
        "git": {"command": python, "args": ["-m", "mcp_server_git", "--repository", files], "env": path, **TALL},
        "time": {
            "command": python,
            "args": ["-m", "mcp_server_time", "--local-timezone", "Etc/UTC"],
            "env": path,
            **TALL,
        },
    }


def _ran(
    program: Program, servers: dict[str, Any], calls: list[Any], *more: str, **sandbox: Any
) -> tuple[Any, list[Any]]:
    """The document of a run with these servers and calls, and its record."""
    policy = program.home / "policy.yaml"
    program.home.mkdir(exist_ok=True)
    settings = {"extends": "default", "sandbox": sandbox, "mcp": {"servers": servers}}
    policy.write_text(json.dumps(settings | {"rules": {"allow": [f"mcp__{name}__*" for name in servers]}}))
    script = program.script([{"tools": calls}, DONE])
    options = ("--policy", str(policy), "--model", script, "--output", "json", "--apply", "always", "--allow", "Bash")
    ended = program.call("run", *options, *more, "x")
    assert ended.code in (0, 1), ended.stderr
    record = [json.loads(line) for line in (program.session() / "events.jsonl").read_text().splitlines()]
    return ended.document, record


def _results(record: list[Any]) -> list[str]:
    (message,) = [event["content"] for event in record if event["type"] == "tool_results"]
    return [
        block["content"] if isinstance(block["content"], str) else json.dumps(block["content"]) for block in message
    ]


def _left(program: Program) -> list[str]:
    """Containers of servers, of the program's only session, by name."""
    client = docker.from_env()
    try:
        names = [str(one.name) for one in client.containers.list(all=True)]
    finally:
        client.close()
    return [name for name in names if f"{program.session().name}-mcp-" in name]


@pytest.mark.parametrize("place", ["session", "own", "host"])
def test_public_servers_work_in_every_place(program: Program, public: Public, place: str) -> None:
    """Their tools are called, what they write in the workspace is in the person's folder, nothing of theirs is left."""
    git = ["git", "-c", "user.name=n", "-c", "user.email=n@example.org", "-C", str(program.folder)]
    for words in (["init", "-q"], ["add", "."], ["commit", "-q", "-m", "the first of all"]):
        subprocess.run([*git, *words], check=True)
    on_host = place == "host"
    files = str(program.folder) if on_host else "/workspace"
    if on_host:
        python = shutil.which("python3.11") or "python3.11"
        servers = _entries(str(public.folder), python, files)
        for one in servers.values():
            one["place"] = "host"
        servers["memory"]["env"]["MEMORY_FILE_PATH"] = str(program.home / "memory.json")
    else:
        servers = _entries("/opt/mcp", "python3", files)
        for name, one in servers.items():
            one |= {"place": place}
            if place == "own":
                one |= {"image": public.image, "workspace": {"files": "rw", "git": "ro"}.get(name, "none")}
    entity = {"name": "Ada", "entityType": "person", "observations": ["wrote the first program"]}
    calls = [
        use("mcp__everything__echo", message="to all"),
        use("mcp__everything__get-sum", a=40, b=2),
        use("mcp__everything__get-tiny-image"),
        use("mcp__files__write_file", path=f"{files}/made.txt", content="by a server\n"),
        use("mcp__memory__create_entities", entities=[entity]),
        use("mcp__memory__search_nodes", query="Ada"),
        use("mcp__git__git_log", repo_path=files),
        use("mcp__time__convert_time", source_timezone="Etc/UTC", time="12:00", target_timezone="Asia/Tokyo"),
        bash("cat made.txt; ls /opt/mcp 2>/dev/null; true"),
    ]
    image = {"image": public.image} if place == "session" else {"image": "dev"}

    _, record = _ran(program, servers, calls, **image)

    results = _results(record)
    states = {
        event["server"]: (event["state"], event["error"]) for event in record if event["type"] == "mcp_server_changed"
    }
    assert states == dict.fromkeys(servers, ("connected", "")), states
    for said, expected in zip(
        results,
        ["to all", "42", "image", "made.txt", "Ada", "wrote the first program", "the first of all", "21:00"],
        strict=False,
    ):
        assert expected in said
    if not on_host:
        assert results[-1].startswith("by a server\n")
        assert ("node\npy" in results[-1]) is (place == "session")
    assert (program.folder / "made.txt").read_text() == "by a server\n"
    assert record[0]["mcp_servers"] == [{"name": name, "place": place} for name in servers]
    assert _left(program) == []
    assert not list(program.session().glob("mcp-*"))


def evil(*modes: str, **more: Any) -> dict[str, Any]:
    """An entry of a hostile server, whose program needs nothing but Python where it runs."""
    return {"command": "python3", "args": ["-c", HOSTILE.read_text(), *modes], "call_timeout_s": 5, **more}


def test_hostile_servers_cost_a_run_nothing_but_their_tools(program: Program) -> None:
    """One that hangs, one that floods, one that dies in a call and one that leaves a daemon, in both kinds of
    containers: the others answer, the run ends as it would, and no container is left. One that a command has killed
    is there again at its next call."""
    own = {"place": "own"}
    servers = {
        "hangs": evil("hang_in_start", startup_timeout_s=2),
        "floods": evil("giant_line", startup_timeout_s=20, **own),
        "dies": evil("die_in_call"),
        "dies_apart": evil("die_in_call", **own),
        "endless": evil("endless", **own),
        "daemon": evil("child", "daemon", "stays"),
        "good": evil("label=good"),
    }
    names = ["dies", "dies", "dies_apart", "dies_apart", "endless", "daemon", "good"]
    # It looks for the words of the one server, and so does not find itself.
    find = "for p in glob.glob('/proc/[0-9]*/cmdline') if b'label' + b'=good' in open(p, 'rb').read()"
    killed = f'python3 -c "import glob, os; [os.kill(int(p[6:-8]), 9) {find}]"; echo still here'
    calls = [*(use(f"mcp__{name}__echo") for name in names), bash(killed), *[use("mcp__good__echo")] * 2]

    document, record = _ran(program, servers, calls, "--mode", "bypassPermissions")

    results = _results(record)
    states = {
        event["server"]: event["error"]
        for event in record
        if event["type"] == "mcp_server_changed" and not event["tools"]
    }
    assert "it was not there within 2 s" in states["hangs"]
    assert "a line without an end" in states["floods"]
    assert all("its program ended with exit code 3" in text for text in results[:4])
    assert "a line without an end" in results[4]
    assert results[5:7] == ["echo {}", "echo {}"]
    assert results[7].startswith("still here")
    assert results[9] == "echo {}"
    assert document["subtype"] == "success"
    assert _left(program) == []


def test_a_killed_run_leaves_nothing_of_a_server(program: Program) -> None:
    """kill -9: the next reap finds the server's container as it finds the session's; one on this machine is ended."""
    policy = program.home / "policy.yaml"
    program.home.mkdir(exist_ok=True)
    starts = program.home / "starts"
    servers = {"apart": evil(place="own"), "here": evil("stays", f"STATE={starts}", place="host")}
    policy.write_text(json.dumps({"extends": "default", "mcp": {"servers": servers}}))
    script = program.script([{"tools": [bash("sleep 300", timeout=400_000)]}])
    options = ("--policy", str(policy), "--allow", "Bash", "--model", script, "--output", "json", "-v")
    with program.start("run", *options, "x") as process:
        assert process.stderr is not None
        while b"* Bash sleep" not in (line := process.stderr.readline()):
            assert line, "it ended before the command began"
        there = _left(program)
        here = os.pidfd_open(int(starts.read_text()))
        process.kill()
        process.communicate()
    assert select.select([here], [], [], 20)[0], "the server on this machine goes on"
    os.close(here)

    program.call("reap")

    assert len(there) == 1
    assert _left(program) == []


@pytest.mark.parametrize("mode", ["overlay", "copy", "bind"])
def test_masked_files_are_masked_for_a_server_with_the_workspace(program: Program, mode: str) -> None:
    """Whether it may write there or only read: its container shows no more than the session's."""
    (program.folder / ".env").write_text("DB_PASSWORD=sesame-open\n")
    for path in (program.folder, *program.folder.iterdir()):
        os.chown(path, os.getuid() or UID, -1)  # in mode bind root's own folder is refused
    servers = {
        kind: evil("reads=/workspace/.env", place="own", workspace=kind, startup_timeout_s=60) for kind in ("ro", "rw")
    }

    _, record = _ran(program, servers, [use(f"mcp__{kind}__echo") for kind in servers], "--workspace-mode", mode)

    for said in _results(record):
        assert said == "0 characters" or "exit code 1" in said  # empty, or not there at all
