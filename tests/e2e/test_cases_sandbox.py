"""The cases of the sandbox around a run: engines that are missing or silent, clean-up, death, hijacks, masks."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

import anyio.to_thread
import docker
import pytest
from program import COMMAND, DONE, Ended, Program, bash, containers_of, use
from test_overlay_run import ORDINARY, Ordinary

from sandbox_agent.engine.past import first_event, session_ids
from sandbox_agent.events import RunFinished, ToolFinished
from sandbox_agent.sandboxes.endpoint import resolve_endpoint
from sandbox_agent.tape import read_tape
from sandbox_agent.testing.api_double import ApiDouble

pytestmark = pytest.mark.docker

REAL_SOCKET = resolve_endpoint(os.environ).url.removeprefix("unix://")
PIPES: dict[str, Any] = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
TOUCH = {"text": "I run it.", "tools": [bash("touch ran_on_host")]}


@contextmanager
def fake_engine(path: Path, answer: bytes | None, *, pause_s: float = 0) -> Iterator[list[socket.socket]]:
    """A socket that sends this to whoever connects, a byte at a time with a pause; None is to be silent."""
    held: list[socket.socket] = []
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))
        listener.listen()

        def drip(channel: socket.socket) -> None:
            with suppress(OSError):
                for place in range(len(answer or b"")):
                    channel.sendall((answer or b"")[place : place + 1])
                    time.sleep(pause_s)

        def serve() -> None:
            with suppress(OSError):
                while True:
                    channel, _ = listener.accept()
                    held.append(channel)
                    threading.Thread(target=drip, args=(channel,), daemon=True).start()

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield held
        listener.shutdown(socket.SHUT_RDWR)
        thread.join()
        for channel in held:
            channel.close()


SILENCES: dict[str, tuple[bytes | None, float]] = {
    "run": (None, 0),
    "run --output json": (b"HTTP/1.1 200 OK\r\nX-Filler: " + b"x" * 1000, 0.3),
    "doctor": (b"HTTP/1.1 200", 0),
    "reap": (None, 0),
}
"""Which command meets which engine: one that never writes, one that drips, one that stops in the middle."""


def test_dev_16_an_engine_that_does_not_respond_is_told_apart(program: Program, tmp_path: Path) -> None:
    """Within 10 s, exit code 5, and another text than for an engine that is not running."""
    script = program.script([TOUCH, DONE])
    said: dict[str, list[str]] = {"hung": [], "gone": []}
    for state in said:
        with ExitStack() as stack:
            began_s, processes = time.monotonic(), []
            for number, (command, (answer, pause_s)) in enumerate(SILENCES.items()):
                place = tmp_path / f"{number}.sock"
                if state == "hung":
                    stack.enter_context(fake_engine(place, answer, pause_s=pause_s))
                arguments = [*command.split(), "--model", script, "x"] if "run" in command else [command]
                env = program.environment(DOCKER_HOST=f"unix://{place}")
                processes.append(subprocess.Popen([*COMMAND, *arguments], env=env, cwd=program.folder, **PIPES))
            for process in processes:
                out, err = process.communicate(timeout=30)
                assert process.returncode == 5
                said[state].append(out.decode() + err.decode())
            assert time.monotonic() - began_s < 10 + 5 * (state == "hung")  # four at once on two cores
    assert all("accepts connections but does not respond within" in text for text in said["hung"])
    assert all("where no engine answers: Connection refused" in text for text in said["gone"])
    assert not any("does not respond" in text for text in said["gone"])


CANARY = """
import os, sys
def watch(event, args):
    if event in ("subprocess.Popen", "os.system", "os.exec", "os.posix_spawn", "os.fork", "os.forkpty", "pty.spawn"):
        with open({log!r}, "a") as file:
            print(event, args, file=file)
