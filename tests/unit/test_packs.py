"""Many small contents in one file: as good as a file each, and a damaged one gives out nothing wrong."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

import pytest

from sandbox_agent.errors import WorkspaceError
from sandbox_agent.workspaces.store import BATCH_BYTES, SMALL_BYTES, Batch, Store

MANY = [b"content %d" % number for number in range(300)]


def put(batch: Batch, data: bytes, limit_bytes: float = SMALL_BYTES) -> str | None:
    kept = batch.put(data, limit_bytes)
    return kept.sha256 if kept is not None else None


def filled(folder: Path, contents: list[bytes]) -> tuple[Store, list[str]]:
    store = Store(folder)
    with store.batch() as batch:
        names = [put(batch, data) or "" for data in contents]
    return store, names


def files(store: Store) -> list[Path]:
    return sorted(path for path in store.folder.rglob("*") if path.is_file())


def test_a_batch_is_one_file_and_every_content_is_found(tmp_path: Path) -> None:
    """By this store and by one that is opened later, as bytes and as a descriptor."""
    store, names = filled(tmp_path / "store", MANY)
    assert len(files(store)) == 1
    for each in (store, Store(store.folder)):
        assert [each.read(name, 100) for name in names] == MANY
        assert all(each.has(name) for name in names)
    with store.open(names[7]) as fd:
        assert os.read(fd, 100) == MANY[7]


def test_a_reader_finds_what_came_after_it_was_opened(tmp_path: Path) -> None:
    """A review may look while the session goes on."""
    store, _ = filled(tmp_path / "store", MANY)
    reader = Store(store.folder)
    assert not reader.has("0" * 64)
    with store.batch() as batch:
        names = [put(batch, b"later"), put(batch, b"much later")]
    assert [reader.read(name or "", 100) for name in names] == [b"later", b"much later"]


def test_what_is_there_is_not_added_again(tmp_path: Path) -> None:
    """Neither from the same batch, nor from a pack, nor from a file of its own."""
    store, _ = filled(tmp_path / "store", MANY)
    store.put(b"alone")
    before = files(store)
    with store.batch() as batch:
        added = [kept.added_bytes for data in (b"alone", MANY[3], b"new", b"new") if (kept := batch.put(data))]
    assert added == [0, 0, 3, 0]
    assert len(files(store)) == len(before) + 1


def test_what_is_more_than_may_be_added_is_refused(tmp_path: Path) -> None:
    """But not what is there already."""
    store, _ = filled(tmp_path / "store", MANY)
    with store.batch() as batch:
        assert put(batch, b"too long", 7) is None
        assert put(batch, MANY[0], 0) is not None
    assert not store.has(hashlib.sha256(b"too long").hexdigest())


def test_nothing_of_a_batch_stays_when_an_error_ends_it(tmp_path: Path) -> None:
    """What was told of it is not known to be whole."""
    store = Store(tmp_path / "store")
    with pytest.raises(TypeError), store.batch() as batch:
        assert [put(batch, data) for data in (b"one", "no bytes")]  # type: ignore[arg-type]
    assert not store.folder.exists()


def test_a_batch_is_not_kept_in_memory_without_end(tmp_path: Path) -> None:
    """What comes early is written before the end."""
    store = Store(tmp_path / "store")
    with store.batch() as batch:
        name = put(batch, b"first")
        for number in range(BATCH_BYTES // SMALL_BYTES + 1):
            put(batch, number.to_bytes(4, "big") * (SMALL_BYTES // 4))
        assert store.has(name or "")


@pytest.mark.parametrize("cut_bytes", [1, 20, 200, 10**9])
def test_a_pack_that_was_cut_has_nothing(tmp_path: Path, cut_bytes: int) -> None:
    """As a power failure leaves it: the contents are missing, and come again with the next batch."""
    store, names = filled(tmp_path / "store", MANY)
    (pack,) = files(store)
    os.truncate(pack, max(0, pack.stat().st_size - cut_bytes))
    again = Store(store.folder)
    with pytest.raises(WorkspaceError, match="not in the session's store"):
        again.read(names[0], 100)
    with again.batch() as batch:
        put(batch, MANY[0])
        put(batch, MANY[1])
    assert again.read(names[0], 100) == MANY[0]


def test_a_damaged_content_in_a_pack_is_not_given_out(tmp_path: Path) -> None:
    """The others in the pack are."""
    store, names = filled(tmp_path / "store", MANY)
    (pack,) = files(store)
    pack.write_bytes(pack.read_bytes().replace(MANY[200], MANY[200].upper()))
    with pytest.raises(WorkspaceError, match="damaged"):
        store.read(names[200], 100)
    with pytest.raises(WorkspaceError, match="damaged"), store.open(names[200]):
        pass
    assert store.read(names[199], 100) == MANY[199]


@pytest.mark.parametrize("tail", [b"", b"\xff" * 60, b"\0" * 60, (8).to_bytes(8, "big") + b"sbx-pack"])
def test_a_file_that_is_no_pack_has_nothing(tmp_path: Path, tail: bytes) -> None:
    """Whatever stands at its end."""
    store, names = filled(tmp_path / "store", MANY)
    (pack,) = files(store)
    pack.write_bytes(b"x" * 50 + tail)
    assert not Store(store.folder).has(names[0])


def test_a_pack_is_shared_by_one_link(tmp_path: Path) -> None:
    """However many of its contents are asked for; nothing is copied, and both go on by themselves."""
    store, names = filled(tmp_path / "store", MANY)
    other, _ = filled(tmp_path / "other", [b"mine", b"my own"])
    for name in names:
        store.share(name, other)
    assert len(files(other)) == 2
    assert files(other)[1].stat().st_ino == files(store)[0].stat().st_ino
    store.discard()
    assert not store.has(names[0])
    assert Store(other.folder).read(names[0], 100) == MANY[0]


def test_only_the_owner_may_look_into_packs(tmp_path: Path) -> None:
    """Folders are 0700, packs 0600, and what a killed writer left is swept."""
    store, names = filled(tmp_path / "store", MANY)
    (store.folder / "part-0").write_bytes(b"half")
    store.sweep()
    (pack,) = files(store)
    assert [pack.stat().st_mode & 0o777, pack.parent.stat().st_mode & 0o777] == [0o600, 0o700]
    assert store.size_bytes() == pack.stat().st_blocks * 512
    assert store.has(names[0])
