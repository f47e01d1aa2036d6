"""The review gate from end to end: parts of files, attacks on what was shown, interruptions, commits, and removal."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from program import COMMAND, DONE, WRITE, Program, bash
from screen import at_terminal

from sandbox_agent.workspaces.disk import mounted

pytestmark = pytest.mark.docker

NUMBERS = "".join(f"{n}\n" for n in range(40))
RUN = ("--allow", "Bash", "--mode", "bypassPermissions")
MODES = pytest.mark.parametrize("mode", ["copy", "overlay"])
IDENTITY = {f"GIT_{who}_{what}": f"{who}@example.org" for who in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")}

KILLED_LATE = (
    "import os, signal, sys\n"
    "def step(event, arguments):\n"
    "    if event == 'os.link' and str(arguments[1]) in ('b.txt', \"b'b.txt'\"):\n"
    "        os.kill(os.getpid(), signal.SIGKILL)\n"
    "sys.addaudithook(step)\n"
)


def run(program: Program, *commands: str, mode: str = "copy", apply: str = "never") -> str:
    """A run of these shell commands; returns stderr."""
    tools = [bash(command) for command in commands]
    script = program.script([{"text": "I work.", "tools": tools}, DONE])
    ended = program.call("run", "-p", *RUN, "--workspace-mode", mode, "--apply", apply, "--model", script, "x")
    assert ended.code == 0, ended.stderr
    return ended.stderr


def git(folder: Path, *arguments: str) -> str:
    """The tests' own git, on a repository of the tests."""
    plain = {"PATH": os.environ["PATH"], "HOME": "/nonexistent", "GIT_CONFIG_NOSYSTEM": "1"}
    safe = ("-c", f"safe.directory={folder}", "-c", "init.defaultBranch=main")
    done = subprocess.run(
        ["git", *safe, *arguments], cwd=folder, env=plain | IDENTITY, capture_output=True, check=True, text=True
    )
    return done.stdout


@MODES
def test_some_hunks_go_and_the_rest_is_shown_later(program: Program, mode: str) -> None:
    """`apply --hunks` at a terminal: the file has exactly the chosen hunk, `diff` the others, `apply` brings them."""
    (program.folder / "a.txt").write_text(NUMBERS)
    run(program, "sed -i 's/^3$/three/;s/^33$/thirty-three/' a.txt", mode=mode)
    with at_terminal(program, "apply", "last", "--hunks") as (screen, process):
        screen.wait_for("(1/2) Apply this hunk of a.txt? [y,n,q,a,d,?] > ")
        screen.type("n\n")
        screen.wait_for("(2/2) Apply this hunk of a.txt? [y,n,q,a,d,?] > ")
        screen.type("y\n")
        rest = screen.rest()
        assert process.wait(30) == 0

    assert "Applied in part: a.txt\n1 path kept." in rest
    assert (program.folder / "a.txt").read_text() == NUMBERS.replace("\n33\n", "\nthirty-three\n")
    shown = program.call("diff", "last", "a.txt").stdout
    assert ("+three\n" in shown, "thirty-three\n" in shown.replace(" thirty-three\n", "")) == (True, False)
    assert program.call("apply", "last", "a.txt").code == 0
    assert (program.folder / "a.txt").read_text() == NUMBERS.replace("\n3\n", "\nthree\n").replace(
        "\n33\n", "\nthirty-three\n"
    )


