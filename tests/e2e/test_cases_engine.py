"""The cases of the way to the engine: one that is missing, silent, closed to us, or chosen by a context."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
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
import pytest
from program import COMMAND, DONE, Ended, Program, bash, containers_of
from test_overlay_run import ORDINARY, Ordinary

from sandbox_agent.sandboxes.endpoint import resolve_endpoint
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
