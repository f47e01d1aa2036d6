"""What comes out of the sandbox as a bundle is checked before it is believed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, cast

import pytest

from sandbox_agent.engine.exporting import Commits, Exporter
from sandbox_agent.errors import ConfigError, SandboxError
from sandbox_agent.sandboxes.base import Sandbox

A = "a" * 40
COMMITS = Commits("", {"refs/heads/main": A, "HEAD": A}, ("b" * 40,), 1)
GOOD = f"# v2 git bundle\n-{'b' * 40} first\n{A} refs/heads/main\n{A} HEAD\n\nPACK...".encode()


class Says:
    """A sandbox whose every program says these bytes, a few at a time, and ends with this code."""

    def __init__(self, data: bytes, code: int = 0) -> None:
        self.chunks = [data[start : start + 7] for start in range(0, len(data), 7)]
        self.code = code
        self.heard = b""
        self.argv: Sequence[str] = ()

    async def open(self, argv: Sequence[str], *, cwd: str | None = None, env: Mapping[str, str] | None = None) -> Says:
        self.argv = argv
        return self

    async def send(self, data: bytes) -> None:
        self.heard += data

    async def send_eof(self) -> None:
        pass

    async def receive(self) -> bytes:
        return self.chunks.pop(0) if self.chunks else b""

    async def exit_code(self) -> int:
        return self.code

    async def aclose(self) -> None:
        pass


def exporter(box: Any, folder: Path) -> Exporter:
    return Exporter(cast(Sandbox, box), folder, "")


async def test_a_bundle_of_what_was_asked_for_is_written(tmp_path: Path) -> None:
    """git is asked for the changed refs without what there was before."""
    box = Says(GOOD)
    size = await exporter(box, tmp_path).bundle(COMMITS, tmp_path / "x.bundle")

    assert (size, (tmp_path / "x.bundle").read_bytes()) == (len(GOOD), GOOD)
    assert box.heard == f"refs/heads/main\nHEAD\n^{'b' * 40}\n".encode()
    assert oct((tmp_path / "x.bundle").stat().st_mode & 0o777) == "0o644"


@pytest.mark.parametrize(
    ("data", "code"),
    [
        (b"", 0),
        (b"#!/bin/sh\nrm -rf /\n\n", 0),
        (GOOD.replace(b"refs/heads/main", b"refs/heads/other"), 0),
        (GOOD.replace(b"refs/heads/main", b"refs/heads/main\x1b[2J"), 0),
        (GOOD.split(b"\n\n")[0], 0),
        (b"# v2 git bundle\n\nPACK", 0),
        (GOOD, 128),
    ],
)
async def test_anything_else_leaves_no_file(tmp_path: Path, data: bytes, code: int) -> None:
    """Another head, other refs, no refs, no end, or a git that failed."""
    with pytest.raises(SandboxError, match="nothing was written"):
        await exporter(Says(data, code), tmp_path).bundle(COMMITS, tmp_path / "x.bundle")

    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("link", [True, False])
async def test_a_file_that_is_there_is_not_replaced(tmp_path: Path, link: bool) -> None:
    """Nor is a link followed, dangling or not."""
    target = tmp_path / "x.bundle"
    target.symlink_to("elsewhere") if link else target.write_text("mine")
    with pytest.raises(ConfigError, match="is there already"):
        await exporter(Says(GOOD), tmp_path).bundle(COMMITS, target)

    assert not (tmp_path / "elsewhere").exists()
    assert link or target.read_text() == "mine"