@MODES
def test_an_attack_inside_changes_nothing_but_what_was_chosen(program: Program, mode: str) -> None:
    """Links, a FIFO, set-uid, a moved and a rewritten .git: of --all only plain files come, with plain modes. The FIFO
    comes by its name, and not by a pattern.
    """
    outside = program.folder.parent / "victim"
    outside.write_text("safe\n")
    git(program.folder, "init", "-q")
    git(program.folder, "commit", "-q", "--allow-empty", "-m", "first")
    before = {path: path.read_bytes() for path in (program.folder / ".git").rglob("*") if path.is_file()}
    run(
        program,
        "printf '[core]\\n\\tfsmonitor = touch /tmp/hooked\\n' >> .git/config; printf x > .git/hooks/post-checkout",
        f"ln -s {outside} link; rm a.txt; ln -s {outside} a.txt; mkfifo pipe; mkdir d; ln -s / d/root",
        "printf 'x\\n' > plain; cp /bin/true tool; chmod 6777 tool; mv .git .git2",
        mode=mode,
    )
    applied = program.call("apply", "last", "--all")
    there = {path.name: path for path in program.folder.iterdir()}

    assert applied.code == 0
    assert "Not applied: link (a link to" in applied.stdout
    assert "Not applied: pipe (a FIFO: goes only when its own path is named)" in applied.stdout
    assert "! tool: executable" in applied.stdout
    assert (there["a.txt"].read_text(), there["plain"].read_text(), outside.read_text()) == ("one\n", "x\n", "safe\n")
    assert oct(there["tool"].stat().st_mode & 0o7777) == "0o755"
    assert sorted(there.keys() - {".git2"}) == [".git", "a.txt", "plain", "tool"]
    assert {path: path.read_bytes() for path in before} == before
    assert not any(path.is_symlink() for path in program.folder.rglob("*"))
    assert program.call("apply", "last", "pip*").code == 2
    assert program.call("apply", "last", "pipe").stdout.startswith("Applied 1 path")
    assert (program.folder / "pipe").is_fifo()


def test_what_is_planted_after_the_diff_does_not_come(program: Program) -> None:
    """The contents are those of the last checkpoint, whatever the copy becomes; the way there is not followed."""
    run(program, "mkdir d; echo new > d/new.txt; echo new > b.txt")
    assert "+new" in program.call("diff", "last").stdout
    copy = program.session() / "workspace"
    with mounted(program.session(), copy):  # on a disk of its own, where whoever runs the tests is root
        (copy / "b.txt").unlink()
        (copy / "b.txt").symlink_to("/etc/passwd")
        (copy / "d").rename(copy / "e")
        (copy / "d").symlink_to("/etc")
    elsewhere = program.folder.parent / "elsewhere"
    elsewhere.mkdir()
    (program.folder / "d").symlink_to(elsewhere)
    applied = program.call("apply", "last", "--all")

    assert applied.code == 1
    assert "Not applied: d/new.txt (its folder d is a link here)" in applied.stdout
    assert (program.folder / "b.txt").read_text() == "new\n"
    assert not (program.folder / "b.txt").is_symlink()
    assert list(elsewhere.iterdir()) == []


def test_always_names_what_is_dangerous_and_leaves_links_out(program: Program) -> None:
    """Nobody looks before, so it is said aloud after."""
    said = run(program, "printf 'all:\\n' > Makefile; ln -s /etc etc; echo x > plain.txt", apply="always")

    assert "! applied, look at it: Makefile: a build runs it" in said
    assert "not applied: etc (a link to /etc: goes only when its own path is named)" in said
    assert sorted(os.listdir(program.folder)) == ["Makefile", "a.txt", "plain.txt"]


def test_what_the_person_changed_meanwhile_is_told(program: Program) -> None:
    """Once, at the end, with the paths; and it is none of the session's changes."""
    (program.folder / "mine.txt").write_text("1\n")
    work = {"text": "I work.", "tools": [bash("echo new > new.txt")]}
    sleep = {"text": "Waiting.", "tools": [bash("sleep 300", timeout=400_000)]}
    arguments = ("run", *RUN, "--workspace-mode", "overlay", "--model", program.script([work, sleep]), "x")
    with at_terminal(program, *arguments) as (screen, process):
        screen.wait_for("* Bash sleep 300")
        (program.folder / "mine.txt").write_text("2\n")
        (program.folder / "later.txt").write_text("2\n")
        screen.type("\x03")
        shown = screen.wait_for("whole diff of N > ")
        screen.type("a\n")
        screen.rest()
        assert process.wait(30) == 130

    assert "changed in your folder meanwhile, and not by this session: later.txt (added), mine.txt (modified)" in shown
    assert "1 path changed:" in shown
    assert (program.folder / "mine.txt").read_text() == "2\n"
    assert (program.folder / "new.txt").read_text() == "new\n"


