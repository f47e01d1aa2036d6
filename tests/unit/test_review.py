"""What a review shows: every difference, its diff, and what it may do later on the host."""

from __future__ import annotations

import json
import os
import shutil
import socket
import tomllib
from importlib import resources
from pathlib import Path

import pytest
from workspace_trees import FOLDER, Link, Program, grow, kinds, picture, started

from sandbox_agent import workspaces
from sandbox_agent.workspaces.base import Change, Kind
from sandbox_agent.workspaces.danger import danger_of
from sandbox_agent.workspaces.manifest import Entry, Manifest, in_git
from sandbox_agent.workspaces.review import compare
from sandbox_agent.workspaces.source import Scan

SCRIPT = Program(b"#!/bin/sh\n")


def changes(tmp_path: Path, before: dict[str, object], after: dict[str, object]) -> dict[str, Change]:
    """The review of a copy into which `after` was written over `before`."""
    workspace = started(tmp_path, before)  # type: ignore[arg-type]
    grow(workspace.source, after)  # type: ignore[arg-type]
    return {change.path: change for change in workspace.changes()}


def test_every_kind_of_change_is_named(tmp_path: Path) -> None:
    """Added, modified, deleted, executable bit, other type, other target, FIFO, empty folders."""
    workspace = started(
        tmp_path,
        {"m": b"1", "d": b"1", "x": b"1", "t": b"1", "l": Link("a"), "gone/sub": FOLDER, "full/f": b"", "same": b"s"},
    )
    copy = workspace.source
    for name in ("d", "t", "l"):
        (copy / name).unlink()
    shutil.rmtree(copy / "gone")
    grow(copy, {"m": b"2", "a/b": b"new", "empty/er": FOLDER, "t/inner": b"", "l": Link("b")})
    (copy / "x").chmod(0o700)
    (copy / "same").chmod(0o600)
    os.mkfifo(copy / "full/pipe")

    assert kinds(workspace.changes()) == {
        "a/b": "added",
        "d": "deleted",
        "empty/er": "added",
        "full/pipe": "other",
        "gone/sub": "deleted",
        "l": "link",
        "m": "modified",
        "t": "type",
        "t/inner": "added",
        "x": "mode",
    }


def test_a_change_has_sizes_modes_and_digests_of_both_sides(tmp_path: Path) -> None:
    """The JSON form is complete and plain."""
    change = changes(tmp_path, {"f": b"one\n"}, {"f": Program(b"one\ntwo\n")})["f"]

    assert json.loads(json.dumps(change.as_json())) == {
        "path": "f",
        "kind": "modified",
        "entry": "file",
        "before_sha256": "2c8b08da5ce60398e1f19af0e5dccc744df274b826abe585eaba68c525434806",
        "after_sha256": "c3f9c8c283a2b1f2f1896f27a01cbe3cddc0c9d93f752e4639035a0f5b36f6e8",
        "binary": False,
        "size_before": 4,
        "size_after": 8,
        "mode_before": "0644",
        "mode_after": "0755",
        "danger": "executable",
        "diff": "diff --git a/f b/f\nold mode 100644\nnew mode 100755\n--- a/f\n+++ b/f\n@@ -1 +1,2 @@\n one\n+two\n",
        "note": None,
    }


def test_a_rewrite_with_the_old_size_and_time_is_seen(tmp_path: Path) -> None:
    """Setting the modification time back does not hide a change: the change time cannot be set."""
    workspace = started(tmp_path, {"f": b"good"})
    info = (workspace.source / "f").stat()
    (workspace.source / "f").write_bytes(b"evil")
    os.utime(workspace.source / "f", ns=(info.st_atime_ns, info.st_mtime_ns))

    assert kinds(workspace.changes()) == {"f": "modified"}


def test_writing_the_same_bytes_is_no_change(tmp_path: Path) -> None:
    """A file saved again, replaced by an equal one, or touched is what it was."""
    workspace = started(tmp_path, {"f": b"same", "g": b"same"})
    (workspace.source / "f").write_bytes(b"same")
    (workspace.source / "h").write_bytes(b"same")
    (workspace.source / "h").rename(workspace.source / "g")

    assert workspace.changes() == ()


