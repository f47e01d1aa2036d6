"""Changes that came from the person's folder itself are told from those of the session, and cannot be passed for."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

import pytest

from sandbox_agent.workspaces.base import Kind
from sandbox_agent.workspaces.snapshot import Delta, Node
from sandbox_agent.workspaces.theirs import theirs

BASE = Node(Kind.FILE, 0o644, 3)


@pytest.fixture
def host(tmp_path: Path) -> Path:
    (tmp_path / "d").mkdir(mode=0o755)
    (tmp_path / "a").write_bytes(b"two")
    (tmp_path / "a").chmod(0o644)
    (tmp_path / "l").symlink_to("a")
    return tmp_path


def seen(host: Path, path: str, **changes: object) -> Node:
    """What a walk through the overlay has of a file of the folder, or nearly that."""
    info = os.lstat(host / path)
    node = Node(Kind.FILE, 0o644, info.st_size, "sha", mtime_ns=info.st_mtime_ns, ctime_ns=info.st_ctime_ns)
    return node._replace(**changes)  # type: ignore[arg-type]


def is_theirs(host: Path, path: str, before: Node | None, after: Node | None) -> bool:
    return path in theirs(host, [Delta(path, "x", before, after)])


def test_a_file_that_the_folder_has_just_so_is_theirs(host: Path) -> None:
    """By the time of its last change, which only the kernel sets."""
    assert is_theirs(host, "a", BASE, seen(host, "a"))
    assert is_theirs(host, "a", None, seen(host, "a"))


@pytest.mark.parametrize(
    "changes", [{"size_bytes": 4}, {"mtime_ns": 1}, {"ctime_ns": 1}, {"mode": 0o755}, {"ctime_ns": 0, "sha256": "no"}]
)
def test_a_file_that_differs_in_anything_is_the_sessions(host: Path, changes: dict[str, object]) -> None:
    """Also one whose size and time were made to look the same just now: its content is compared."""
    assert not is_theirs(host, "a", BASE, seen(host, "a", **changes))


def test_a_file_seen_just_after_it_changed_is_theirs_by_its_content(host: Path) -> None:
    """Its time of change proves nothing yet."""
    sha256 = hashlib.sha256(b"two").hexdigest()
    assert is_theirs(host, "a", BASE, seen(host, "a", ctime_ns=0, sha256=sha256))


def test_folders_and_links_are_compared_by_what_they_are(host: Path) -> None:
    """A folder by its mode, a link by its text."""
    assert is_theirs(host, "d", None, Node(Kind.DIRECTORY, 0o755))
    assert not is_theirs(host, "d", None, Node(Kind.DIRECTORY, 0o700))
    assert is_theirs(host, "l", None, Node(Kind.LINK, 0o777, target="a"))
    assert not is_theirs(host, "l", None, Node(Kind.LINK, 0o777, target="b"))
    assert not is_theirs(host, "missing", None, Node(Kind.DIRECTORY, 0o755))


def test_what_went_from_the_folder_was_taken_by_them_only_if_it_was_the_folders(host: Path) -> None:
    """What the session had made was never there; what is there still, only the session can have hidden."""
    assert is_theirs(host, "gone", BASE, None)
    assert is_theirs(host, "gone/below", BASE, None)
    assert not is_theirs(host, "gone", BASE._replace(sha256="own"), None)
    assert not is_theirs(host, "a", BASE, None)


def test_a_folder_that_cannot_be_looked_at_excuses_nobody(tmp_path: Path) -> None:
    """Then all changes count as the session's."""
    assert theirs(tmp_path / "gone", [Delta("a", "deleted", BASE, None)]) == frozenset()
