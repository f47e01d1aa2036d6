"""Every workspace mode keeps the same promises: what the tools see, what they may do, and what the person's folder
feels of it. Each test runs for all modes unless it says otherwise.
"""

from __future__ import annotations

import os
import stat
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from workspace_places import CERTIFICATE, KEY, SECRET, Place, git, left_at_engine, mounts_in, placed, running

from sandbox_agent.workspaces.opening import reopen

pytestmark = pytest.mark.docker

USER = os.getuid() or 1234
OWNERS = {"user": USER} if os.getuid() else {"user": USER, "root": 0}
CASES = [
    pytest.param((mode, OWNERS[owner]), id=f"{mode}-{owner}")
    for owner in OWNERS
    for mode in ("overlay", "copy", "volume", "bind")
    # bind is refused there, for tools never run as root; and a volume does not know whose the folder is.
    if owner == "user" or mode not in ("bind", "volume")
]
REVIEWED = [case for case in CASES if case.id in ("overlay-user", "overlay-root", "copy-user", "volume-user")]
"""Modes in which the folder is untouched until somebody applies; a copy of root's folder differs only in its making."""


@pytest.fixture(scope="module", params=CASES)
async def place(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Place]:
    """One session a case, for tests that leave nothing behind which another would trip over."""
    mode, owner = request.param
    async with placed(mode, tmp_path_factory.mktemp("place"), owner) as made:
        yield made


@pytest.fixture(params=REVIEWED)
async def fresh(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Place]:
    """A session of one's own, in a mode with a review."""
    mode, owner = request.param
    async with placed(mode, tmp_path, owner) as made:
        yield made


def facts(root: Path) -> dict[str, tuple[object, ...]]:
    """Everything below a folder that a session could spoil: kinds, modes, owners, times, contents."""
    found: dict[str, tuple[object, ...]] = {}
    for path in sorted(root.rglob("*")):
        info = path.lstat()
        content: object = os.readlink(path) if path.is_symlink() else path.read_bytes() if path.is_file() else None
        found[str(path.relative_to(root))] = (oct(info.st_mode), info.st_uid, info.st_gid, info.st_mtime_ns, content)
    return found


async def test_it_is_all_at_workspace(place: Place) -> None:
    """Kinds, modes, link texts and names are the folder's own, whatever characters its path and they have."""
    listed = await place.bash("find . -mindepth 1 ! -path './.git/*' -printf '%P\\t%y\\t%m\\t%l\\0'")
    seen = {line.split("\t")[0]: tuple(line.split("\t")[1:]) for line in listed.split("\0") if line}

    assert await place.bash("pwd") == "/workspace"
    for name in ("readme", "run.sh", "private", "link", "nowhere", "sub/deep/f", "empty", "ä ö/new\nline"):
        info = (place.host / name).lstat()
        kind = "l" if stat.S_ISLNK(info.st_mode) else "d" if stat.S_ISDIR(info.st_mode) else "f"
        target = os.readlink(place.host / name) if kind == "l" else ""
        assert seen[name] == (kind, f"{stat.S_IMODE(info.st_mode):o}", target)


async def test_everything_belongs_to_the_tools(place: Place) -> None:
    """The folder, old files and new ones are the tools' own, so that nothing in it is out of their reach."""
    await place.bash("echo x > own && mkdir -p own.d && rm -r own.d")
    owners = await place.bash("stat -c %u:%g . readme sub/deep/f private own; id -u; rm own")

    uid = place.workspace.owner.uid
    assert owners.split() == [f"{uid}:{place.workspace.owner.gid}"] * 5 + [str(uid)]
    assert await place.bash("cat private") == "mine"


async def test_programs_in_it_run(place: Place) -> None:
    """The executable bit counts, as it does on the host."""
    assert await place.bash("./run.sh") == "it runs"
    assert (await place.try_bash("./readme"))[0] == 126