sys.addaudithook(watch)
"""


def without_engine(program: Program, how: str, *arguments: str, **env: str | None) -> Ended:
    """Run where no engine is: no socket, and no docker on PATH; every process it starts goes to canary.log."""
    parent = program.home.parent
    code = CANARY.format(log=str(parent / "canary.log")) + COMMAND[2]
    command = [COMMAND[0], "-c", code, *arguments]
    (parent / "bin").mkdir()
    env = {"PATH": str(parent / "bin"), "DOCKER_HOST": None, "HOME": str(parent), **env}
    match how:
        case "no socket":
            hide = 'mount -t tmpfs none /run && { [ -L /var/run ] || mount -t tmpfs none /var/run; } && exec "$@"'
            unshare = ["unshare", "--mount", "--propagation", "private", "sh", "-c", hide, "sh"]
            command = [str(shutil.which(unshare[0])), *unshare[1:4], "/bin/sh", *unshare[5:], *command]
            env["PATH"] = os.environ["PATH"]
        case "DOCKER_HOST":
            env["DOCKER_HOST"] = f"unix://{parent}/none.sock"
        case "context":
            use_context(parent / ".docker", "gone", f"unix://{parent}/none.sock")
    done = subprocess.run(
        command,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        env=program.environment(**env),
        cwd=program.folder,
        timeout=60,
        check=False,
    )
    return Ended(done.returncode, done.stdout.decode(), done.stderr.decode())


@pytest.mark.parametrize("how", ["DOCKER_HOST", "context", *(["no socket"] if os.getuid() == 0 else [])])
async def test_dev_38_without_an_engine_nothing_runs_on_the_host(program: Program, how: str) -> None:
    """Exit code 5 before any model request, no process started, no file made."""
    async with ApiDouble([TOUCH, DONE]) as api:
        env = {"ANTHROPIC_API_KEY": "k", "ANTHROPIC_BASE_URL": api.base_url}
        arguments = ("run", "-p", "--allow", "Bash", "--model", "anthropic:claude-test", "touch it")
        ended = await anyio.to_thread.run_sync(lambda: without_engine(program, how, *arguments, **env))
    assert (ended.code, ended.stdout, ended.stderr.count("\n")) == (5, "", 1)
    assert api.requests == []
    assert not (program.home.parent / "canary.log").exists()
    assert sorted(os.listdir(program.folder)) == ["a.txt"]


def use_context(folder: Path, name: str, url: str) -> None:
    """Make a Docker context, as its command line writes it, the active one."""
    place = folder / "contexts" / "meta" / hashlib.sha256(name.encode()).hexdigest()
    place.mkdir(parents=True)
    settings = {"Name": name, "Endpoints": {"docker": {"Host": url, "SkipTLSVerify": False}}}
    (place / "meta.json").write_text(json.dumps(settings))
    (folder / "config.json").write_text(json.dumps({"currentContext": name}))


@contextmanager
def proxy(path: Path) -> Iterator[list[bytes]]:
    """A socket whose other end is the real engine; the first bytes of every connection are kept."""
    seen: list[bytes] = []
    ends: dict[socket.socket, int] = {}
    both_ended = threading.Lock()
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))
        listener.listen(64)

        def pump(source: socket.socket, target: socket.socket, note: bool) -> None:
            with suppress(OSError):
                while data := source.recv(65536):
                    if note:
                        seen.append(data[:80])
                    target.sendall(data)
            with suppress(OSError):
                target.shutdown(socket.SHUT_WR)
            with both_ended:
                ends[source] = ends[target] = ends.get(source, 0) + 1
                if ends[source] == 2:
                    source.close()
                    target.close()

        def serve() -> None:
            with suppress(OSError):
                while True:
                    ours, _ = listener.accept()
                    theirs = socket.socket(socket.AF_UNIX)
                    theirs.connect(REAL_SOCKET)
                    threading.Thread(target=pump, args=(ours, theirs, True), daemon=True).start()
                    threading.Thread(target=pump, args=(theirs, ours, False), daemon=True).start()

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield seen
        listener.shutdown(socket.SHUT_RDWR)
        thread.join()
        with both_ended:
            for channel in ends:
                channel.close()


@pytest.mark.parametrize("chosen_by", ["currentContext", "DOCKER_CONTEXT"])
def test_dev_39_the_contexts_engine_is_used_and_a_wrong_host_is_not_passed_over(
    program: Program, tmp_path: Path, chosen_by: str
) -> None:
    """A run goes over the context's socket; with DOCKER_HOST wrong it fails by that name and asks nobody else."""
    config = tmp_path / "docker"
    use_context(config, "elsewhere", f"unix://{tmp_path}/proxy.sock")
    env: dict[str, str | None] = {"DOCKER_CONFIG": str(config), "DOCKER_HOST": None}
    if chosen_by == "DOCKER_CONTEXT":
        (config / "config.json").write_text("{}")
        env["DOCKER_CONTEXT"] = "elsewhere"
    arguments = ("run", "-p", "--workspace-mode", "copy", "--allow", "Bash", "--model")
    script = program.script([{"text": "x", "tools": [bash("echo in")]}, DONE])
    with proxy(tmp_path / "proxy.sock") as seen:
        used = program.call(*arguments, script, "x", **env)
        assert used.code == 0, used.stderr
        assert any(b"/containers/create" in data for data in seen)
        assert containers_of(program.session().name) == []
        count = len(seen)
        wrong = program.call(*arguments, script, "x", **{**env, "DOCKER_HOST": f"unix://{tmp_path}/wrong.sock"})
        assert len(seen) == count
    assert (wrong.code, wrong.stdout) == (5, "")
    assert f"DOCKER_HOST names unix://{tmp_path}/wrong.sock, where no engine answers" in wrong.stderr
    assert "no other engine was tried" in wrong.stderr