@pytest.mark.parametrize(
    ("path", "data", "words"),
    [
        (".gitattributes", b"", "git reads it"),
        ("sub/.gitmodules", b"", "git reads it"),
        (".git2/config", b"", "git reads it"),
        (".husky/pre-commit", b"", "hook"),
        ("tools/hooks/post-merge", b"", "hook"),
        (".pre-commit-config.yaml", b"", "pre-commit"),
        (".vscode/tasks.json", b"", "Visual Studio Code"),
        (".idea/workspace.xml", b"", "editor"),
        (".envrc", b"", "shell"),
        (".mcp.json", b"", "MCP"),
        (".claude/settings.json", b"", "AI agent"),
        (".devcontainer/devcontainer.json", b"", "development container"),
        (".github/workflows/ci.yml", b"", "continuous integration"),
        (".gitlab-ci.yml", b"", "continuous integration"),
        ("web/package.json", b"", "npm"),
        ("setup.py", b"", "Python builds"),
        ("pyproject.toml", b"", "Python builds"),
        ("tests/conftest.py", b"", "Python runs it"),
        ("Makefile", b"", "a build runs it"),
        ("bin/x", SCRIPT, "executable"),
        ("l", Link("inside"), "a link to inside"),
        ("l", Link("/etc/passwd"), "may lead out"),
        ("l", Link("a/../../x"), "may lead out"),
    ],
)
def test_what_can_hurt_later_has_a_reason(tmp_path: Path, path: str, data: object, words: str) -> None:
    """Each entry of the danger list says why, whether it is new or changed."""
    assert words in (changes(tmp_path, {}, {path: data})[path].danger or "")


ORDINARY = [
    "src/a.py",
    "README.md",
    "docs/make.md",
    "hooks.py",
    "a.git/x",
    "package.json.md",
    "src/hooks/useTitle.ts",
    ".editorconfig",
    ".dockerignore",
    "pre-commit.md",
    "LICENSE",
    "data.json",
    "tests/test_x.py",
    "sub/Makefile2.txt/x",
    "ﬁle",
    ".pytest_cache/.gitignore",
    "logs/.gitkeep",
]


@pytest.mark.parametrize("path", ORDINARY)
def test_ordinary_files_have_none(tmp_path: Path, path: str) -> None:
    """A list that names everything would be read by nobody."""
    assert changes(tmp_path, {}, {path: b"x"})[path].danger is None


def test_every_name_on_the_list_is_found() -> None:
    """Anywhere, and however it is written: some file systems fold case."""
    text = resources.files(workspaces).joinpath("danger.toml").read_text()
    for rule in tomllib.loads(text)["rule"]:
        for pattern in rule["paths"]:
            name = pattern.replace("*", "x") + ("inner" if pattern.endswith("/") else "")
            for path in (name, f"sub/{name.upper()}"):
                found = danger_of(path, None, Entry(Kind.FILE), bare_repository=False)
                assert rule["reason"] in (found or ""), path


@pytest.mark.parametrize(
    ("path", "said"),
    [
        (".gitignore", "git goes by it: a file may stay unseen, or one that was left out get into a commit"),
        (".gitignore/x", "git reads it: attributes, submodules, hooks and filters can run programs"),
        (".pytest_cache/.gitattributes", "git reads it: attributes, submodules, hooks and filters can run programs"),
    ],
)
def test_what_a_rule_leaves_out_is_no_more_than_that_file(path: str, said: str) -> None:
    """No program is run by .gitignore, and what pytest writes for its cache is for nobody to look at."""
    assert danger_of(path, None, Entry(Kind.FILE), bare_repository=False) == said


@pytest.mark.parametrize(
    "path",
    [
        "MAKEFILE",
        "makefile.",
        "Make\u200cfile",
        "ＭＡＫＥＦＩＬＥ",
        "\uff2dakefile ",
        "Makefile::$DATA",
        "ma\u212aefile",
    ],
)
def test_no_spelling_hides_a_danger(path: str) -> None:
    """Case, width, invisible characters and what Windows drops name the same file on some file systems."""
    assert danger_of(path, None, Entry(Kind.FILE), bare_repository=False) == "a build runs it"


