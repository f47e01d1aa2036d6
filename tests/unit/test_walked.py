"""A walk's bytes come from where tools run: they become nodes within bounds, or nothing, or one error."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sandbox_agent.errors import WorkspaceError
from sandbox_agent.workspaces.base import Kind
from sandbox_agent.workspaces.inside.walk import MAX_ENTRIES
from sandbox_agent.workspaces.snapshot import Node, snapshot_of
from sandbox_agent.workspaces.walked import (
    EMPTY_SHA256,
    MalformedWalkError,
    Seen,
    TooManyEntriesError,
    compare,
    file_node,
    nodes_of,
    parse,
    parse_gone,
)

ROOT = b"d 755 7 7 2 1 0 5.0000000000 6.0000000000 \0\0"


def record(path: bytes, letter: bytes = b"f", size: int = 3, mode: bytes = b"644", ctime: bytes = b"9.5") -> bytes:
    return b"%b %b 7 7 1 11 %d 8.0000000010 %b %b" % (letter, mode, size, ctime, path)


def walk(*records: bytes) -> bytes:
    return ROOT + b"".join(one if b"\0" in one else one + b"\0\0" for one in records)


def test_a_record_becomes_a_node() -> None:
    """Every field at its place; the content is the base's."""
    nodes, skipped = nodes_of(parse(walk(record(b"a b\nc", mode=b"4755"))), {})
    assert skipped == 0
    assert nodes["a b\nc"] == Node(
        Kind.FILE, 0o4755, 3, mtime_ns=8_000_000_001, uid=7, gid=7, inode=11, links=1, ctime_ns=9_500_000_000
    )
    assert nodes[""].kind is Kind.DIRECTORY


def test_times_before_1970_are_seconds_rounded_down_and_a_fraction() -> None:
    """As `find` prints them."""
    node = file_node(b"f 644 7 7 1 11 3 -2.5000000000 -1.0000000000 ")
    assert node is not None
    assert (node.mtime_ns, node.ctime_ns) == (-1_500_000_000, -1_000_000_000)


@pytest.mark.parametrize(
    "path",
    [b"/etc/passwd", b"..", b"a/../../b", b"a//b", b".", b"a/.", b"missing/b", b"a/b", b"x" * 4001],
    ids=lambda path: path[:20].decode(),
)
def test_a_path_that_leads_elsewhere_is_no_entry(path: bytes) -> None:
    """Nor is one whose folder is not there, or is a file."""
    nodes, skipped = nodes_of(parse(walk(record(b"a"), record(path))), {})
    assert (nodes.keys(), skipped) == ({"", "a"}, 1)


@pytest.mark.parametrize(
    "text",
    [
        b"f 644 7 7 1 11 3 8.0 9.0",
        b"f x 7 7 1 11 3 8.0 9.0 a",
        b"f 77777 7 7 1 11 3 8.0 9.0 a",
        b"f 644 -7 7 1 11 3 8.0 9.0 a",
        b"f 644 7 7 1 11 -3 8.0 9.0 a",
        b"f 644 7 7 1 11 3 8 9.0 a",
        b"f 644 7 7 1 11 3 8.x 9.0 a",
        b"f 644 7 7 1 11 %b 8.0 9.0 a" % (b"9" * 5000),
        b"q 644 7 7 1 11 3 8.0 9.0 a",
        b"l 644 7 7 1 11 3 8.0 9.0 a",
        b"f 644 7 7 1 11 3 8.0 9.0 a\0target\0",
        b"",
    ],
)
def test_a_record_that_is_none_is_skipped(text: bytes) -> None:
    """Whatever is wrong with it, the others stand."""
    nodes, skipped = nodes_of(parse(walk(text)), {})
    assert (nodes.keys(), skipped) == ({""}, 1)


@pytest.mark.parametrize("data", [walk(record(b"a"))[:-1], ROOT[:-1], b"x", walk(record(b"a")) + b"y"])
def test_a_walk_that_is_cut_is_no_walk(data: bytes) -> None:
    """Half an entry would be a path that nobody has."""
    with pytest.raises(MalformedWalkError):
        parse(data)


@pytest.mark.parametrize("read", [parse, parse_gone])
def test_too_many_entries_are_counted_before_they_are_taken_apart(read: Callable[[bytes], object]) -> None:
    """Bytes that stand for next to nothing each would take many times their size."""
    data = b"\0" * (3 * MAX_ENTRIES)
    tracemalloc.start()
    try:
        with pytest.raises(TooManyEntriesError):
            read(data)
        assert tracemalloc.get_traced_memory()[1] < 1024 * 1024
    finally:
        tracemalloc.stop()


def test_a_walk_without_the_workspace_is_no_walk() -> None:
    """It would mean that everything is gone."""
    last = snapshot_of(nodes_of(parse(walk(record(b"a"))), {})[0])
    with pytest.raises(MalformedWalkError):
        compare({}, None, last)


def nodes_or_error(data: bytes) -> None:
    """Nothing else comes of bytes, and every path is plain."""
    try:
        nodes, _ = nodes_of(parse(walk(record(b"a")) + data), {})
        parse_gone(data)
    except WorkspaceError:
        return
    assert all(path == "" or not {"", ".", ".."} & set(path.split("/")) for path in nodes)


@settings(max_examples=200)
@given(st.binary(max_size=300))
def test_any_bytes_are_nodes_or_one_error(data: bytes) -> None:
    """Whatever a tool makes of a walk."""
    nodes_or_error(data)


@settings(max_examples=200)
@given(st.lists(st.sampled_from([b"f", b"d", b"l", b" ", b"644", b"7", b"a", b"/", b"..", b"8.0", b"\0", b"\xff"])))
def test_any_records_are_nodes_or_one_error(pieces: list[bytes]) -> None:
    """Bytes that are nearly records, too."""
    nodes_or_error(b"".join(pieces))


def last_of(*records: bytes) -> Seen:
    return compare(parse(walk(*records)), None, LAST)


LAST = snapshot_of(
    nodes_of(parse(walk(record(b"d", b"d"), record(b"d/a"), record(b"b"), record(b"l\0x\0", b"l"))), {})[0]
)


def test_a_file_with_another_stamp_is_to_be_read() -> None:
    """And one with the same stamp is not."""
    seen = last_of(record(b"d", b"d"), record(b"d/a", ctime=b"10.5"), record(b"b"), record(b"l\0x\0", b"l"))
    assert (seen.fetch.keys(), seen.nodes, seen.removed) == ({"d/a"}, {}, [])


def test_what_is_gone_is_removed_with_all_below() -> None:
    """A folder takes its entries along."""
    seen = last_of(record(b"b"))
    assert (seen.fetch, seen.nodes, seen.removed) == ({}, {}, ["d", "d/a", "l"])


def test_an_empty_file_need_not_be_read() -> None:
    """Its content is known."""
    seen = last_of(record(b"d", b"d"), record(b"d/a"), record(b"b", size=0), record(b"l\0x\0", b"l"))
    assert (seen.fetch, {path: node.sha256 for path, node in seen.nodes.items()}) == ({}, {"b": EMPTY_SHA256})


def test_only_what_is_told_as_gone_is_gone_in_a_walk_since_the_last() -> None:
    """All others are as they were."""
    seen = compare(parse(record(b"d/new") + b"\0\0"), {"b", "never there"}, LAST)
    assert (seen.fetch.keys(), seen.removed, seen.skipped) == ({"d/new"}, ["b"], 0)
