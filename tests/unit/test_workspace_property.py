"""Random folders and random changes: what is applied equals the copy, and what is not applied changes nothing."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from workspace_trees import FOLDER, Link, Program, Shape, gist, grow, kinds, picture, started

from sandbox_agent.workspaces.copy import CopyWorkspace
from sandbox_agent.workspaces.opening import reopen

NAMES = st.sampled_from(["a", "b", "c d", "-rf", "new\nline", "ünï", "\udcff\udcfe", ".hidden"])
PATHS = st.lists(NAMES, min_size=1, max_size=3).map("/".join)
CONTENTS = st.one_of(
    st.sampled_from([FOLDER, b"", b"text\n", b"\0\1\2", b"x" * 300_000]),
    st.binary(max_size=8).map(Program),
    st.sampled_from(["a", "../../out", "/etc/passwd", "."]).map(Link),
    st.binary(max_size=30),
)
SHAPES = st.dictionaries(PATHS, CONTENTS, max_size=8)
GIT: Shape = {".git/HEAD": b"ref", ".git/hooks/x": b""}
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("make"), PATHS, CONTENTS),
        st.tuples(st.just("make"), st.sampled_from([".git/config", "a/.git/HEAD"]), CONTENTS),
        st.tuples(st.just("remove"), PATHS, st.none()),
        st.tuples(st.just("move"), PATHS, PATHS),
        st.tuples(st.just("move"), st.just(".git"), PATHS),
        st.tuples(st.just("hard link"), PATHS, PATHS),
        st.tuples(st.just("chmod"), PATHS, st.sampled_from([0o000, 0o644, 0o700, 0o4755])),
        st.tuples(st.just("fifo"), st.one_of(st.just("pipe"), PATHS), st.none()),
    ),
    max_size=12,
)
THOROUGH = settings(max_examples=60, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])


def plant(root: Path, shape: Shape) -> None:
    """As much of the shape as fits together: a path below a file is left out."""
    for path, what in shape.items():
        try:
            if not os.path.lexists(root / path):
                grow(root, {path: what})
        except OSError:
            continue


def act(root: Path, verb: str, path: str, argument: object) -> None:
    """One change as a shell would make it; what is impossible here does not happen."""
    target = root / path
    try:
        if verb == "make":
            if target.is_symlink():
                target.unlink()
            grow(root, {path: argument})  # type: ignore[dict-item]
        elif verb == "remove":
            shutil.rmtree(target) if target.is_dir() and not target.is_symlink() else target.unlink()
        elif verb == "move":
            target.rename(root / str(argument))
        elif verb == "hard link":
            os.link(target, root / str(argument), follow_symlinks=False)
        elif verb == "chmod" and not target.is_symlink() and target.is_file():
            target.chmod(int(str(argument)))
        elif verb == "fifo":
            os.mkfifo(target, 0o644)
    except OSError:
        return


def through_link(root: Path, path: str) -> bool:
    parts = path.split("/")[:-1]
    return any((root / "/".join(parts[:count])).is_symlink() for count in range(1, len(parts) + 1))


@contextmanager
def session(shape: Shape, steps: list[tuple[str, str, object]]) -> Iterator[tuple[CopyWorkspace, Path]]:
    """A copy of a random folder in which random things happened; only the copy and its links' own names are touched."""
    # In memory where possible: every applied file is forced to disk, which is most of the time of this test.
    with tempfile.TemporaryDirectory(dir="/dev/shm" if os.access("/dev/shm", os.W_OK) else None) as name:
        base = Path(name).resolve()
        plant(grow(base / "host", GIT), shape)
        workspace = started(base, {})
        for verb, path, argument in steps:
            if any(through_link(workspace.source, way) for way in (path, argument) if isinstance(way, str)):
                continue  # a link may lead out of the test's folder; in the container that is another place
            act(workspace.source, verb, path, argument)
        yield workspace, base / "state"
        for file in workspace.source.rglob("*"):
            if file.is_dir() and not file.is_symlink():
                file.chmod(0o700)


def comparable(root: Path) -> dict[str, object]:
    """What a review brings over, without git's folders."""
    for path in root.rglob("*"):
        if path.is_file() and not path.is_symlink():
            path.chmod(path.stat().st_mode | 0o400)
    return {p: what for p, what in gist(root).items() if ".git" not in p.split("/")}


@THOROUGH
@given(SHAPES, STEPS)
def test_what_is_applied_equals_the_copy(shape: Shape, steps: list[tuple[str, str, object]]) -> None:
    """With every path named the folder ends as the copy, and git's own folder as it was."""
    with session(shape, steps) as (workspace, _):
        git = {p: what for p, what in gist(workspace.host).items() if p.split("/")[0] == ".git"}
        outcome = workspace.apply(list(kinds(workspace.changes())))

        assert outcome.conflicts == {}
        assert comparable(workspace.host) == comparable(workspace.source)
        assert {p: what for p, what in gist(workspace.host).items() if p.split("/")[0] == ".git"} == git


@THOROUGH
@given(SHAPES, STEPS)
def test_a_review_and_an_empty_choice_touch_nothing(shape: Shape, steps: list[tuple[str, str, object]]) -> None:
    """Looking, applying nothing and discarding leave the folder the same to the byte, times and modes too."""
    with session(shape, steps) as (workspace, _):
        before = picture(workspace.host)
        paths = set(kinds(workspace.changes()))

        assert set(workspace.apply([]).unapplied) == paths
        assert picture(workspace.host) == before


@THOROUGH
@given(SHAPES, STEPS, st.randoms(use_true_random=False))
def test_applying_in_pieces_ends_the_same(shape: Shape, steps: list[tuple[str, str, object]], random: object) -> None:
    """Some first, the rest by another process: nothing is lost or done twice, and only links had to be named."""
    with session(shape, steps) as (workspace, state):
        paths = sorted(kinds(workspace.changes()))
        workspace.apply([path for path in paths if random.random() < 0.5])  # type: ignore[attr-defined]
        again = reopen(state)
        again.apply(list(kinds(again.changes())))

        assert comparable(workspace.host) == comparable(workspace.source)
        assert reopen(state).changes() == ()