@pytest.mark.parametrize(
    "folder",
    [".git", ".GIT", "Git~1", ".git.", ".git ", ".g\u200cit", ".\uff27IT", ".git::$INDEX_ALLOCATION", "\ufeff.git"],
)
def test_gits_folder_is_known_by_all_its_names(folder: str) -> None:
    """As git itself refuses them; a file that only looks like one is none."""
    assert in_git(f"sub/{folder}/config")
    assert not any(map(in_git, (".gitignore", "a.git/x", "git", ".github/x", "ä.git/x", ".git\u0301/x")))


@pytest.mark.parametrize(
    "folder",
    [".git", ".GIT", "Git~1", ".git.", ".git ", ".g\u200cit", ".\uff27IT", ".git::$X", "\ufeff.git", "a\uff0f.git"],
)
def test_a_folder_that_some_file_system_takes_for_gits_is_told_as_that(folder: str, tmp_path: Path) -> None:
    """Whatever it is called, nothing of it comes, and the rest can be reviewed."""
    workspace = started(tmp_path, {"f": b"1"})
    grow(workspace.source, {f"sub/{folder}/config": b"x", f"sub/{folder}/HEAD": b"x", "f": b"2"})

    assert kinds(workspace.changes()) == {"f": "modified", "sub": "added"}
    assert workspace.notes == (f"sub/{folder}: a repository was made inside; it is not brought to your folder",)


def test_a_hidden_bare_repository_is_named(tmp_path: Path) -> None:
    """git obeys the config of any folder that looks like a repository, whatever it is called."""
    found = changes(
        tmp_path, {}, {"fixture/HEAD": b"", "fixture/objects/x": b"", "fixture/refs/x": b"", "fixture/config": b""}
    )

    assert "bare git repository" in (found["fixture/config"].danger or "")


def test_a_changed_program_is_named_and_a_removed_one_not(tmp_path: Path) -> None:
    """Changing an executable matters, deleting one does not."""
    workspace = started(tmp_path, {"a": SCRIPT, "b": SCRIPT})
    grow(workspace.source, {"a": Program(b"#!/bin/bash\n")})
    (workspace.source / "b").unlink()

    assert {c.path: c.danger for c in workspace.changes()} == {"a": "an executable was changed", "b": None}


def test_git_folders_are_told_in_notes_only(tmp_path: Path) -> None:
    """Case dev-43, host side: hooks, config and commits made inside are named and never among the changes."""
    before = {
        ".git/config": b"[core]\n",
        ".git/HEAD": b"ref",
        ".git/index": b"1",
        ".git/hooks/a.sample": b"",
        "f": b"1",
    }
    workspace = started(tmp_path, before)
    grow(
        workspace.source,
        {
            ".git/hooks/post-checkout": Program(b"#!/bin/sh\ntouch /tmp/hooked_d43\n"),
            ".git/config": b"[core]\nfsmonitor=/tmp/evil\nhooksPath=/workspace/h\n",
            ".git/refs/heads/main": b"0123",
            ".git/index": b"2",
            "dep/.git/config": b"",
            "F/.GIT/config": b"",
        },
    )
    untouched = picture(workspace.host)

    assert kinds(workspace.changes()) == {"F": "added", "dep": "added"}
    assert workspace.notes == (
        "F/.GIT: a repository was made inside; it is not brought to your folder",
        "dep/.git: a repository was made inside; it is not brought to your folder",
        "hooks changed inside, not brought to your folder: .git/hooks/post-checkout",
        "git configuration changed inside, not brought to your folder: .git/config",
        "commits or branches changed inside, only the files are brought to your folder: .git",
    )
    assert workspace.apply(["F"]).applied == ("F",)
    assert {path: what for path, what in picture(workspace.host).items() if path != "F"} == untouched


def test_git_status_alone_is_no_note(tmp_path: Path) -> None:
    """Touched files and a refreshed index are not worth a line."""
    workspace = started(tmp_path, {".git/config": b"[core]\n", ".git/index": b"1"})
    grow(workspace.source, {".git/config": b"[core]\n", ".git/index": b"2"})

    assert (workspace.changes(), workspace.notes) == ((), ())


