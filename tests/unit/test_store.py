"""The store of contents: kept once, whole or not at all, believed only when the hash is right."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

import pytest

from sandbox_agent.errors import WorkspaceError
from sandbox_agent.workspaces.store import Store


def objects(store: Store) -> list[Path]:
    return [path for path in store.folder.rglob("*") if path.is_file()]


def test_a_content_is_kept_once_under_its_hash(tmp_path: Path) -> None:
    """Putting it again changes nothing."""
    store = Store(tmp_path / "store")
    sha256 = store.put(b"text")
    inode = objects(store)[0].stat().st_ino
    assert store.put(b"text") == sha256 == hashlib.sha256(b"text").hexdigest()
    assert [path.stat().st_ino for path in objects(store)] == [inode]
    assert store.read(sha256, 4) == b"text"


def test_only_the_owner_may_look(tmp_path: Path) -> None:
    """Folders are 0700, contents 0600."""
    store = Store(tmp_path / "store")
    store.put(b"secret")
    modes = {path.stat().st_mode & 0o777 for path in (store.folder, *store.folder.iterdir())}
    assert (modes, {path.stat().st_mode & 0o777 for path in objects(store)}) == ({0o700}, {0o600})


def test_a_damaged_content_is_not_given_out(tmp_path: Path) -> None:
    """What is read is what its name says, or an error."""
    store = Store(tmp_path / "store")
    sha256 = store.put(b"text")
    objects(store)[0].write_bytes(b"tExt")
    with pytest.raises(WorkspaceError, match="damaged"):
        store.read(sha256, 100)


def test_a_missing_content_and_a_name_that_is_none_are_errors(tmp_path: Path) -> None:
    """Neither leads anywhere else on the disk."""
    store = Store(tmp_path / "store")
    with pytest.raises(WorkspaceError, match="not in the session's store"):
        store.read("0" * 64, 100)
    with pytest.raises(WorkspaceError, match="no name"):
        store.has("../../../etc/passwd")


def test_a_content_longer_than_asked_for_is_not_read(tmp_path: Path) -> None:
    """The caller's limit holds before memory is used."""
    store = Store(tmp_path / "store")
    sha256 = store.put(b"text")
    with pytest.raises(WorkspaceError, match="4 bytes"):
        store.read(sha256, 3)


def test_pieces_and_holes_make_one_content(tmp_path: Path) -> None:
    """A sparse file takes the space of its data, under the hash of its whole content."""
    store = Store(tmp_path / "store")
    size = 64 * 1024 * 1024
    with store.part() as part:
        part.write(b"end", size - 3)
        part.write(b"start", 0)
        sha256 = part.keep(size)
    assert sha256 == hashlib.sha256(b"start" + bytes(size - 8) + b"end").hexdigest()
    assert store.size_bytes() < 1024 * 1024


def test_what_was_not_kept_is_gone(tmp_path: Path) -> None:
    """A part that is left without `keep` leaves nothing; what a killed writer left is swept."""
    store = Store(tmp_path / "store")
    with store.part() as part:
        part.write(b"half", 0)
    (store.folder / "part-of-a-killed-writer").write_bytes(b"half")
    store.sweep()
    assert objects(store) == []


def test_a_shared_content_outlives_its_first_store(tmp_path: Path) -> None:
    """A fork has what it needs, whatever becomes of the session it came from."""
    one, two = Store(tmp_path / "one"), Store(tmp_path / "two")
    sha256 = one.put(b"text")
    one.share(sha256, two)
    objects(one)[0].unlink()
    assert two.read(sha256, 10) == b"text"


def test_a_huge_sparse_file_is_kept_by_its_blocks(tmp_path: Path) -> None:
    """From 1 GiB on neither hashing nor keeping reads the holes."""
    store = Store(tmp_path / "store")
    source = tmp_path / "source"
    with source.open("wb") as file:
        file.write(b"x")
        file.truncate(1 << 40)
    fd = os.open(source, os.O_RDONLY)
    try:
        content = store.put_file(fd)
    finally:
        os.close(fd)
    assert content.sha256.startswith("blocks:")
    with store.open(content.sha256) as kept:
        assert (os.pread(kept, 2, 0), os.fstat(kept).st_size) == (b"x\0", 1 << 40)
