"""Read, Write and Edit in a real container: what only a real file system shows."""

from __future__ import annotations

import os
import stat
import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from tool_box import ToolBox, call, refused, said, started

from sandbox_agent.tools.edit import TOOL as EDIT
from sandbox_agent.tools.notebook_edit import TOOL as NOTEBOOK_EDIT
from sandbox_agent.tools.read import TOOL as READ
from sandbox_agent.tools.read import WHOLE_BYTES
from sandbox_agent.tools.write import TOOL as WRITE

pytestmark = pytest.mark.docker


@pytest.fixture(scope="module")
async def box(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[ToolBox]:
    async with started(tmp_path_factory.mktemp("files")) as box:
        yield box


async def test_mode_owner_and_hard_link_stay_through_edit_and_write(box: ToolBox) -> None:
    """An executable with two names in a set-gid folder stays all that."""
    await box.make("mkdir d")
    os.chmod(box.workspace / "d", 0o2775)
    await box.make("printf '#!/bin/sh\necho one\n' > d/run.sh; chmod 755 d/run.sh; ln d/run.sh d/run2.sh")
    ctx = box.fresh()
    before = os.stat(box.workspace / "d/run.sh")
    await said(READ, ctx, file_path="d/run.sh")
    await said(EDIT, ctx, file_path="d/run.sh", old_string="one", new_string="two")
    await said(WRITE, ctx, file_path="d/run.sh", content="#!/bin/sh\necho three\n")
    after = os.stat(box.workspace / "d/run.sh")
    assert (after.st_mode, after.st_uid, after.st_gid, after.st_ino) == (
        before.st_mode,
        before.st_uid,
        before.st_gid,
        before.st_ino,
    )
    assert (box.workspace / "d/run2.sh").read_text() == "#!/bin/sh\necho three\n"


async def test_a_notebook_is_edited_in_place(box: ToolBox) -> None:
    """Mode and every other byte stay; what a program changed meanwhile is not written over."""
    await box.make("""printf '{"cells": [{"cell_type": "raw", "source": "a"}],\\r\\n "nbformat": 4}' > n.ipynb""")
    await box.make("chmod 640 n.ipynb")
    ctx = box.fresh()
    await call(READ, ctx, {"file_path": "n.ipynb"})
    await said(NOTEBOOK_EDIT, ctx, notebook_path="n.ipynb", cell_id="cell-0", new_source="b")
    assert (box.workspace / "n.ipynb").read_bytes() == (
        b'{"cells": [{"cell_type": "raw", "source": "b"}],\r\n "nbformat": 4}'
    )
    assert stat.S_IMODE(os.stat(box.workspace / "n.ipynb").st_mode) == 0o640
    await box.make("echo >> n.ipynb")
    assert "has changed since" in await refused(
        NOTEBOOK_EDIT, ctx, notebook_path="n.ipynb", cell_id="cell-0", new_source="c"
    )


async def test_links_out_of_the_workspace_stay_in_the_container(box: ToolBox, tmp_path: Path) -> None:
    """A link to a path of the host means the container's own path."""
    victim, fresh = tmp_path / "victim.txt", tmp_path / "not_yet.txt"
    victim.write_text("original")
    os.symlink(victim, box.workspace / "notes.md")
    os.symlink(fresh, box.workspace / "draft.txt")
    ctx = box.fresh()
    for name in ("notes.md", "draft.txt"):
        await call(WRITE, ctx, {"file_path": name, "content": "OWNED"})
    read = await call(READ, ctx, {"file_path": "notes.md"})
    assert victim.read_text() == "original"
    assert not fresh.exists()
    assert "original" not in str(read.content)


@pytest.mark.parametrize("path", ["/dev/zero", "/dev/null", "pipe", "/proc/self", "/workspace", "sock"])
async def test_what_is_no_regular_file_is_refused_at_once(box: ToolBox, path: str) -> None:
    """Devices, FIFOs, sockets, directories: nothing waits and nothing floods."""
    await box.make(
        "[ -p pipe ] || mkfifo pipe; [ -S sock ] || python3 -c 'import socket; socket.socket(1).bind(\"sock\")'"
    )
    began = time.monotonic()
    await refused(READ, box.fresh(), file_path=path)
    assert time.monotonic() - began < 3


async def test_a_missing_file_names_its_neighbours(box: ToolBox) -> None:
    """From the real folder."""
    await box.make("mkdir -p near; touch near/config.py near/other.txt")
    assert "Did you mean /workspace/near/config.py?" in await refused(READ, box.fresh(), file_path="near/Confg.py")


async def test_a_very_large_file_is_paged(box: ToolBox) -> None:
    """Any page of it, in seconds, without fetching it."""
    await box.make(f"seq 1 5000000 > /tmp/seq.txt; [ $(stat -c %s /tmp/seq.txt) -gt {WHOLE_BYTES} ]")
    began = time.monotonic()
    text = await said(READ, box.fresh(), file_path="/tmp/seq.txt", offset=4_999_999)
    assert text == "4999999\t4999999\n5000000\t5000000"
    text = await said(READ, box.fresh(), file_path="/tmp/seq.txt", limit=2)
    assert text == "1\t1\n2\t2\n\n[Lines 1-2 of 5,000,000. Go on with offset 3.]"
    text = await said(READ, box.fresh(), file_path="/tmp/seq.txt", offset=5_000_001)
    assert "past its end" in text
    assert time.monotonic() - began < 10


async def test_one_line_of_five_megabytes_is_cut_in_time(box: ToolBox) -> None:
    """Under two seconds."""
    await box.make("head -c 5000000 /dev/zero | tr '\\0' x > one.json")
    began = time.monotonic()
    assert "5,000,000 bytes in all" in await said(READ, box.fresh(), file_path="one.json")
    assert time.monotonic() - began < 2


async def test_new_files_belong_to_the_owner_of_the_workspace(box: ToolBox) -> None:
    """And so do new folders."""
    await said(WRITE, box.fresh(), file_path="new/er/file.txt", content="x")
    owner = os.stat(box.workspace)
    for path in ("new", "new/er", "new/er/file.txt"):
        made = os.stat(box.workspace / path)
        assert (made.st_uid, made.st_gid) == (owner.st_uid, owner.st_gid)
    assert stat.S_IMODE(os.stat(box.workspace / "new/er/file.txt").st_mode) & 0o111 == 0


async def test_a_place_outside_what_is_writable_is_refused(box: ToolBox) -> None:
    """The container's own system is read-only."""
    text = await refused(WRITE, box.fresh(), file_path="/usr/bin/evil", content="x")
    assert "read-only" in text or "permission denied" in text