@pytest.mark.parametrize(("command", "closed"), [("run", "socket"), ("doctor", "socket"), ("reap", "folder")])
def test_dev_40_a_socket_without_permission_is_named_with_the_remedy(command: str, closed: str) -> None:
    """Permission denied on that socket, the group to join, and no word about an image."""
    parent = Path(tempfile.mkdtemp(prefix="sandbox-agent-test-"))
    try:
        person = Ordinary.make(parent)
        script = person.script([TOUCH, DONE])
        for path in (parent, *parent.rglob("*")):
            os.chown(path, ORDINARY if os.getuid() == 0 else -1, -1)
        place = parent / "closed"
        place.mkdir()
        with fake_engine(place / "s", None):
            (place / "s" if closed == "socket" else place).chmod(0o600 if os.getuid() == 0 else 0)
            arguments = {"run": ["run", "-p", "--model", script, "x"]}.get(command, [command])
            ended = person.call(*arguments, DOCKER_HOST=f"unix://{place}/s")
            place.chmod(0o700)
    finally:
        shutil.rmtree(parent)
    said = ended.stdout + ended.stderr
    assert ended.code == 5
    assert f"permission denied on the engine's socket {place}/s (from DOCKER_HOST)" in said
    assert "usermod -aG docker" in said
    assert "image" not in said.split("permission denied")[1]


def labelled(session_id: str) -> list[str]:
    """Containers, networks and volumes of a session."""
    client = docker.from_env()
    try:
        only = {"filters": {"label": f"sandbox-agent.session={session_id}"}}
        return [
            *(str(found.name) for found in client.containers.list(all=True, **only)),
            *(str(found.name) for found in client.networks.list(**only)),
            *(str(found.name) for found in client.volumes.list(**only)),
        ]
    finally:
        client.close()


def everything() -> set[str]:
    """Every container and network there is, by id."""
    client = docker.from_env()
    try:
        return {str(found.id) for kind in (client.containers.list(all=True), client.networks.list()) for found in kind}
    finally:
        client.close()


@pytest.mark.parametrize("soft", [signal.SIGTERM, signal.SIGHUP])
def test_dev_41_what_ended_runs_leave_is_removed(tmp_path: Path, program: Program, soft: signal.Signals) -> None:
    """At once after a soft signal; after a kill by the next start, which begins without a clash."""
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
    first, second = (Program(Program.make(tmp_path / name).folder, program.home) for name in ("one", "two"))
    processes: list[subprocess.Popen[bytes]] = []
    try:
        processes += [first.sleeping(), second.sleeping()]
        sessions = program.home / "state" / "sandbox-agent" / "sessions"
        started = {name: first_event(sessions, name) for name in session_ids(sessions)}
        ids = {event.workspace: name for name, event in started.items() if event is not None}
        ours, theirs = ids[str(first.folder)], ids[str(second.folder)]
        assert len(containers_of(ours)) == len(containers_of(theirs)) == 1
        processes[0].send_signal(soft)
        processes[0].communicate(timeout=30)
        assert labelled(ours) == []
    finally:
        for process in processes:
            process.kill()
            process.communicate(timeout=30)
    assert processes[0].returncode == 143
    third = program.call("run", "-p", "--model", program.script([DONE]), "x")
    assert (third.code, third.stdout) == (0, "All done.\n")
    assert labelled(theirs) == []


def kill(container: Any) -> None:
    container.kill()


def remove(container: Any) -> None:
    container.remove(force=True)


def stop(container: Any) -> None:
    container.stop(timeout=0)


