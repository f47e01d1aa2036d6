"""Glob patterns and the walk, on a folder of this machine: the same text runs in the container."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from sandbox_agent.tools.globs import compile_glob, expand_braces, matches, newest_files


@pytest.mark.parametrize(
    ("pattern", "path", "expected"),
    [
        ("*.py", "a.py", True),
        ("*.py", "src/a.py", False),
        ("**/*.py", "a.py", True),
        ("**/*.py", "src/deep/a.py", True),
        ("src/**/*.py", "src/a.py", True),
        ("src/**/*.py", "lib/src/a.py", False),
        ("src/**", "src/a/b", True),
        ("src/**", "src", True),
        ("**/test/**/*.py", "a/test/b/c/d.py", True),
        ("**/test/**/*.py", "a/tests/b/d.py", False),
        ("*.{ts,tsx}", "a.tsx", True),
        ("{src,lib}/*.js", "lib/a.js", True),
        ("{src,lib/{a,b}}/*.js", "lib/b/c.js", True),
        ("*.{ts}", "a.ts", False),
        ("*.{ts}", "a.{ts}", True),
        ("a?c", "abc", True),
        ("a?c", "a/c", False),
        ("[ab].c", "b.c", True),
        ("[!ab].c", "b.c", False),
        ("[^ab].c", "c.c", True),
        ("app/[id]/page.tsx", "app/[id]/page.tsx", True),
        ("*", ".hidden", True),
        ("**/*", ".github/workflows/ci.yml", True),
        ("A.py", "a.py", False),
        ("a.py", "axpy", False),
        ("./a.py", "a.py", True),
    ],
)
def test_a_pattern_means_what_people_expect(pattern: str, path: str, expected: bool) -> None:
    """`*` stays in a name, `**` crosses directories, braces and brackets are choices, case counts."""
    assert matches(compile_glob(pattern), path) is expected


def test_a_pattern_made_to_explode_does_not() -> None:
    """Many stars against a long name that almost matches end at once."""
    started = time.monotonic()
    assert not matches(compile_glob("*a" * 60 + "b"), "a" * 250)
    assert not matches(compile_glob("**/a/" * 30 + "b"), "/".join("a" * 1000))
    assert time.monotonic() - started < 2


def test_braces_are_bounded() -> None:
    """A short text cannot stand for a million patterns."""
    with pytest.raises(ValueError, match="more than 512"):
        compile_glob("{a,b}" * 20)


def test_braces_expand_in_order() -> None:
    """Nested ones too; what is not closed is itself."""
    assert expand_braces("a{b,c{d,e}}f{") == ["abf{", "acdf{", "acef{"]


def make(root: Path, *names: str) -> None:
    """Files whose times go up in the order given."""
    for number, name in enumerate(names):
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(name)
        os.utime(path, ns=(0, 10**18 + number * 1000))


def listed(root: Path, pattern: str, limit: int = 100) -> list[str]:
    return newest_files(str(root), pattern, limit, time.monotonic() + 60)[0]


def test_the_newest_come_first(tmp_path: Path) -> None:
    """By time in nanoseconds."""
    make(tmp_path, "old.py", "src/new.py", "src/mid.txt", "newest.py")
    assert listed(tmp_path, "**/*.py") == ["newest.py", "src/new.py", "old.py"]


def test_equal_times_are_ordered_by_path(tmp_path: Path) -> None:
    """So the same tree always gives the same list."""
    make(tmp_path, "b", "a/z", "a.txt", "c")
    for path in tmp_path.rglob("*"):
        os.utime(path, ns=(0, 5))
    assert listed(tmp_path, "**/*") == ["a.txt", "a/z", "b", "c"]


def test_only_files_are_listed_and_git_never(tmp_path: Path) -> None:
    """Hidden files yes, directories no, links to files yes, links to directories are not followed."""
    make(tmp_path, "a", ".git/config", "sub/.git", "sub/.hidden", "node_modules/x")
    (tmp_path / "loop").symlink_to(tmp_path)
    (tmp_path / "link").symlink_to(tmp_path / "a")
    (tmp_path / "dangling").symlink_to(tmp_path / "nosuch")
    os.mkfifo(tmp_path / "pipe")
    assert sorted(listed(tmp_path, "**/*")) == ["a", "link", "node_modules/x", "sub/.hidden"]


def test_the_total_counts_what_is_not_listed(tmp_path: Path) -> None:
    """The list is cut, the count is not."""
    make(tmp_path, *(f"d{n % 7}/{n}.txt" for n in range(150)))
    paths, total, complete, unreadable = newest_files(str(tmp_path), "**/*.txt", 100, time.monotonic() + 60)
    assert (len(paths), total, complete, unreadable) == (100, 150, True, 0)


def test_a_walk_past_its_deadline_says_that_it_is_not_complete(tmp_path: Path) -> None:
    """What was found by then is given."""
    make(tmp_path, "a")
    assert newest_files(str(tmp_path), "*", 100, time.monotonic() - 1)[2] is False


def test_names_that_are_not_utf8_survive(tmp_path: Path) -> None:
    """They come as Python's own stand-ins."""
    (tmp_path / os.fsdecode(b"bad\xff.py")).write_text("x")
    assert listed(tmp_path, "*.py") == ["bad\udcff.py"]
