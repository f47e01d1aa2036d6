"""Snapshots are values: what is compared, what is not, and the way to bytes and back."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sandbox_agent.workspaces.base import Kind
from sandbox_agent.workspaces.snapshot import Delta, Node, diff, pack, snapshot_of, unpack

A, B = "a" * 64, "b" * 64
NAMES = st.text(st.characters(exclude_characters="/\0", max_codepoint=0x2FFF), min_size=1, max_size=8)
PATHS = st.lists(NAMES | st.just("\udcff\udc80\n"), min_size=1, max_size=3).map("/".join)
NODES = st.builds(
    Node,
    st.sampled_from(list(Kind)),
    st.integers(0, 0o7777),
    st.integers(0, 2**62),
    st.none() | st.just(A),
    st.none() | NAMES,
    mtime_ns=st.integers(-(2**62), 2**62),
    inode=st.integers(1, 5),
    links=st.integers(1, 2),
)


def file(sha256: str | None = None, mode: int = 0o644, **more: int) -> Node:
    return Node(Kind.FILE, mode, 1, sha256, **more)  # type: ignore[arg-type]


@settings(max_examples=60)
@given(st.dictionaries(PATHS, NODES, max_size=8), st.lists(PATHS, max_size=3))
def test_packed_nodes_come_back_as_they_were(nodes: dict[str, Node], removed: list[str]) -> None:
    """Any name and any node survives the way to disk."""
    assert unpack(pack(nodes, removed)) == (nodes, tuple(removed))


@settings(max_examples=60)
@given(st.dictionaries(PATHS, NODES, max_size=8), st.dictionaries(PATHS, NODES, max_size=8))
def test_a_changed_snapshot_is_the_snapshot_of_the_changed_nodes(
    before: dict[str, Node], after: dict[str, Node]
) -> None:
    """Going by changes ends at the same value, groups and hash included, as starting from all nodes."""
    gone = before.keys() - after.keys()
    moved = snapshot_of(before).changed(after, gone)
    assert moved == snapshot_of(after)
    assert moved.lines == snapshot_of(after).lines


@settings(max_examples=60)
@given(st.dictionaries(PATHS, NODES, max_size=8), st.dictionaries(PATHS, NODES, max_size=8))
def test_trees_without_a_difference_have_the_same_hash_and_no_others(
    before: dict[str, Node], after: dict[str, Node]
) -> None:
    """The hash says exactly what the comparison says."""
    one, two = snapshot_of(before), snapshot_of(after)
    assert (one.tree_sha256 == two.tree_sha256) == (not diff(one, two))


def test_every_sort_of_difference_has_its_name() -> None:
    """Content, mode, sort, link target, owner, attributes, hard links, coming and going are told apart."""
    before = {
        "content": file(A),
        "mode": file(A),
        "type": file(A),
        "link": Node(Kind.LINK, 0o777, target="x"),
        "gone": file(A),
        "same": file(A),
        "owner": file(A),
        "attributes": file(A),
        "one": file(A, inode=7, links=2),
        "two": file(A, inode=7, links=2),
        "fifo": Node(Kind.OTHER, 0o600, target="p"),
    }
    after = {
        "content": file(B),
        "mode": file(A, mode=0o4755),
        "type": Node(Kind.DIRECTORY, 0o755),
        "link": Node(Kind.LINK, 0o777, target="y"),
        "new": file(),
        "same": file(A, mtime_ns=5, inode=9, ctime_ns=8),
        "owner": file(A, gid=3, attributes="61=62"),
        "attributes": file(A, attributes="61=62"),
        "one": file(A, inode=7),
        "two": file(A, inode=8),
        "fifo": Node(Kind.OTHER, 0o600, target="s"),
    }
    found = [(delta.path, delta.kind) for delta in diff(snapshot_of(before), snapshot_of(after))]
    assert found == [
        ("attributes", "attributes"),
        ("content", "modified"),
        ("fifo", "type"),
        ("gone", "deleted"),
        ("link", "link"),
        ("mode", "mode"),
        ("new", "added"),
        ("one", "group"),
        ("owner", "owner"),
        ("two", "group"),
        ("type", "type"),
    ]


def test_hard_links_are_one_group_whatever_their_inode() -> None:
    """The same grouping under other inodes is the same tree."""
    one = snapshot_of({"a": file(A, inode=7, links=2), "b": file(A, inode=7, links=2)})
    two = snapshot_of({"a": file(A, inode=9, links=2), "b": file(A, inode=9, links=2)})
    apart = snapshot_of({"a": file(A, inode=1), "b": file(A, inode=2)})
    assert one.tree_sha256 == two.tree_sha256
    assert [delta.kind for delta in diff(one, apart)] == ["group"] * 2


def test_a_link_from_outside_makes_no_group() -> None:
    """A file whose other names lie elsewhere is alone in this tree."""
    assert snapshot_of({"a": file(A, inode=7, links=2)}).nodes["a"].group is None


def test_the_bases_content_is_not_the_same_as_any_named_content() -> None:
    """None names the content that the path had at first, whatever that was."""
    delta = diff(snapshot_of({"a": file()}), snapshot_of({"a": file(A)}))
    assert delta == [Delta("a", "modified", file(), file(A))]


@pytest.mark.parametrize("data", [b"", b"not packed", pack({"a": file()})[:-3]])
def test_damaged_bytes_are_one_error(data: bytes) -> None:
    """A step file that was cut or overwritten is known to be."""
    with pytest.raises(ValueError):
        unpack(data)