async def test_no_secret_is_readable_by_any_way(place: Place) -> None:
    """Reading, searching, linking, copying, moving the folder and asking git give nothing of a masked file."""
    ways = """
        cat .env conf/.env conf/deploy_key conf/private.pem vault/plain other-name; grep -ra hunter2 . /proc/self/mounts
        ln .env hard && cat hard; ln -s .env soft && cat soft; cp conf/.env copy && cat copy; mv conf conf2
        cat conf2/.env conf2/deploy_key; python3 -c 'import os; os.rename("vault", "vault2")'; cat vault2/plain
        git add -f .env && git show :.env; git hash-object -w other-name | xargs git cat-file -p
        tar c . | grep -a hunter2
        exec 3<>.env; cat <&3; dd if=.env; chmod 777 .env; cat .env; git reset -q
    """
    _, said = await place.try_bash(ways)
    tidy = "rm -f hard soft copy; test -d conf || mv conf2 conf; test -d vault || mv vault2 vault"
    await place.try_bash(tidy)

    assert SECRET not in said
    assert SECRET in (place.host / ".env").read_text()


async def test_what_is_masked_is_named(place: Place) -> None:
    """By its pattern, or by what gave it away; the other name of a masked file counts as the file."""
    masked = place.workspace.masked

    assert masked[".env"] == masked["conf/.env"] == masked["other-name"] == ".env"
    assert masked["conf/private.pem"] == "*.pem"
    assert masked["vault"] == "vault/"
    assert masked["conf/deploy_key"] == "a private key by its content"
    assert set(masked) == {".env", "conf/.env", "other-name", "conf/private.pem", "vault", "conf/deploy_key"}


async def test_a_certificate_is_no_secret(place: Place) -> None:
    """It is readable, though the pattern for keys fits its name."""
    assert await place.bash("cat conf/ca.pem") + "\n" == CERTIFICATE


async def test_git_works_in_it(place: Place) -> None:
    """Status, log and commit, in the folder, a sub-module and a nested repository, without a word about ownership."""
    said = await place.bash(
        """
        git config --global user.name T; git config --global user.email t@example.org
        for folder in . module nested; do git -C $folder log --format=%s; git -C $folder status --short; done
        git submodule status | cut -c 43-
        """
    )

    assert said == "First\nLibrary\nLibrary\nmodule (heads/main)"


async def test_folders_can_be_renamed(place: Place) -> None:
    """By one rename, as programs do that know nothing of layers."""
    script = 'import os; os.rename("sub", "bus"); print(open("bus/deep/f").read(), end=""); os.rename("bus", "sub")'

    assert await place.bash(f"python3 -c '{script}' && cat sub/deep/f") == "deep\ndeep"


async def test_the_folder_feels_nothing_before_it_is_applied(fresh: Place) -> None:
    """Whatever the tools do, git included, the person's folder keeps every byte, mode and time."""
    before = facts(fresh.host)
    await fresh.bash(
        """
        echo three >> readme; rm private; rm -rf sub; mkdir sub; echo new > sub/new; chmod 700 run.sh; mv empty full
        ln -sfn elsewhere link; echo x > .env; touch -d 2001-01-01 nested
        git -c user.name=T -c user.email=t@example.org commit -qam Inside
        """
    )

    assert await fresh.bash("git log --format=%s | head -1") == "Inside"
    assert facts(fresh.host) == before


async def test_changes_are_seen_and_can_be_applied(fresh: Place) -> None:
    """Content, the executable bit, deletions and new folders arrive, owned as the folder is; secrets stay."""
    await fresh.bash(
        """
        echo three >> readme; rm private; rm -rf sub; mkdir sub; echo new > sub/new; chmod +x sub/new; rmdir empty
        echo overwritten > .env; rm conf/.env; echo more > conf/.env; mkdir -p made/here; echo ok > made/here/f
        """
    )
    await fresh.end()

    seen = {change.path: change.kind for change in fresh.workspace.changes()}
    outcome = fresh.workspace.apply(["readme", "private", "sub", "empty", "made"])

    assert {
        path: seen.get(path) for path in ("readme", "private", "sub/deep/f", "sub/new", "empty", "made/here/f")
    } == {
        "readme": "modified",
        "private": "deleted",
        "sub/deep/f": "deleted",
        "sub/new": "added",
        "empty": "deleted",
        "made/here/f": "added",
    }
    assert not outcome.conflicts
    assert (fresh.host / "readme").read_text() == "one\ntwo\nthree\n"
    assert not (fresh.host / "private").exists()
    assert os.access(fresh.host / "sub/new", os.X_OK)
    owner = fresh.host.stat().st_uid
    assert {(fresh.host / path).stat().st_uid for path in ("sub/new", "made", "made/here/f", "readme")} == {owner}
    assert (fresh.host / ".env").read_text() == (fresh.host / "conf/.env").read_text() == SECRET