@pytest.mark.parametrize(("death", "code"), [(kill, "137"), (remove, None), (stop, "143")])
def test_dev_42_a_container_that_dies_ends_the_run(program: Program, death: Any, code: str | None) -> None:
    """Status and exit code of its own, the container's exit code said, at most one more request, a whole record."""
    turns = [{"text": f"Call {n}.", "tools": [bash(f"echo {n}; sleep 0.3")]} for n in range(50)]
    process = program.start("run", "--output", "stream-json", "--allow", "Bash", "--model", program.script(turns), "x")
    assert process.stdout is not None
    lines, results = [], 0
    while results < 3:
        lines.append(json.loads(process.stdout.readline()))
        results += lines[-1]["type"] == "user"
    client = docker.from_env()
    [container] = client.containers.list(filters={"label": f"sandbox-agent.session={lines[0]['session_id']}"})
    death(container)
    client.close()
    out, err = process.communicate(timeout=60)
    lines += [json.loads(line) for line in out.splitlines()]

    last = lines[-1]
    assert (process.returncode, last["exit_code"], last["status"]) == (5, 5, "sandbox_error")
    assert code is None or code in last["error"]
    assert b"Traceback" not in err
    assert sum(line["type"] == "assistant" and line["message"]["content"][0]["type"] == "text" for line in lines) <= 5
    tape = read_tape(program.session() / "events.jsonl")
    events = [entry.event for entry in tape.entries]
    assert (tape.chain_ok, tape.damaged_lines) == (True, 0)
    assert [e.content.split("\n")[0] for e in events if isinstance(e, ToolFinished)][:3] == ["0", "1", "2"]
    assert isinstance(next(event for event in reversed(events) if isinstance(event, RunFinished)), RunFinished)
    assert labelled(lines[0]["session_id"]) == []


TOGETHER = [
    ["hooks and config", "hooks in the folder", "filters", "a repository inside"],
    ["config replaced", "another git folder"],
]
HOOK = "#!/bin/sh\\ntouch HOOKED\\n"
HIJACKS = {
    "hooks and config": "printf 'HOOK' > .git/hooks/post-checkout; chmod +x .git/hooks/post-checkout; "
    "git config core.fsmonitor EVIL; git config core.hooksPath /workspace/h",
    "hooks in the folder": "mkdir h; printf 'HOOK' | tee h/post-checkout h/post-index-change >/dev/null; chmod +x h/*; "
    "git config core.hooksPath h; git config core.hooksPath $PWD/h",
    "config replaced": "printf '[core]\\n\\tfsmonitor = EVIL\\n[include]\\n\\tpath = ../evil.cfg\\n' > .git/config; "
    "printf '[core]\\n\\tpager = EVIL\\n' > evil.cfg",
    "another git folder": "mv .git .was; cp -r .was fake; printf '[core]\\n\\tfsmonitor = EVIL\\n' >> fake/config; "
    "printf 'gitdir: fake\\n' > .git",
    "filters": "git config filter.x.clean EVIL; git config filter.x.smudge EVIL; git config filter.x.process EVIL; "
    "echo '* filter=x' > .git/info/attributes; git config diff.external EVIL; git config core.sshCommand EVIL",
    "a repository inside": "git init -q sub; printf 'HOOK' > sub/.git/hooks/post-checkout; "
    "chmod +x sub/.git/hooks/post-checkout; git -C sub config core.fsmonitor EVIL; echo 1 > sub/f",
}


@pytest.mark.parametrize("workspace_mode", ["copy", "overlay"])
def test_dev_43_nothing_written_to_git_reaches_the_host(program: Program, workspace_mode: str) -> None:
    """Although everything is applied: git on the host runs no hook and no program that was named inside."""
    hooked, evil = (program.home.parent / name for name in ("hooked", "evil"))
    evil.write_text(f"#!/bin/sh\ntouch {hooked}\n")
    evil.chmod(0o755)
    quiet = {**os.environ, "GIT_CONFIG_GLOBAL": "/dev/null", "GIT_CONFIG_SYSTEM": "/dev/null"}
    who = ["-c", "user.name=a", "-c", "user.email=a@b.c", "-c", "safe.directory=*"]

    def git(*arguments: str, cwd: Path = program.folder) -> str:
        command = ["git", *who, *arguments]
        return subprocess.run(command, cwd=cwd, env=quiet, check=True, capture_output=True, text=True).stdout

    def git_files() -> dict[Path, bytes]:
        return {path: path.read_bytes() for path in (program.folder / ".git").rglob("*") if path.is_file()}

    git("init", "-q")
    git("add", ".")
    git("commit", "-qm", "one")
    before = git_files()
    for number, names in enumerate(TOGETHER):
        commands = [HIJACKS[name].replace("HOOK", HOOK).replace("EVIL", str(evil)) for name in names]
        calls = [bash(command.replace("HOOKED", str(hooked))) for command in commands]
        script = program.script([{"text": "x", "tools": calls}, DONE])
        arguments = ("--workspace-mode", workspace_mode, "--mode", "bypassPermissions", "--apply", "always")
        ended = program.call("run", "--output", "json", *arguments, "--model", script, "x")
        assert ended.code in (0, 1), ended.stderr
        assert git_files() == before
        assert not (program.folder / "sub" / ".git").exists()
        git("status")
        git("checkout", "-q", "-b", f"branch{number}")
        git("diff")
        assert not hooked.exists(), ended.stderr
        before = git_files()