def test_moving_git_away_shows_everything_that_moved(tmp_path: Path) -> None:
    """`mv .git .git2` makes ordinary files of it, each with a warning; the original stays."""
    workspace = started(tmp_path, {".git/config": b"[core]\n", ".git/hooks/x": SCRIPT})
    (workspace.source / ".git").rename(workspace.source / ".git2")

    found = {change.path: change.danger for change in workspace.changes()}
    assert sorted(found) == [".git2/config", ".git2/hooks/x"]
    assert all(reason is not None and "git reads it" in reason for reason in found.values())
    assert workspace.notes == (".git: was removed inside; the original stays",)


def test_binary_and_large_files_show_sizes_only(tmp_path: Path) -> None:
    """No diff, the cause, and the sizes."""
    found = changes(tmp_path, {"b": b"\0\1", "big": b"x" * 300_000}, {"b": b"\0\2\3", "big": b"y" * 300_001})

    assert [(c.binary, c.diff, c.note, c.size_before, c.size_after) for c in found.values()] == [
        (True, None, "binary", 2, 3),
        (False, None, "larger than 256 KiB: only sizes are shown", 300_000, 300_001),
    ]


def test_a_diff_needs_the_original(tmp_path: Path) -> None:
    """When the person changed the file meanwhile there is no "before" to show, and another one is never shown."""
    workspace = started(tmp_path, {"f": b"one\n", "g": b"one\n"})
    grow(workspace.source, {"f": b"two\n"})
    (workspace.source / "g").unlink()
    grow(workspace.host, {"f": b"three\n"})
    (workspace.host / "g").unlink()

    assert [(c.diff, (c.note or "")[:28]) for c in workspace.changes()] == [(None, "no diff: the original is gon")] * 2


def test_links_are_shown_by_their_text(tmp_path: Path) -> None:
    """As git does: mode 120000, and the target as the content."""
    found = changes(tmp_path, {}, {"l": Link("/etc/passwd")})["l"]

    assert found.entry is Kind.LINK
    assert found.diff == (
        "diff --git a/l b/l\nnew file mode 120000\n--- /dev/null\n+++ b/l\n@@ -0,0 +1 @@\n+/etc/passwd\n"
        "\\ No newline at end of file\n"
    )


def test_special_files_are_shown_and_not_opened(tmp_path: Path) -> None:
    """A FIFO in the place of a file, and a socket, end the review with a line each instead of waiting."""
    workspace = started(tmp_path, {"f": b"x"})
    (workspace.source / "f").unlink()
    os.mkfifo(workspace.source / "f")
    with socket.socket(socket.AF_UNIX) as bound:
        bound.bind(str(workspace.source / "s"))
        found = workspace.changes()

    assert [(c.path, c.kind, c.note) for c in found] == [
        ("f", "other", "a FIFO, was a file"),
        ("s", "other", "a socket"),
    ]
    assert [(c.danger or "").split(":")[0] for c in found] == ["a FIFO", "a socket"]


def test_what_could_not_be_looked_at_is_not_deleted() -> None:
    """A folder that cannot be listed says nothing about the files that were in it."""
    manifest = Manifest({"a": Entry(Kind.DIRECTORY), "a/f": Entry(Kind.FILE, "1"), "b": Entry(Kind.FILE, "1")})

    found = compare(manifest, Scan(entries={"a": Entry(Kind.DIRECTORY)}, unknown={"a"}))
    assert [(difference.path, difference.kind) for difference in found] == [("b", "deleted")]


def test_unlistable_parts_are_told_and_not_taken_for_deleted(tmp_path: Path) -> None:
    """A tree nested deeper than paths can be is a note; what was moved into it is not invented."""
    workspace = started(tmp_path, {"f": b"x"})
    path = workspace.source
    for _ in range(18):
        path = path / ("d" * 200)
        path.mkdir()
    fd = os.open(path, os.O_RDONLY)
    for _ in range(4):
        os.mkdir("d" * 200, dir_fd=fd)
        deeper = os.open("d" * 200, os.O_RDONLY, dir_fd=fd)
        os.close(fd)
        fd = deeper
    os.close(fd)

    assert all(change.path.startswith("d") for change in workspace.changes())
    assert any(note.startswith("cannot be looked at") for note in workspace.notes)
    workspace.discard()