async def test_a_masked_file_is_never_written_on_the_host(fresh: Place) -> None:
    """What a session puts in the place of a secret stays with the session, even when everything is applied."""
    await fresh.bash(
        "mkdir -p vault; for file in .env vault/plain conf/deploy_key vault/new; do echo mine > $file; done"
    )
    await fresh.end()
    fresh.workspace.changes()
    fresh.workspace.apply()

    assert (fresh.host / ".env").read_text() == (fresh.host / "vault/plain").read_text() == SECRET
    assert (fresh.host / "conf/deploy_key").read_text() == KEY
    assert not (fresh.host / "vault/new").exists()


async def test_nothing_changed_is_nothing_to_review(fresh: Place) -> None:
    """Looking at everything, and git's own refreshing of its index, is no change."""
    await fresh.bash("cat readme > /dev/null; git status; find . -type f -exec cat {} + > /dev/null")
    await fresh.end()

    assert fresh.workspace.changes() == ()


async def test_what_the_person_changes_meanwhile_is_theirs(fresh: Place) -> None:
    """It is no change of the session's, and where both changed a file the person's version stays."""
    await fresh.bash("echo session >> readme; echo session > run.sh")
    for name in ("readme", "private"):
        (fresh.host / name).write_text("the person's\n")
    (fresh.host / "notes").write_text("the person's\n")
    await fresh.end()

    changed = {change.path for change in fresh.workspace.changes()}
    outcome = fresh.workspace.apply()

    assert changed == {"readme", "run.sh"}
    assert set(outcome.conflicts) == {"readme"}
    assert {(fresh.host / name).read_text() for name in ("readme", "private", "notes")} == {"the person's\n"}
    assert (fresh.host / "run.sh").read_text() == "session\n"


async def test_a_commit_made_inside_stays_inside(fresh: Place) -> None:
    """The folder's own repository has neither the commit nor a changed hook."""
    await fresh.bash(
        "git -c user.name=T -c user.email=t@example.org commit -q --allow-empty -m Inside; : > .git/hooks/x"
    )
    await fresh.end()
    fresh.workspace.changes()
    fresh.workspace.apply()

    assert git(fresh.host, "log", "--format=%s") == "First\n"
    assert not (fresh.host / ".git/hooks/x").exists()


@pytest.mark.parametrize("case", CASES)
async def test_nothing_of_ours_is_left(case: tuple[str, int], tmp_path: Path) -> None:
    """After the end there is no container, no volume, no mount, and no layer or copy in the state folder."""
    async with placed(case[0], tmp_path, case[1]) as place:
        await place.bash("rm -rf sub; mkdir sub; rm readme; mkdir shut; chmod 0 shut")
        state = place.state
        assert left_at_engine(state.name)

    assert left_at_engine(state.name) == []
    assert mounts_in(tmp_path) == []
    assert {path.name for path in state.iterdir()} <= {"etc", "checkpoints"}


@pytest.mark.parametrize("case", REVIEWED)
async def test_a_second_container_goes_on_where_the_first_ended(case: tuple[str, int], tmp_path: Path) -> None:
    """The changes outlive their container, deletions too: that is what resuming rests on."""
    async with placed(case[0], tmp_path, case[1]) as place:
        await place.bash("rm readme; echo kept > new")
        await place.end()
        place.workspace.release()
        assert mounts_in(tmp_path) == [], "work that waits needs no mount"
        async with running(reopen(place.state), place.state) as again:
            assert await again.bash("cat new; test -e readme || echo gone") == "kept\ngone"
            assert SECRET not in (await again.try_bash("cat .env other-name"))[1]
