"""Recorded runs are replayed by the real program: live in fresh containers, and frozen with no engine."""

from __future__ import annotations

import json
import os
import shutil
import signal
import stat
import subprocess
import zipfile
from pathlib import Path

import pytest
from program import COMMAND, DONE, Program, containers_of, use
from replay_rig import record, script

pytestmark = pytest.mark.docker

EXAMPLES = Path(__file__).parents[2] / "examples"
SECRET = "kq7-Wm2x-PLANTED-9fR4-secret"


def copy_of(folder: Path, parent: Path, uid: int = 4242) -> Path:
    """The folder elsewhere, and another user's where we may give it away."""
    there = parent / "elsewhere" / "copied"
    shutil.copytree(folder, there, symlinks=True)
    if os.geteuid() == 0:
        for path in (there, *there.rglob("*")):
            os.chown(path, uid, uid, follow_symlinks=False)
    return there


def test_sixty_steps_agree_live_and_frozen_and_differ_where_something_was_changed(
    program: Program, tmp_path: Path
) -> None:
    """Shell, edits, sub-agents side by side and in the background, an MCP server: with the bundle's own folder, with
    another user's copy elsewhere, and without an engine. A changed folder is found before anything runs. A branch has
    the tree of its step, and another model goes on."""
    file = tmp_path / "sixty.bundle"
    recorded = record(program, script(program), file)
    frozen = program.call("replay", str(file), "--frozen", "--json", DOCKER_HOST="unix:///nonexistent/engine.sock")
    live = program.call("replay", str(file), "--json")
    elsewhere = copy_of(program.folder, tmp_path)
    other = program.call("replay", str(file), "-w", str(elsewhere))
    (elsewhere / "a.txt").write_text("other\n")
    changed = program.call("replay", str(file), "-w", str(elsewhere), "--json")

    with zipfile.ZipFile(file) as archive:
        steps = [json.loads(line) for line in archive.read("steps.jsonl").splitlines()]
    seventh = [step["step"] for step in steps if step["kind"] == "tree" and "numbers.txt" in step["data"]["changed"]][6]
    model = program.script([{"tools": [use("Bash", command="wc -l < numbers.txt; cat shared.txt | wc -l")]}, DONE])
    into = tmp_path / "branch"
    branched = program.call("replay", str(file), "--from", str(seventh + 2), "-w", str(into), "--model", model, "-v")
    refused = program.call("replay", str(file), "--from", "9999", "-w", str(tmp_path / "none"), "--model", model)

    keyless = program.call("replay", str(file), "--from", "40", "-w", str(tmp_path / "none"), "--model", "anthropic:x")

    assert recorded.code == 3, recorded.stderr
    assert (keyless.code, (tmp_path / "none").exists()) == (2, False)
    assert len([step for step in steps if step["kind"] == "request"]) >= 60
    assert branched.code == 0, branched.stderr
    assert "All done." in branched.stdout
    assert (into / "numbers.txt").read_text() == "".join(f"{number}\n" for number in range(7))
    assert refused.code == 2
    assert "--from 9999: steps are 0 to" in refused.stderr
    assert f"recorded: {file}" in recorded.stderr
    assert frozen.code == 0, frozen.stdout + frozen.stderr
    assert frozen.document["agrees"] is True
    assert live.code == 0, live.stdout + live.stderr
    assert any("background" in line for line in live.document["not_pinned"])
    assert (other.code, other.stderr) == (0, ""), other.stdout
    assert changed.code == 7
    assert changed.document["difference"]["what"] == "the folder at the beginning"
    assert file.stat().st_size < 300_000
    sessions = [path.name for path in (program.home / "state/sandbox-agent/sessions").iterdir()]
    assert len(sessions) == 2  # of the recording and of the branch; a replay leaves none
    assert [containers_of(name) for name in sessions] == [[], []]


def test_a_difference_is_shown_with_both_sides_and_no_secret_gets_on_tape(program: Program, tmp_path: Path) -> None:
    """A program whose output hangs on chance is found at its step; a masked value is in no part of the bundle, nor is a
    file that holds one."""
    (program.folder / ".env").write_text(f"TOKEN={SECRET}\n")
    (program.folder / "copied.txt").write_text(f"the same: {SECRET}\n")
    chance = "import random; print('seen', random.random()); open('r.txt', 'w').write('TOKEN')"
    turns = [
        {"tools": [use("Bash", command="cat copied.txt; base64 copied.txt; xxd -p copied.txt; rev copied.txt | rev")]},
        {"tools": [use("Bash", command=f'python3 -c "{chance}"; cp copied.txt again.txt')]},
        {"text": f"It is {SECRET}."},
    ]
    file = tmp_path / "run.bundle"
    recorded = program.call(
        "run", "-p", "--mode", "bypassPermissions", "--record", str(file), "--model", program.script(turns), "x"
    )
    alone = program.call("replay", str(file))
    differs = program.call("replay", str(file), "-w", str(program.folder))
    again = program.call("run", "-p", "--record", str(file), "--model", program.script([DONE]), "x")

    assert recorded.code == 0, recorded.stderr
    with zipfile.ZipFile(file) as archive:
        whole = b"".join(archive.read(name) for name in archive.namelist())
    for form in (SECRET, SECRET.encode().hex(), SECRET[::-1]):
        assert form.encode() not in whole
    assert alone.code == 2
    assert "1 files hold secrets" in alone.stderr
    assert differs.code == 7, differs.stdout + differs.stderr
    assert "the result of Bash: not what was recorded" in differs.stderr
    assert '- "content": "seen' in differs.stderr
    assert '+ "content": "seen' in differs.stderr
    assert again.code == 2
    assert "is there already" in again.stderr
    assert again.stderr.count("\n") == 1
    assert len(list((program.home / "state/sandbox-agent/sessions").iterdir())) == 1


