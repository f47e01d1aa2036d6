"""The digest that a copy makes on its way: of the whole file, whatever its size and holes."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from sandbox_agent.workspaces import content
from sandbox_agent.workspaces.content import digest, transfer


@pytest.mark.parametrize("size", [0, 1, 65536, 1048577, 3 * 1048576])
def test_the_digest_is_sha256_of_what_was_copied(tmp_path: Path, size: int) -> None:
    """Dense and sparse files below the limit have the SHA-256 that everybody computes."""
    data = b"".join(hashlib.sha256(b"%d" % n).digest() for n in range(size // 32 + 1))[:size]
    (tmp_path / "dense").write_bytes(data)
    with open(tmp_path / "holey", "wb") as file:
        file.truncate(size + 300_000)
        file.seek(200_000)
        file.write(data)

    for name in ("dense", "holey"):
        with open(tmp_path / name, "rb") as source, open(tmp_path / f"{name}.copy", "wb+") as target:
            whole = hashlib.sha256((tmp_path / name).read_bytes()).hexdigest()
            assert transfer(source.fileno(), target.fileno()).sha256 == whole
            assert digest(target.fileno()).sha256 == whole
            assert (tmp_path / f"{name}.copy").read_bytes() == (tmp_path / name).read_bytes()


def test_the_digest_of_large_files_does_not_depend_on_holes(tmp_path: Path) -> None:
    """Written zeros and holes are the same content; another byte or another length is not."""
    digests = []
    for number, (length, byte, written) in enumerate(
        [(0, b"x", False), (0, b"x", True), (1, b"x", False), (0, b"y", False)]
    ):
        with open(tmp_path / str(number), "wb+") as file:
            file.write(b"\0" * 1_000_000 if written else b"")
            file.seek(5_000_000)
            file.write(byte)
            file.truncate(content.LARGE_BYTES + length)
            digests.append(digest(file.fileno()).sha256)

    assert digests[0] == digests[1]
    assert len(set(digests)) == 3
