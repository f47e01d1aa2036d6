"""A plan makes one tree of another, in an order that a file system takes: tried on trees in memory."""

from __future__ import annotations

import string

from hypothesis import given, settings
from hypothesis import strategies as st

from sandbox_agent.workspaces.base import Kind
from sandbox_agent.workspaces.inside import wire
from sandbox_agent.workspaces.plan import plan
from sandbox_agent.workspaces.snapshot import OWN, Node, Snapshot, diff, snapshot_of

FOLDER = Node(Kind.DIRECTORY, 0o755)
NAMES = st.sampled_from(["a", "b", "b c", "c-", "d"])
LEAVES = st.builds(
    Node,
    st.sampled_from([Kind.FILE, Kind.LINK, Kind.OTHER]),
    st.sampled_from([0, 0o644, 0o4755]),
    sha256=st.sampled_from([None, "a" * 64, "b" * 64]),
    mtime_ns=st.integers(0, 3),
    uid=st.sampled_from([OWN, OWN, 0]),
    gid=st.sampled_from([OWN, OWN, 0]),
    attributes=st.sampled_from(["", "61=62"]),
    inode=st.integers(1, 4),
    links=st.integers(1, 2),
).map(
    lambda node: (
        node
        if node.kind is Kind.FILE
        else node._replace(sha256=None, links=1, attributes="", target="p" if node.kind is Kind.OTHER else "x")
    )
)


def _flat(tree: object, path: str, nodes: dict[str, Node]) -> dict[str, Node]:
    if isinstance(tree, dict):
        nodes[path] = FOLDER._replace(mtime_ns=len(tree))
        for name, below in tree.items():
            _flat(below, f"{path}/{name}" if path else name, nodes)
    else:
        assert isinstance(tree, Node)
        nodes[path] = tree
    return nodes


def _linked(nodes: dict[str, Node]) -> Snapshot:
    """Names of one inode have one content and one mode, as they must."""
    firsts: dict[int, Node] = {}
    for path, node in nodes.items():
        if node.links > 1:
            nodes[path] = firsts.setdefault(node.inode, node)
    return snapshot_of(nodes)


BELOW = st.recursive(LEAVES, lambda inner: st.dictionaries(NAMES, inner, max_size=4), max_leaves=10)
TREES = st.dictionaries(NAMES, BELOW, max_size=5).map(lambda tree: _linked(_flat(tree, "", {})))


def carried_out(current: Snapshot, wanted: Snapshot) -> Snapshot:
    """Do what a plan says, as strictly as a file system would."""
    nodes, inode = dict(current.nodes), 100
    for act in plan(current, wanted).acts:
        above = act.path.rpartition("/")[0]
        assert nodes[above].kind is Kind.DIRECTORY
        if act.letter == wire.REMOVE:
            assert act.path in nodes
            nodes = {path: node for path, node in nodes.items() if f"{path}/".find(f"{act.path}/") != 0}
        elif act.letter == wire.ATTRIBUTES:
            assert act.node is not None
            like = nodes[act.path]
            same = [path for path in nodes if path == act.path or (like.links > 1 and nodes[path].inode == like.inode)]
            assert like.uid == act.node.uid or act.node.uid != OWN  # nobody can make another's file their own
            worn = ("mode", "mtime_ns", "uid", "gid", "attributes")
            for path in same if like.kind is Kind.FILE else [act.path]:
                nodes[path] = nodes[path]._replace(**{name: getattr(act.node, name) for name in worn})
            continue
        else:
            assert act.path not in nodes
            inode += 1
            if act.letter == wire.LINK:
                nodes[act.target] = nodes[act.path] = nodes[act.target]._replace(links=2)
            elif act.letter == wire.FILE:
                assert act.node is not None
                mine = act.node._replace(uid=OWN, gid=OWN, attributes="")
                nodes[act.path] = mine._replace(mode=0, group=None, links=1, inode=inode)
            else:
                kinds = {wire.FOLDER: FOLDER, wire.SYMLINK: Node(Kind.LINK, 0, target=act.target)}
                nodes[act.path] = kinds.get(act.letter, Node(Kind.OTHER, 0, target="p"))
        nodes[above] = nodes[above]._replace(mtime_ns=999)
    return snapshot_of(nodes)


@settings(max_examples=150)
@given(TREES, TREES)
def test_a_plan_makes_the_wanted_tree(current: Snapshot, wanted: Snapshot) -> None:
    """Every path with kind, content, mode, owner, links and time; parents before what they hold, nothing in the way."""
    made = carried_out(current, wanted)
    assert diff(made, wanted) == []
    assert {path: node.mtime_ns for path, node in made.nodes.items()} == {
        path: node.mtime_ns for path, node in wanted.nodes.items()
    }


@given(TREES)
def test_nothing_is_done_for_a_tree_that_is_right(tree: Snapshot) -> None:
    """Not even a time is set."""
    assert plan(tree, tree).acts == []


def test_what_is_the_same_is_left_alone() -> None:
    """One changed file among many is one removal, one file, and the attributes of both it and its folder."""
    many = {"": FOLDER, **{name: Node(Kind.FILE, 0o644, 3) for name in string.ascii_letters}}
    wanted = snapshot_of(many)
    current = wanted.changed({"m": Node(Kind.FILE, 0o644, 3, "a" * 64)})
    assert [(act.letter, act.path) for act in plan(current, wanted).acts] == [
        (wire.REMOVE, "m"),
        (wire.FILE, "m"),
        (wire.ATTRIBUTES, "m"),
        (wire.ATTRIBUTES, ""),
    ]


def test_a_socket_cannot_be_made_again() -> None:
    """It is named rather than tried."""
    wanted = snapshot_of({"": FOLDER, "s": Node(Kind.OTHER, 0o755, target="s")})
    made = plan(snapshot_of({"": FOLDER}), wanted)
    assert made.impossible == ["s"]
    assert made.acts == []
