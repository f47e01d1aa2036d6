"""The whole life of a session's workspace for those who are not root on one machine with their engine: shown, undone,
forked, reviewed, applied, exported, killed and removed, and nothing is left of it.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import docker
import pytest
from engine_apart import ADDRESS, engine_apart, socket_of
from ordinary import SHARED_GID, UID, Ordinary, ordinary
from program import DONE, Ended, bash

pytestmark = pytest.mark.docker

AS_ROOT = [pytest.param("root", id="root")] if os.getuid() == 0 else []
COMMIT = "git add -A; git -c user.name=T -c user.email=t@example.org commit -qm Inside"
FIRST = {
    "text": "1",
    "tools": [bash(f"touch b.txt; echo two >> a.txt; rm -r d; mkdir d; echo new > d/new; mkdir e; {COMMIT}")],
}
SECOND = {"text": "2", "tools": [bash("echo three >> b.txt; mkdir shut; echo s > shut/s; chmod 0 shut")]}
ON = {"text": "on", "tools": [bash("echo fork > f; cat a.txt")]}
WAIT = {"text": "w", "tools": [bash("sleep 300", timeout=400_000)]}
AFTER_FIRST = {"a.txt": "modified", "d/f": "deleted", "d/new": "added", "e": "added"}
AFTER_SECOND = {**AFTER_FIRST, "b.txt": "modified", "shut/s": "added"}

PROJECT = f"""
echo one > a.txt; echo one > b.txt; mkdir d; echo f > d/f; echo hunter2 > .env; echo .env > .gitignore
git init -q; {COMMIT}
"""


@contextmanager
def shared_folder() -> Iterator[Ordinary]:
    """Our own engine, and a folder that belongs to a group of which the user is one."""
    with ordinary() as user:
        user.shell(PROJECT)
        if user.holder:
            user.shell(f"chgrp -R {SHARED_GID} .; chmod -R g+w .; find . -type d -exec chmod g+s {{}} +")
        yield user


@contextmanager
def unseen_folder() -> Iterator[Ordinary]:
    """Our own engine, which does not see the folder."""
    with ordinary(hidden=True) as user:
        user.shell(PROJECT)
        yield user


@contextmanager
def other_engine() -> Iterator[Ordinary]:
    """An engine with files and a network of its own, over TCP."""
    with ordinary() as user, engine_apart(hiding=user.folder.parent) as engine:
        user.shell(PROJECT)
        yield replace(user, engine=ADDRESS, network=engine)


class Life:
    """One user, their project, and what they do."""

    def __init__(self, user: Ordinary, mode: str) -> None:
        self.user = user
        self.mode = mode

    def call(self, *arguments: str, code: int = 0) -> Ended:
        ended = self.user.call(*arguments)
        assert ended.code == code, ended.stdout + ended.stderr
        return ended

    def rows(self, *arguments: str) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.call(*arguments).stdout.splitlines()]

    def changed(self, session: str) -> dict[str, str]:
        return {row["path"]: row["kind"] for row in self.rows("diff", session, "--json")}

    def run(self, *turns: dict[str, Any], more: tuple[str, ...] = ()) -> Ended:
        options = ["--workspace-mode", self.mode, "--mode", "bypassPermissions", "--apply", "never", "-v"]
        where = ["-w", str(self.user.folder), "--model", self.user.script([*turns, DONE])]
        return self.call("run", "--output", "json", *options, *where, *more, "x")

    def killed(self, *turns: dict[str, Any]) -> str:
        """A session whose process was killed while it sat in a command after these turns."""
        options = ["--workspace-mode", self.mode, "--mode", "bypassPermissions", "-v"]
        where = ["-w", str(self.user.folder), "--model", self.user.script([*turns, WAIT])]
        process = self.user.start("run", "--output", "json", *options, *where, "x")
        assert process.stderr is not None
        while b"* Bash sleep" not in (line := process.stderr.readline()):
            assert line, "it ended before the command began"
        process.kill()
        process.communicate()
        return str(self.rows("sessions", "list", "--json")[0]["session_id"])

    def left(self) -> list[str]:
        """What is left of workspaces in the state folder."""
        names = {"overlay", "workspace", "checkpoints", "workspace.json", "manifest.jsonl"}
        return [path.name for path in self.user.real(self.user.home).rglob("*") if path.name in names]

    def at_engine(self, session: str) -> list[str]:
        """Containers and volumes of a session."""
        apart = self.user.network
        client = docker.DockerClient(base_url=socket_of(apart)) if apart else docker.from_env()
        try:
            only: dict[str, Any] = {"filters": {"label": f"sandbox-agent.session={session}"}}
            names = [str(found.name) for found in client.containers.list(all=True, **only)]
            return names + [str(found.name) for found in client.volumes.list(**only)]
        finally:
            client.close()


def check_steps(life: Life) -> str:
    """A run, an undo of all it did and back; the session."""
    ended = life.run(FIRST, SECOND)
    session = str(ended.document["session_id"])
    assert sorted(ended.document["unapplied_files"]) == sorted(AFTER_SECOND)
    assert "hunter2" not in ended.stderr
    life.call("undo", session, "--to", "0", "--no-conversation")
    assert life.changed(session) == {}
    life.call("undo", session, "--to", "2", "--no-conversation")
    assert life.changed(session) == AFTER_SECOND
    assert life.user.shell("cat a.txt; git log --format=%s") == "one\nInside\n"
    return session


def check_fork(life: Life, session: str) -> None:
    """A second session from the first step: some of it applied, its commits taken out, and removed."""
    [made] = life.rows("fork", session, "--at", "1", "--json")
    fork = str(made["session_id"])
    life.run(ON, more=("--resume", fork))
    assert life.changed(fork) == {**AFTER_FIRST, "f": "added"}
    life.call("apply", fork, "f")
    assert life.user.shell("cat f; ls") == "fork\na.txt\nb.txt\nd\nf\n"
    bundle = life.user.home / "x.bundle"
    life.call("export", fork, "--bundle", str(bundle))
    assert "refs/heads" in life.user.shell(f"git bundle list-heads {bundle}")
    life.call("sessions", "rm", fork, "--yes")
    assert life.at_engine(fork) == []


def check_apply(life: Life, session: str) -> None:
    """What the person changed meanwhile stays theirs, the rest comes; then nothing of the session is left."""
    life.user.shell("echo mine > b.txt; rm -f f")
    told = life.call("apply", session, "--all", code=1).stdout
    assert "b.txt" in told
    assert life.user.shell("cat a.txt b.txt d/new shut/s; ls -d d/* e") == "one\ntwo\nmine\nnew\ns\nd/new\ne\n"
    if life.user.holder:
        assert life.user.shell("stat -c %u a.txt d/new e shut/s").split() == [str(UID)] * 4
    life.call("sessions", "rm", session, "--yes")
    assert (life.at_engine(session), life.left()) == ([], [])


def check_killed(life: Life, *, undone: bool) -> None:
    """Killed: its work is kept, told by another process, and can be undone and applied; then nothing is left."""
    session = life.killed({"text": "k", "tools": [bash("echo kill >> a.txt; mkdir k; chmod 0 k")]})
    assert f"kept the changes of session {session}" in life.call("reap").stdout
    assert life.changed(session) == {"a.txt": "modified", "k": "added"}
    if undone:
        life.call("undo", session, "--to", "0", "--no-conversation")
        assert life.changed(session) == {}
        life.call("undo", session, "--to", "1", "--no-conversation")
    life.call("apply", session, "--all")
    assert life.user.shell("tail -1 a.txt; ls -d k") == "kill\nk\n"
    life.call("sessions", "rm", session, "--yes")
    assert (life.at_engine(session), life.left()) == ([], [])


def check_all(life: Life) -> None:
    """One life after the other."""
    session = check_steps(life)
    check_fork(life, session)
    check_apply(life, session)
    check_killed(life, undone=True)


def check_lost(life: Life) -> None:
    """The volume is removed behind our back: nobody takes the empty place for a workspace in which all was deleted."""
    session = str(life.run(FIRST).document["session_id"])
    [volume] = life.at_engine(session)
    client = docker.from_env()
    client.volumes.get(volume).remove()
    client.close()

    undone = life.call("undo", session, "--no-conversation", code=5)

    assert f"the volume {volume}, which holds the workspace, is not on the engine" in undone.stderr
    assert life.at_engine(session) == []
    assert life.changed(session) == AFTER_FIRST  # the last checkpoint is here
    life.call("sessions", "rm", session, "--yes")


def check_wrong_engine(life: Life) -> None:
    """What another engine holds is not forgotten, unless that is asked for."""
    session = str(life.run(FIRST).document["session_id"])
    here = Life(replace(life.user, engine="", network=0), life.mode)

    assert f"set DOCKER_HOST={ADDRESS}" in here.call("sessions", "rm", session, "--yes", code=5).stderr
    here.call("undo", session, "--no-conversation", code=5)
    assert life.at_engine(session) != []
    here.call("sessions", "rm", session, "--yes", "--abandon")
    assert life.at_engine(session) != []


def give(folder: Path, uid: int) -> None:
    """Make a folder and all in it somebody's."""
    for path in (folder, *folder.rglob("*")):
        os.chown(path, uid, uid, follow_symlinks=False)


