"""The cases of the sandbox around a run: clean-up, death, hijacks, masks."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import tempfile
from pathlib import Path
from typing import Any

import docker
import pytest
from program import DONE, Program, bash, containers_of, use
from test_overlay_run import ORDINARY

from sandbox_agent.engine.past import first_event, session_ids
from sandbox_agent.events import AssistantMessage, CallEffects, ReviewReady, RunFinished, ToolFinished
from sandbox_agent.tape import read_tape

pytestmark = pytest.mark.docker


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
    """In the middle of a call: status and exit code of its own, the container's exit code said, no more request, and a
    whole record, by the audit too; nothing is left on the engine or mounted."""
    process = program.sleeping(*({"text": f"Call {n}.", "tools": [bash(f"echo {n}")]} for n in range(3)))
    folder = program.session()
    client = docker.from_env()
    [container] = client.containers.list(filters={"label": f"sandbox-agent.session={folder.name}"})
    death(container)
    client.close()
    out, err = process.communicate(timeout=60)
    document = json.loads(out)

    assert (process.returncode, document["exit_code"], document["status"]) == (5, 5, "sandbox_error")
    assert code is None or code in document["error"]
    assert b"Traceback" not in err
    tape = read_tape(folder / "events.jsonl")
    events = [entry.event for entry in tape.entries]
    assert (tape.chain_ok, tape.damaged_lines) == (True, 0)
    finished = [event for event in events if isinstance(event, ToolFinished)]
    assert [event.content.split("\n")[0] for event in finished[:3]] == ["0", "1", "2"]
    assert len(finished) == 4
    assert finished[3].is_error
    assert sum(isinstance(event, AssistantMessage) for event in events) == 4
    [end] = [event for event in events if isinstance(event, RunFinished)]
    assert end.status == "sandbox_error"
    # What the run changed, and what a call did that nobody can look after any more; nothing else comes after the end.
    assert {type(event) for event in events[events.index(end) + 1 :]} <= {CallEffects, ReviewReady}
    audit = program.call("sessions", "audit", folder.name, "--head", document["record_head"])
    assert audit.code == 0, audit.stdout + audit.stderr
    assert labelled(folder.name) == []
    assert str(folder) not in Path("/proc/self/mountinfo").read_text()


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