def test_json_says_all_there_is_to_say(program: Program) -> None:
    """What went, what did not and why, what can do harm, and what others changed: of a run, of `diff` and `apply`."""
    made = "echo x > plain.txt; printf 'all:\\n' > Makefile; ln -s /etc etc; echo two > a.txt"
    script = program.script([{"text": "I work.", "tools": [bash(made)]}, DONE])
    arguments = ("--output", "json", *RUN, "--workspace-mode", "overlay", "--model", script)
    first = program.call("run", *arguments, "x").document
    (program.folder / "a.txt").write_text("mine\n")
    rows = {row["path"]: row for row in map(json.loads, program.call("diff", "last", "--json").stdout.splitlines())}
    done = program.call("apply", "last", "Makefile", "a.txt", "--json")
    stream = program.call("run", "-c", "--apply", "always", *arguments[2:], "--output", "stream-json", "x").stdout
    *_, last = lines = [json.loads(line) for line in stream.splitlines()]

    assert first["unapplied_files"] == ["Makefile", "a.txt", "etc", "plain.txt"]
    assert [(one["path"], one["applied"]) for one in first["dangers"]] == [("Makefile", False), ("etc", False)]
    assert (first["drifted_files"], first["unexported_commits"]) == ([], [])
    assert {path: row["drifted"] for path, row in rows.items() if row["drifted"]} == {"a.txt": "modified"}
    assert (done.code, done.document["exit_code"], done.document["applied_files"]) == (1, 1, ["Makefile"])
    assert done.document["conflicts"] == {"a.txt": "was changed here meanwhile"}
    assert done.document["dangers"][0] == {"path": "Makefile", "reason": "a build runs it", "applied": True}
    assert done.document["unapplied_files"] == ["a.txt", "etc", "plain.txt"]
    assert [line["changed"] for line in lines if line.get("subtype") == "folder_drifted"] == [
        [{"path": "a.txt", "kind": "modified"}]
    ]
    assert (list(last["withheld"]), list(last["conflicts"])) == (["etc"], ["a.txt"])
    assert (last["status"], last["applied_files"], last["exit_code"]) == ("failed", ["plain.txt"], 1)


def test_a_running_session_is_neither_applied_nor_removed(program: Program) -> None:
    """While its process lives; killed, its work can be applied."""
    process = program.sleeping(WRITE)
    try:
        for command in (("apply", "last", "--all"), ("diff", "last"), ("sessions", "rm", "last", "--yes")):
            ended = program.call(*command)
            assert (ended.code, "in use by another process" in ended.stderr) == (2, True), command
    finally:
        process.kill()
        process.communicate()

    assert not (program.folder / "new.txt").exists()
    assert program.call("apply", "last", "--all").code == 0
    assert (program.folder / "new.txt").read_text() == "new\n"
    assert program.call("reap").code == 0


@pytest.mark.parametrize("next_start", ["apply", "run"])
def test_a_killed_apply_is_finished_by_the_next_start(program: Program, next_start: str) -> None:
    """By `apply ID`, or by any run, which says so in a line; nothing half done stays in the folder."""
    run(program, "for name in b c d; do echo $name > $name.txt; done; rm a.txt")
    killed = subprocess.run(
        [sys.executable, "-c", KILLED_LATE + COMMAND[2], "apply", "last", "--all"],
        env=program.environment(),
        capture_output=True,
        check=False,
    )
    first = program.session().name
    assert killed.returncode == -9
    assert program.call("diff", "last").stderr.startswith("An apply was interrupted")
    if next_start == "apply":
        ended = program.call("apply", "last")
        assert ended.stdout.startswith("An apply that had been interrupted was finished first.\nApplied 4 paths")
    else:
        script = program.script([DONE])
        ended = program.call("run", "-p", "--workspace-mode", "copy", "--model", script, "x")
        assert f"an interrupted apply of session {first} was finished: 4 in your folder" in ended.stderr

    assert {path.name: path.read_text() for path in program.folder.iterdir()} == {
        f"{name}.txt": f"{name}\n" for name in "bcd"
    }