def test_an_ordinary_user_in_a_shared_folder() -> None:
    """Through an overlay; the folder's group is the tools' too, so its set-group-ID bit can be brought back."""
    with shared_folder() as user:
        life = Life(user, "overlay")
        session = check_steps(life)
        check_apply(life, session)
        if user.holder:
            assert user.shell("stat -c '%G %a' d").split() == ["UNKNOWN", "2775"]


@pytest.mark.parametrize("who", AS_ROOT)
def test_a_copy_that_only_the_engine_has(who: str) -> None:
    """The mode is chosen by itself and said in one line; a killed session's changes are asked of the volume."""
    with unseen_folder() as user:
        life = Life(user, "auto")
        check_killed(life, undone=False)
        check_lost(life)


@pytest.mark.parametrize("who", AS_ROOT)
def test_a_folder_that_is_somebody_elses(who: str) -> None:
    """It is copied, all of it is the tools' then, nothing of it is changed, and commits can be taken out."""
    with ordinary() as user:
        user.shell(PROJECT)
        give(user.real(user.folder), UID + 1)
        life = Life(user, "auto")
        ended = life.run(FIRST)
        session = str(ended.document["session_id"])

        assert "workspace mode copy, no overlay: the folder is somebody else's, and not yours to write" in ended.stderr
        assert "you cannot write to this folder" in ended.stderr
        assert "Permission denied" in life.call("apply", session, "--all", code=1).stdout
        assert user.shell("cat a.txt; ls d") == "one\nf\n"
        life.call("export", session, "--bundle", str(user.home / "x.bundle"))
        life.call("sessions", "rm", session, "--yes")
        assert (life.at_engine(session), life.left()) == ([], [])


@pytest.mark.soak
@pytest.mark.timeout(600)
@pytest.mark.parametrize("who", AS_ROOT)
def test_an_engine_on_another_machine(who: str) -> None:
    """Over TCP, with files of its own; doctor says in one line what that means."""
    with other_engine() as user:
        told = user.call("doctor")
        assert told.code == 0, told.stdout
        assert "workspace mode copy in a volume of the engine, no overlay: the engine does not see this" in told.stdout
        life = Life(user, "auto")
        check_all(life)
        check_wrong_engine(life)


@pytest.mark.soak
@pytest.mark.timeout(600)
@pytest.mark.parametrize("mode", ["overlay", "copy"])
def test_an_ordinary_users_other_modes(mode: str) -> None:
    """All of it, on their own engine."""
    with shared_folder() as user:
        check_all(Life(user, mode))