@pytest.mark.parametrize("hijack", ["hooks and config", "filters"])
def test_dev_43_a_writable_git_folder_is_reported_at_the_end(hijack: str) -> None:
    """Where the person chose bind, what changed in .git is listed."""
    parent = Path(tempfile.mkdtemp(prefix="sandbox-agent-test-"))
    try:
        person = Program.make(parent)
        subprocess.run(["git", "init", "-q"], cwd=person.folder, check=True)
        if os.getuid() == 0:
            for path in (person.folder, *person.folder.rglob("*")):
                os.chown(path, ORDINARY, ORDINARY)
        command = HIJACKS[hijack].replace("HOOK", HOOK).replace("EVIL", "/tmp/evil")
        script = person.script([{"text": "x", "tools": [bash(command)]}, DONE])
        arguments = ("--workspace-mode", "bind", "--mode", "bypassPermissions", "-v")
        ended = person.call("run", "--output", "json", *arguments, "--model", script, "x")
    finally:
        shutil.rmtree(parent)
    assert ended.code == 0, ended.stderr
    changed = {"hooks and config": "post-checkout", "filters": "info/attributes"}[hijack]
    assert changed in ended.stderr
    assert ".git/config" in ended.stderr or "configuration" in ended.stderr


@pytest.mark.parametrize("workspace_mode", ["copy", "overlay"])
def test_dev_44_masked_files_and_folders_cannot_be_read_or_written(program: Program, workspace_mode: str) -> None:
    """Reading gives nothing, writing brings nothing to the host, and what is not masked works."""
    (program.folder / "secret.txt").write_text("hunter2")
    (program.folder / "keys").mkdir()
    (program.folder / "keys" / "id").write_text("hunter2")
    (program.folder / "out").mkdir()
    policy = program.home.parent / "policy.yaml"
    policy.write_text("mode: bypassPermissions\nsandbox: {masks: [secret.txt, keys/]}\n")
    commands = [
        "cat secret.txt; ls keys; cat keys/id",
        "echo x > keys/new",
        "mkdir -p keys && echo x > keys/new2; echo x > secret.txt",
        "rm -rf keys secret.txt; mv keys k2; cat k2/*",
        "echo y > out/ok && cat out/ok",
    ]
    writes = [use("Write", file_path="keys/new3", content="x"), use("Write", file_path="secret.txt", content="x")]
    reads = [use("Read", file_path="secret.txt"), use("Read", file_path="keys/id")]
    script = program.script([{"text": "x", "tools": [*map(bash, commands), *writes, *reads]}, DONE])
    arguments = ("--policy", str(policy), "--workspace-mode", workspace_mode, "--apply", "always")
    ended = program.call("run", "--output", "stream-json", *arguments, "--model", script, "x")
    lines = [json.loads(line) for line in ended.stdout.splitlines()]
    results = [block for line in lines if line["type"] == "user" for block in line["message"]["content"]]

    assert ended.code == 0, ended.stderr
    assert "hunter2" not in ended.stdout + ended.stderr
    assert "y\nExit code: 0" in results[4]["content"]
    assert [result.get("is_error", False) for result in results[5:]] == [True] * 4
    assert all("masked by rule" in result["content"] for result in results[5:])
    found = sorted(str(path.relative_to(program.folder)) for path in program.folder.rglob("*"))
    assert found == ["a.txt", "keys", "keys/id", "out", "out/ok", "secret.txt"]
    assert (program.folder / "secret.txt").read_text() == (program.folder / "keys/id").read_text() == "hunter2"
