"""Write on a sandbox in memory: new files, known files, and everything that must stay as it is."""

from __future__ import annotations

import pytest

from sandbox_agent.sandboxes.fake import FakeSandbox
from sandbox_agent.testing.tool_calls import HOST_FOLDER, call, context, refused, said
from sandbox_agent.tools.read import TOOL as READ
from sandbox_agent.tools.write import TOOL as WRITE


@pytest.mark.parametrize("path", ["new.txt", "deep/er/new.txt", f"{HOST_FOLDER}/new.txt"])
async def test_a_new_file_is_created_with_its_parents(path: str) -> None:
    """Exactly the given content, and the result says it is new."""
    box = FakeSandbox()
    result = await call(WRITE, context(box), {"file_path": path, "content": "a\r\n\u4e2d\n"})
    [changed] = result.meta["changed"]
    assert box.files.data(changed) == "a\r\n\u4e2d\n".encode()
    assert result.content == f"Created {changed} (2 lines, 7 bytes)."
    assert result.meta["diff"].startswith(f"--- /dev/null\n+++ {changed}\n@@ -0,0 +1,2 @@\n+a")


async def test_an_unread_file_is_not_replaced() -> None:
    """The model must have seen what it throws away."""
    box = FakeSandbox({"/workspace/a.txt": b"precious"})
    assert "Read it first" in await refused(WRITE, context(box), file_path="a.txt", content="x")
    assert box.files.data("/workspace/a.txt") == b"precious"


async def test_a_known_file_is_replaced_and_known_afterwards() -> None:
    """Read, Write and Write again: each builds on the one before."""
    box = FakeSandbox({"/workspace/a.txt": b"one\ntwo\n"})
    ctx = context(box)
    await said(READ, ctx, file_path="a.txt")
    result = await call(WRITE, ctx, {"file_path": "a.txt", "content": "one\nTWO\n"})
    assert result.content == "Updated /workspace/a.txt (2 lines, 8 bytes)."
    assert result.meta["diff"] == ("--- /workspace/a.txt\n+++ /workspace/a.txt\n@@ -1,2 +1,2 @@\n one\n-two\n+TWO\n")
    assert "Updated" in await said(WRITE, ctx, file_path="a.txt", content="three")
    assert box.files.data("/workspace/a.txt") == b"three"


async def test_a_file_that_changed_since_is_not_replaced() -> None:
    """By content; the change stays."""
    box = FakeSandbox({"/workspace/a.txt": b"one"})
    ctx = context(box)
    await said(READ, ctx, file_path="a.txt")
    box.files.put("/workspace/a.txt", b"changed")
    assert "has changed since" in await refused(WRITE, ctx, file_path="a.txt", content="x")
    assert box.files.data("/workspace/a.txt") == b"changed"


async def test_a_file_that_was_only_touched_is_replaced() -> None:
    """Its time does not matter."""
    box = FakeSandbox({"/workspace/a.txt": b"one"})
    ctx = context(box)
    await said(READ, ctx, file_path="a.txt")
    box.files.put("/workspace/a.txt", b"one")
    assert "Updated" in await said(WRITE, ctx, file_path="a.txt", content="x")


async def test_mode_and_hard_link_stay() -> None:
    """An executable stays one, and the other name shows the same content."""
    box = FakeSandbox()
    box.files.put("/workspace/run.sh", b"echo 1\n", 0o755)
    box.files.hard_link("/workspace/run2.sh", "/workspace/run.sh")
    ctx = context(box)
    await said(READ, ctx, file_path="run.sh")
    await said(WRITE, ctx, file_path="run.sh", content="echo 2\n")
    [info] = await box.resolve(["/workspace/run2.sh"])
    assert (info.mode, box.files.data("/workspace/run2.sh")) == (0o755, b"echo 2\n")


async def test_a_dangling_link_makes_its_target() -> None:
    """What is written lies where the container's link leads, and is known there."""
    box = FakeSandbox()
    box.files.symlink("/workspace/draft.txt", "/tmp/not_yet.txt")
    ctx = context(box)
    await said(WRITE, ctx, file_path="draft.txt", content="X")
    assert box.files.data("/tmp/not_yet.txt") == b"X"
    assert list(ctx.known_files) == ["/tmp/not_yet.txt"]


@pytest.mark.parametrize(
    ("path", "why"),
    [("folder", "is a directory"), ("a.txt/b.txt", "a part of it is a file"), ("pipe", "FIFO"), ("x" * 300, "long")],
)
async def test_a_place_that_cannot_be_written_says_why(path: str, why: str) -> None:
    """Each fault of the file system in words."""
    box = FakeSandbox({"/workspace/a.txt": b"x"})
    box.files.mkdir("/workspace/folder")
    box.files.fifo("/workspace/pipe")
    assert why in await refused(WRITE, context(box), file_path=path, content="x")


async def test_a_masked_place_is_not_written() -> None:
    """The mask holds for writing, too."""
    ctx = context(FakeSandbox())
    ctx.masked = lambda path: "*.pem" if path.endswith(".pem") else None
    assert "masked by rule *.pem" in await refused(WRITE, ctx, file_path="k.pem", content="x")


def test_the_subject_is_the_container_path_to_be_written() -> None:
    """What a rule sees is where it goes."""
    ctx = context(FakeSandbox())
    subject = WRITE.subject(WRITE.input_model(file_path=f"{HOST_FOLDER}/a.txt", content="x\ny\n"), ctx)
    assert [(path.path, path.write) for path in subject.paths] == [("/workspace/a.txt", True)]
    assert subject.summary == "/workspace/a.txt (2 lines)"


async def test_one_line_is_called_a_line() -> None:
    """In what people see of the call and in what the model is told."""
    ctx = context(FakeSandbox())
    assert WRITE.subject(WRITE.input_model(file_path="a", content="x\n"), ctx).summary == "/workspace/a (1 line)"
    assert "(1 line, 2 bytes)" in await said(WRITE, ctx, file_path="a", content="x\n")