def test_a_folder_with_every_kind_of_entry_is_replayed_from_the_bundle(program: Program, tmp_path: Path) -> None:
    """Pipes, sockets, hard links, set-id bits, names and output that are no UTF-8; the branch has them as they were."""
    folder = program.folder
    os.mkfifo(folder / "pipe")
    os.mknod(folder / "socket", stat.S_IFSOCK | 0o600)
    (folder / "set-id").write_text("x\n")
    (folder / "set-id").chmod(0o4755)
    (folder / "closed").mkdir()
    (folder / "closed/in").write_text("y\n")
    (folder / "closed").chmod(0o555)
    os.link(folder / "a.txt", folder / "again.txt")
    (folder / os.fsdecode(b"odd-\xff")).write_text("z\n")
    look = "ls -lA --time-style=full-iso; date; stat -c '%A %h %n' * closed/in"
    turns = [{"tools": [use("Bash", command=look)]}, {"tools": [use("Bash", command=f"echo 2 >> a.txt; {look}")]}, DONE]
    file, into = tmp_path / "odd.bundle", tmp_path / "branch"
    options = ("--mode", "bypassPermissions", "--record", str(file))
    recorded = program.call("run", "-p", *options, "--model", program.script(turns), "x")
    replayed = program.call("replay", str(file))
    branched = program.call("replay", str(file), "--from", "9999", "-w", str(into), "--model", program.script([DONE]))
    with zipfile.ZipFile(file) as archive:
        last = len(archive.read("steps.jsonl").splitlines()) - 1
    again = program.call("replay", str(file), "--from", str(last), "-w", str(into), "--model", program.script([DONE]))

    assert recorded.code == 0, recorded.stderr
    assert (replayed.code, replayed.stderr) == (0, "")
    assert (branched.code, again.code) == (2, 0), again.stderr
    assert (into / "a.txt").read_text() == "one\n2\n"
    assert (into / "socket").is_socket()
    assert (into / "set-id").stat().st_mode & 0o7777 == 0o755


def test_a_recording_that_is_killed_says_so(program: Program, tmp_path: Path) -> None:
    """The file names the session that has what there is."""
    file = tmp_path / "run.bundle"
    model = program.script([{"tools": [use("Bash", command="echo begun; sleep 60")]}, DONE])
    arguments = ["run", "-p", "--mode", "bypassPermissions", "--record", str(file), "--model", model, "x"]
    process = subprocess.Popen([*COMMAND, *arguments, "-v"], env=program.environment(), cwd=program.folder, stderr=-1)
    assert process.stderr is not None
    for line in process.stderr:
        if b"sleep 60" in line:
            break
    process.send_signal(signal.SIGKILL)
    process.wait()
    process.stderr.close()
    ended = program.call("replay", str(file), "--json")
    program.call("reap")

    assert ended.code == 2
    assert f"sessions show {program.session().name}" in ended.stderr
    assert "was not finished" in json.dumps(ended.stderr)


@pytest.mark.soak
@pytest.mark.timeout(1800)
def test_ten_live_replays_agree_under_load(program: Program, tmp_path: Path) -> None:
    """The sixty steps and the demo's, each ten times, while every processor is busy: in turn in the bundle's own folder
    and in copies elsewhere that are other users'."""
    sixty, demo = tmp_path / "sixty.bundle", tmp_path / "demo.bundle"
    assert record(program, script(program), sixty).code == 3
    project = tmp_path / "demo-project"
    shutil.copytree(EXAMPLES / "demo-project", project, ignore=shutil.ignore_patterns("__pycache__"))
    options = ["--mode", "acceptEdits", "--allow", "Bash(python3 -m pytest:*)", "--record", str(demo)]
    options += ["-w", str(project), "--model", f"script:{EXAMPLES / 'demo.yaml'}"]
    recorded = program.call("run", "-p", *options, "Fix the tests")
    assert recorded.code == 0, recorded.stderr
    busy = [subprocess.Popen([COMMAND[0], "-c", "while True: pass"]) for _ in range(2 * (os.cpu_count() or 1))]
    try:
        for number in range(10):
            for file, folder in ((sixty, program.folder), (demo, project)):
                there: tuple[str, ...] = ()
                if number % 2:
                    there = ("-w", str(copy_of(folder, tmp_path / f"{file.stem}-{number}", 2000 + number)))
                ended = program.call("replay", str(file), "--json", *there, within_s=600)
                assert ended.code == 0, (number, file.name, ended.stdout, ended.stderr)
    finally:
        for process in busy:
            process.kill()
            process.wait()
