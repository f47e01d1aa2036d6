"""Checkpoints and undo in a real container: exact, whatever the tools did, and while something else goes on writing."""

from __future__ import annotations

import secrets
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from checkpoint_rig import OWNER, CheckpointRig, session
from workspace_places import give

pytestmark = pytest.mark.docker


def folder(parent: Path) -> Path:
    host = parent / "project"
    (host / "src" / "deep").mkdir(parents=True)
    (host / "empty").mkdir()
    (host / "readme").write_text("one\ntwo\n")
    (host / "src" / "main.py").write_text("print(1)\n")
    (host / "src" / "deep" / "data").write_bytes(bytes(range(256)) * 100)
    (host / "link").symlink_to("readme")
    (host / "run.sh").write_text("#!/bin/sh\n")
    (host / "run.sh").chmod(0o755)
    give(host, OWNER)
    return host


@pytest.fixture(scope="module")
async def rig(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[CheckpointRig]:
    """On the overlay, where removing and renaming are the hardest; the property test is for the other modes, too."""
    parent = tmp_path_factory.mktemp("overlay")
    async with session("overlay", folder(parent), parent / f"test-{secrets.token_hex(6)}") as made:
        yield made


async def test_step_0_is_there_before_the_first_tool(rig: CheckpointRig) -> None:
    """The base has an event and every path, and read no content."""
    nodes = rig.checkpoints.steps.load(0).snapshot.nodes
    assert (rig.steps[0].step, rig.steps[0].origin, rig.steps[0].changed) == (0, "base", ())
    assert {"", "readme", "src/deep/data", "link", "empty"} <= nodes.keys()
    assert {node.sha256 for node in nodes.values()} == {None}


async def test_a_call_that_changed_nothing_makes_no_step(rig: CheckpointRig) -> None:
    """Nor does one that only reads, or only touches."""
    assert await rig.change("cat readme src/*; touch readme; ls -R > /tmp/x") is None


async def test_a_step_names_its_call_and_what_it_changed(rig: CheckpointRig) -> None:
    """By path and kind of change."""
    await rig.checkpoints.undo(0)
    step = await rig.change("echo more >> readme; rm link; mkdir new; chmod 700 run.sh; ln -s x other", "call-7")
    assert step is not None
    assert step.call_ids == ("call-7",)
    assert [(change["path"], change["kind"]) for change in step.changed] == [
        ("link", "deleted"),
        ("new", "added"),
        ("other", "added"),
        ("readme", "modified"),
        ("run.sh", "mode"),
    ]


ATTRIBUTES = """python3 -c 'import os, sys
name, _, value = sys.argv[1].partition("=")
[os.setxattr(path, name, value.encode()) for path in sys.argv[2:]]'"""
RIGHTS = """python3 -c 'import os, struct, sys
rows = (1, 6, -1), (2, 4, 1), (4, 4, -1), (16, 6, -1), (32, 0, -1)
acl = struct.pack("<I", 2) + b"".join(struct.pack("<HHi", *row) for row in rows)
os.setxattr(sys.argv[1], "system.posix_acl_" + [*sys.argv, "access"][2], acl)'"""
CHANGES = {
    "content": "echo x >> readme; printf y > src/main.py",
    "deletion": "rm -rf src empty",
    "empty folders": "mkdir -p a/b/c; rmdir empty",
    "modes": "chmod 4751 run.sh; chmod 0 readme; chmod 1777 src; chmod 500 src/deep",
    "closed": "mkdir closed; echo x > closed/x; chmod 0 closed/x closed src/deep/data src/deep src; chmod 0 /workspace",
    "links": "rm link; ln -s /etc/passwd link; ln -s ../.. src/up; ln -s readme again",
    "a file becomes a folder": "rm readme; mkdir readme; echo x > readme/x; rm link; mkdir link",
    "a folder becomes a file": "rm -r src; echo x > src; rmdir empty; ln -s readme empty",
    "hard links": "ln readme second; ln readme src/third; echo more >> readme; ln run.sh other; rm run.sh",
    "renames": "mv src renamed; mv renamed/deep/data data; mv readme readme2; mv run.sh readme",
    "odd names": "touch $'new\\nline' $'\\xff\\xfe' 'ünï' ' ' '*' '-rf' $'tab\\t'; mkdir $'d\\n'; touch $'d\\n/x'",
    "ignored": "echo build > .gitignore; mkdir build; echo x > build/x; git init -q .; git init -q nested",
    "special": "mkfifo pipe; rm link; mkfifo link",
    "sparse": "truncate -s 80M sparse; printf end >> sparse; truncate -s 30M src/deep/data",
    "times": "touch -d @1 readme src; echo x > new; touch -h -d @-1.5 link",
    "large": "head -c 8000000 /dev/urandom > large",
    "attributes": f"{ATTRIBUTES} 'user.a=1' readme src empty; {ATTRIBUTES} 'user.ö\\n=' run.sh; chmod 400 readme",
    "rights": f"{RIGHTS} readme; {RIGHTS} src default; {RIGHTS} empty; chmod 640 src/main.py; {RIGHTS} src/main.py",
    "nested deep": "p=d; for i in $(seq 150); do p=$p/d; done; mkdir -p $p; echo x > $p/x",
}


@pytest.mark.parametrize("what", CHANGES)
async def test_undo_brings_the_tree_back_exactly(rig: CheckpointRig, what: str) -> None:
    """Content, modes, links, times, folders: as an independent look from outside says."""
    await rig.checkpoints.undo(0)
    before = await rig.tree()
    assert await rig.change(CHANGES[what]) is not None
    changed = await rig.tree()
    assert changed != before
    reached = await rig.checkpoints.undo()
    assert await rig.tree() == before
    again = await rig.checkpoints.undo(reached.step.number - 1)
    assert await rig.tree() == changed
    await rig.checkpoints.undo(again.step.number - 1)
    assert await rig.tree() == before