def test_commits_come_out_as_a_bundle_and_as_patches(program: Program) -> None:
    """git takes both; a subject and a branch of hostile names stay text; the person's repository is not written."""
    (program.folder / "a.txt").write_text(NUMBERS)
    git(program.folder, "init", "-q")
    git(program.folder, "add", "-A")
    git(program.folder, "commit", "-qm", "first")
    first = git(program.folder, "rev-parse", "HEAD").strip()
    identity = " ".join(f"{name}={value}" for name, value in IDENTITY.items())
    run(
        program,
        f"export {identity}; sed -i 's/^3$/three/' a.txt; git commit -qam '../../x $(touch /tmp/pwned)'",
        f"export {identity}; git branch 'x$(id)'; git checkout -qb side; echo s > s; git add s; git commit -qm side",
        "git checkout -q main",
        mode="overlay",
    )
    target = program.folder.parent / "out"
    bundled = program.call("export", "last", "--bundle", str(target) + ".bundle")
    patched = program.call("export", "last", "--patches", str(target))

    assert (bundled.code, patched.code) == (0, 0), bundled.stderr + patched.stderr
    assert bundled.stdout.startswith("2 new commits")
    assert "not exported for its name: refs/heads/x$(id)" in bundled.stderr
    assert git(program.folder, "rev-parse", "HEAD").strip() == first
    git(program.folder, "-c", "transfer.fsckObjects=true", "fetch", "-q", f"{target}.bundle", "side:from-agent/side")
    assert git(program.folder, "log", "--format=%s", f"{first}..from-agent/side").split("\n")[0] == "side"
    assert os.listdir(target) == ["0001-x-touch-tmp-pwned.patch"]
    git(program.folder, "am", "-q", str(target / "0001-x-touch-tmp-pwned.patch"))
    assert (program.folder / "a.txt").read_text() == NUMBERS.replace("\n3\n", "\nthree\n")
    assert program.call("export", "last", "--patches", str(target)).code == 2
    assert program.call("export", "last", "--bundle", f"{target}.bundle").code == 2


def test_a_nested_repository_is_named_and_no_commits_are_said(program: Program) -> None:
    """--repo PATH; a repository without new commits, none at all, and a path that leads out each end with a line."""
    nested = program.folder / "libs" / "parser"
    nested.mkdir(parents=True)
    for folder in (program.folder, nested):
        git(folder, "init", "-q")
        git(folder, "commit", "-q", "--allow-empty", "-m", "first")
    identity = " ".join(f"{name}={value}" for name, value in IDENTITY.items())
    run(program, f"cd libs/parser; echo x > x; git add x; {identity} git commit -qm inner")
    target = program.folder.parent / "inner.bundle"

    assert (
        program.call("export", "last", "--bundle", str(target)).stdout == "There are no new commits in the workspace.\n"
    )
    assert program.call("export", "last", "--bundle", str(target), "--repo", "libs/parser/").code == 0
    assert "inner" in git(nested, "fetch", str(target), "main:inner") + git(nested, "log", "--format=%s", "inner")
    for repository in ("libs", "nowhere", "../x", "a.txt"):
        ended = program.call("export", "last", "--bundle", f"{target}2", "--repo", repository)
        assert (ended.code, len(ended.stderr.splitlines())) == (
            2 if repository != "libs" else 1,
            1 if repository != "libs" else 0,
        ), repository
    assert not Path(f"{target}2").exists()


def test_sessions_are_removed_with_all_that_was_kept(program: Program) -> None:
    """What was never applied has to be agreed to; what has nothing waiting goes by --all-applied."""
    run(program, "echo 1 > new.txt")
    kept = program.session()
    run(program, "true")
    assert len(list(kept.parent.iterdir())) == 2
    assert program.call("sessions", "rm", "--all-applied").code == 0
    assert program.session() == kept
    refused = program.call("sessions", "rm", kept.name)
    assert (refused.code, "1 change not applied: new.txt" in refused.stderr) == (2, True)

    with at_terminal(program, "sessions", "rm", kept.name) as (screen, process):
        screen.wait_for("Remove it for good? [y/N] > ")
        screen.type("\n")
        assert "kept" in screen.rest()
        assert process.wait(30) == 0
    assert program.session() == kept
    assert program.call("sessions", "rm", kept.name, "--yes").stdout == f"removed {kept.name}\n"
    assert list(kept.parent.iterdir()) == []
    assert os.listdir(program.folder) == ["a.txt"]
