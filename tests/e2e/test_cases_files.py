"""The cases of files and of searching: what edits keep, what is refused, whose files they are; in a real container."""

from __future__ import annotations

import os
import random
import shutil
import stat
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest
from case_rig import OWNER, Call, Desk, bash, started, use

pytestmark = pytest.mark.docker


@pytest.fixture(scope="module")
async def desk(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Desk]:
    async with started(tmp_path_factory.mktemp("files")) as desk:
        yield desk


def read(path: str, **fields: object) -> Call:
    return use("Read", file_path=path, **fields)


def write(path: str, content: str) -> Call:
    return use("Write", file_path=path, content=content)


def edit(path: str, old: str, new: str, **fields: object) -> Call:
    return use("Edit", file_path=path, old_string=old, new_string=new, **fields)


@pytest.mark.parametrize(
    ("before", "old", "new", "after"),
    [
        (b"one\r\n\ttwo\r\nthree\r\n", "one\n\ttwo", "one\n\tTWO\n\textra", b"one\r\n\tTWO\r\n\textra\r\nthree\r\n"),
        (b"one\r\n\ttwo\r\nthree\r\n", "one\r\n\ttwo", "1\r\n2", b"1\r\n2\r\nthree\r\n"),
        (b"one\r\ntwo\r\nthree", "three", "three\nfour\nfive", b"one\r\ntwo\r\nthree\r\nfour\r\nfive"),
        (b"one\r\ntwo\r\nthree\r\n", "two\n", "", b"one\r\nthree\r\n"),
        (b"one\r\ntwo\nthree\r\n", "two\n", "two\nmore\n", b"one\r\ntwo\nmore\nthree\r\n"),
        (b"one\ntwo\r\nthree\n", "three", "3\n4", b"one\ntwo\r\n3\n4\n"),
        (b"a\rb\r\nc\r\n", "b\nc", "b\nB\nc", b"a\rb\r\nB\r\nc\r\n"),
    ],
)
async def test_dev_18_an_edit_keeps_the_line_ends_of_its_place(
    desk: Desk, before: bytes, old: str, new: str, after: bytes
) -> None:
    """CRLF stays CRLF, new lines get it too, and every byte outside is the same."""
    path = desk.put("a.txt", before)
    shown, done = await desk.calls(read("a.txt"), edit("a.txt", old, new))
    assert ("\\r" in shown.text, done.is_error) == (False, False)
    assert path.read_bytes() == after


async def test_dev_18_replace_all_keeps_the_line_ends_of_each_place(desk: Desk) -> None:
    """In a file with both kinds each place keeps its own."""
    path = desk.put("a.txt", b"x = 1;\r\ny\nx = 1;\r\nz\nx = 1;\n")
    _, done = await desk.calls(read("a.txt"), edit("a.txt", "x = 1;\n", "x = 1;\nw = 2;\n", replace_all=True))
    assert done.is_error is False
    assert path.read_bytes() == b"x = 1;\r\nw = 2;\r\ny\nx = 1;\r\nw = 2;\r\nz\nx = 1;\nw = 2;\n"


BOM = b"\xef\xbb\xbf"


@pytest.mark.parametrize(
    ("rest", "old", "new", "after"),
    [
        ("hello\n中文\n", "hello", "hello2", "hello2\n中文\n"),
        ("hello\n中文\n", "中文", "文中", "hello\n文中\n"),
        ("hello\r\n中文\r\n", "hello\n中文\n", "hello\n新\n", "hello\r\n新\r\n"),
        ("hello", "hello", "first\nhello", "first\nhello"),
        ("hello\n", "hello\n", "", ""),
    ],
)
async def test_dev_19_a_byte_order_mark_stays_and_is_not_shown(
    desk: Desk, rest: str, old: str, new: str, after: str
) -> None:
    """Exactly one at the start, whatever was edited; Read and Grep do not show it."""
    path = desk.put("b.txt", BOM + rest.encode())
    shown, found, done = await desk.calls(
        read("b.txt"), use("Grep", pattern="hello", path="b.txt", output_mode="content"), edit("b.txt", old, new)
    )
    assert shown.text.startswith("1\thello")
    assert "\ufeff" not in shown.text + found.text
    assert (done.is_error, path.read_bytes()) == (False, BOM + after.encode())


@pytest.mark.parametrize(
    ("before", "old", "new", "after"),
    [
        (b"const x = 1;\n// caf\xe9 note\n", "const x = 1;", "const x = 2;", b"const x = 2;\n// caf\xe9 note\n"),
        (b"\xff\xfe\x00 bytes\nkeep\n", "keep", "kept", None),
        (b"a = '\xe9'; b = 1\n", "b = 1", "b = 2", b"a = '\xe9'; b = 2\n"),
        (b"cut \xe4\xb8\nnext\n", "next", "more\nnext", b"cut \xe4\xb8\nmore\nnext\n"),
        (b"caf\xe9 x\n", "caf\ufffd x", "caf\u00e9 y", None),
        (b"caf\xe9 x\n", "x", "\u00fc", None),
        ("x = 1\n".encode("utf-16"), "x = 1", "x = 2", None),
        ("日本 x = 1\n".encode("shift_jis"), "x = 1", "x = 2", "日本 x = 2\n".encode("shift_jis")),
    ],
)
async def test_dev_20_other_encodings_keep_their_bytes_or_are_refused(
    desk: Desk, before: bytes, old: str, new: str, after: bytes | None
) -> None:
    """Only the match changes; what cannot be written in that encoding changes nothing. Never U+FFFD in the file."""
    path = desk.put("c.txt", before)
    _, done = await desk.calls(read("c.txt"), edit("c.txt", old, new))
    assert done.is_error is (after is None)
    assert path.read_bytes() == (before if after is None else after)


async def test_dev_20_an_edit_without_a_look_is_refused(desk: Desk) -> None:
    """The call alone, as the case has it: what to do is said, and the file is the same bytes."""
    path = desk.put("c.js", b"const x = 1;\n// caf\xe9 note\n")
    [done] = await desk.calls(edit("c.js", "const x = 1;", "const x = 2;"))
    assert (done.is_error, "Read it first" in done.text) == (True, True)
    assert path.read_bytes() == b"const x = 1;\n// caf\xe9 note\n"


@pytest.mark.parametrize("mode", [0o755, 0o644, 0o600, 0o775, 0o711, 0o444])
async def test_dev_21_mode_owner_and_other_names_stay(desk: Desk, mode: int) -> None:
    """Through an edit and a write, in a folder with set-gid, with a second name for the file."""
    await desk.make("rm -rf tools; mkdir tools")
    os.chmod(desk.workspace / "tools", 0o2775)
    await desk.make("printf 'echo one\\necho end\\n' > tools/run.sh")
    path, other = desk.workspace / "tools/run.sh", desk.workspace / "tools/run2.sh"
    os.link(path, other)
    os.chmod(path, mode)
    before = os.stat(path)
    done = await desk.calls(
        read("tools/run.sh"), edit("tools/run.sh", "one", "two"), write("tools/run.sh", "echo three\n")
    )
    after = os.stat(path)
    assert (after.st_mode, after.st_uid, after.st_gid) == (before.st_mode, OWNER, OWNER)
    assert other.read_bytes() == path.read_bytes()
    if mode & stat.S_IWUSR:
        assert [result.is_error for result in done] == [False] * 3
        assert path.read_text() == "echo three\n"
    else:
        assert [result.is_error for result in done] == [False, True, True]
        assert "permission denied" in done[1].text
        assert path.read_text() == "echo one\necho end\n"


async def test_dev_21_a_link_to_a_file_stays_a_link(desk: Desk) -> None:
    """Edit and Write through a symbolic link change its target, whose mode stays."""
    await desk.make("rm -rf l; mkdir l; echo one > l/real; chmod 751 l/real; ln -s real l/name")
    done = await desk.calls(read("l/name"), edit("l/name", "one", "two"), write("l/name", "three\n"))
    assert [result.is_error for result in done] == [False] * 3
    assert os.readlink(desk.workspace / "l/name") == "real"
    assert (desk.workspace / "l/real").read_text() == "three\n"
    assert stat.S_IMODE(os.stat(desk.workspace / "l/real").st_mode) == 0o751


@pytest.mark.parametrize("replace_all", [False, True])
@pytest.mark.parametrize(
    "new",
    [
        'log("$& $$ $1 \\1 \\g<0> \\n ok");',
        "$`$'$<name>${1}%s{0}{{task}}",
        "&\\&\\\\&/g; s/x/y/",
        "\\u0041\\x41\\t\\0 $(touch x) `touch y` !! ~",
        "\t tabs \u00a0 and \u200b marks",
    ],
)
async def test_dev_22_new_text_is_taken_literally(desk: Desk, new: str, replace_all: bool) -> None:
    """Character for character, nothing expanded."""
    path = desk.put("d.js", 'log("done");\n')
    fields = {"file_path": "d.js", "old_string": 'log("done");', "new_string": new, "replace_all": replace_all}
    # Ready blocks: a script would fill in {{task}} by itself.
    turn = {"content": [{"type": "tool_use", "id": "toolu_d22", "name": "Edit", "input": fields}]}
    filled = new.replace("{{task}}", "do it")
    played = await desk.play(read("d.js"), turn)
    assert played.results[1].is_error is False
    assert path.read_text() in (f"{new}\n", f"{filled}\n")


@pytest.mark.parametrize(
    ("old", "parts"),
    [
        ("    beta_line", ["2", "···beta_line", "····beta_line"]),
        ("\tbeta_line", ["2", "···beta_line", "→beta_line"]),
        ("   beta_line ", ["2", "···beta_line", "···beta_line·"]),
        ("   beta\u00a0line", ["2", "···beta_line", "beta⍽line"]),
        ("   Beta_Line", ["2", "···beta_line"]),
    ],
)
async def test_dev_23_a_near_miss_changes_nothing_and_shows_the_difference(
    desk: Desk, old: str, parts: list[str]
) -> None:
    """The nearest line with its number and visible indentation; no fuzzy write."""
    text = "alpha:\n   beta_line\nx = 1\ngamma\nx = 1\n"
    path = desk.put("e.py", text)
    _, missed = await desk.calls(read("e.py"), edit("e.py", old, "changed"))
    assert (missed.is_error, path.read_text()) == (True, text)
    for part in parts:
        assert part in missed.text


@pytest.mark.parametrize(
    ("text", "old", "count", "lines"),
    [
        ("a\n   b\nx = 1\nc\nx = 1\n", "x = 1", 2, "3, 5"),
        ("x = 1\nx = 1\nx = 1\n", "x = 1", 3, "1, 2, 3"),
        ("aaa\n", "aa", 2, "1, 1"),
        ("f()\r\ng()\r\nf()\r\ng()\r\n", "f()\ng()", 2, "1, 3"),
    ],
)
async def test_dev_23_several_matches_change_nothing_and_are_named(
    desk: Desk, text: str, old: str, count: int, lines: str
) -> None:
    """How many there are, and in which lines."""
    path = desk.put("e.py", text)
    _, refused = await desk.calls(read("e.py"), edit("e.py", old, "y = 2"))
    assert (refused.is_error, path.read_bytes()) == (True, text.encode())
    assert f"{count} times" in refused.text
    assert f"in lines {lines};" in refused.text


@pytest.mark.parametrize(
    ("before", "after", "old"),
    [
        ("def f(a,b):\n    return a+b\n", "def f(a, b):\n    return a + b\n", "return a+b"),
        ("one\ntwo\nthree\n", "one\ntwo 2\nthree\nfour\n", "two"),
        ("k = 'v'\n" * 3, 'k = "v"\n' * 3, "k = 'v'\nk = 'v'\nk = 'v'"),
    ],
)
async def test_dev_24_a_stale_file_is_shown_and_repeating_does_not_help(
    desk: Desk, before: str, after: str, old: str
) -> None:
    """First the current lines, then a distinct answer, and after Read a right edit goes through."""
    path = desk.put("f.py", before)

    def reformat() -> None:
        path.write_text(after)

    wrong = edit("f.py", old, "return 0")
    right = edit("f.py", after.split("\n")[1], "changed()") if after.count(after.split("\n")[1]) == 1 else None
    played = await desk.play(read("f.py"), reformat, wrong, wrong, wrong, read("f.py"), *([right] if right else []))
    _, first, second, third, _, *last = played.results
    assert [first.is_error, second.is_error, third.is_error] == [True, True, True]
    assert "has changed since you last saw it" in first.text
    assert after.split("\n")[1] in first.text
    assert "already failed" not in first.text
    assert "This same call already failed (2 times now)" in second.text
    assert "This same call already failed (3 times now)" in third.text
    assert [result.is_error for result in last] == [False] * len(last)
    assert path.read_text() == (after.replace(after.split("\n")[1], "changed()") if right else after)


def touch(path: Path) -> None:
    os.utime(path, (1, 1))


def rewrite(path: Path) -> None:
    path.write_bytes(path.read_bytes())


def replace_by_a_copy(path: Path) -> None:
    new = path.with_name("new")
    new.write_bytes(path.read_bytes())
    os.chown(new, OWNER, OWNER)
    new.replace(path)


@pytest.mark.parametrize("meanwhile", [touch, rewrite, replace_by_a_copy])
async def test_dev_25_only_other_content_makes_a_file_stale(desk: Desk, meanwhile: Callable[[Path], None]) -> None:
    """Touched, written again or replaced by an equal one: the edit succeeds."""
    path = desk.put("g.txt", "one\n")
    played = await desk.play(read("g.txt"), lambda: meanwhile(path), edit("g.txt", "one", "two"))
    assert [result.is_error for result in played.results] == [False, False]
    assert path.read_text() == "two\n"


async def test_dev_25_what_the_model_wrote_it_knows(desk: Desk) -> None:
    """Edit right after Write, Write right after Edit, also of one turn."""
    played = await desk.play(
        [write("h.txt", "one\n"), edit("h.txt", "one", "two")], edit("h.txt", "two", "three"), write("h.txt", "four\n")
    )
    assert [result.is_error for result in played.results] == [False] * 4
    assert (desk.workspace / "h.txt").read_text() == "four\n"


@pytest.mark.parametrize("way", ["absolute", "climbing", "folder", "proc"])
async def test_dev_26_links_never_lead_to_the_host(desk: Desk, tmp_path: Path, way: str) -> None:
    """Write, Edit, Read and Bash through a link out of the workspace mean the container's own places."""
    victim, fresh = tmp_path / "victim.txt", tmp_path / "not_yet.txt"
    victim.write_text("original")
    tmp_path.chmod(0o777)
    victim.chmod(0o666)
    for name, target in (("notes.md", victim), ("draft.txt", fresh)):
        place = desk.workspace / way / name
        place.parent.mkdir(exist_ok=True)
        os.chown(place.parent, OWNER, OWNER)
        match way:
            case "absolute":
                place.symlink_to(target)
            case "climbing":
                place.symlink_to("../" * 12 + str(target).lstrip("/"))
            case "folder":
                (desk.workspace / way / f"{name}.d").symlink_to(tmp_path)
            case "proc":
                place.symlink_to(f"/proc/self/root{target}")
    at = {
        name: f"{way}/{name}.d/{target.name}" if way == "folder" else f"{way}/{name}"
        for name, target in (("notes.md", victim), ("draft.txt", fresh))
    }
    done = await desk.calls(
        write(at["notes.md"], "OWNED"),
        write(at["draft.txt"], "X"),
        edit(at["notes.md"], "original", "OWNED"),
        bash(f"echo OWNED > {at['notes.md']}; echo X > {at['draft.txt']}; cat {at['notes.md']}"),
        read(at["notes.md"]),
    )
    assert victim.read_text() == "original"
    assert not fresh.exists()
    assert not any("original" in result.text for result in (*done[:2], *done[3:]))


@pytest.mark.parametrize("line", ['{"a": "' + "x" * 5_000_000 + '"}', "\u4e2d" * 1_700_000, "word " * 1_000_000])
async def test_dev_27_one_huge_line_is_cut_with_its_size_and_the_way_on(desk: Desk, line: str) -> None:
    """Soon, bounded, and marked."""
    desk.put("big.json", line)
    [shown] = await desk.calls(read("big.json"))
    assert shown.duration_s < 2
    assert (len(shown.text) < 60_000, shown.is_error) == (True, False)
    assert f"{len(line.encode()):,} bytes" in shown.text.replace("bytes in all", "bytes")
    assert "Grep" in shown.text or "Bash" in shown.text or "offset" in shown.text


NOISE = random.Random(27).randbytes(300_000)


@pytest.mark.parametrize(
    "data", [b"\xff\xd8\xff\xe0" + NOISE, NOISE, b"\x7fELF" + NOISE, b"PK\x03\x04" + NOISE, bytes(300_000)]
)
async def test_dev_27_a_binary_file_is_no_text(desk: Desk, data: bytes) -> None:
    """It is said to be binary, with its size; nothing of it is shown."""
    desk.put("photo.bin", data)
    [shown] = await desk.calls(read("photo.bin"))
    if isinstance(shown.content, tuple | list):
        assert [block["type"] for block in shown.content] == ["image"]
        return
    assert (shown.is_error, len(shown.text) < 1000) == (True, True)
    assert f"{len(data):,} bytes" in shown.text
    assert "\ufffd" not in shown.text


async def test_dev_28_everything_made_belongs_to_the_person(desk: Desk) -> None:
    """By Bash, Write and Edit, with folders; the user has a name and a home that can be written."""
    made, _, _ = await desk.calls(
        bash("mkdir d && echo x > d/by_bash; ln -s d l; mkfifo p; id -un; id -u; echo $HOME; touch $HOME/t && echo ok"),
        write("w/x/by_write.txt", "x"),
        edit("by_edit.txt", "", "x"),
    )
    assert made.text == f"agent\n{OWNER}\n/home/agent\nok\nExit code: 0"
    names = ["d", "d/by_bash", "l", "p", "w", "w/x", "w/x/by_write.txt", "by_edit.txt"]
    owners = {name: os.lstat(desk.workspace / name) for name in names}
    assert {(info.st_uid, info.st_gid) for info in owners.values()} == {(OWNER, OWNER)}


OWNERS = [OWNER, 0, 4321] if os.getuid() == 0 else [OWNER]


@pytest.mark.parametrize("owner", OWNERS)
async def test_dev_29_git_works_on_a_repository_of_another_user(desk: Desk, owner: int) -> None:
    """No "dubious ownership", whoever owns .git; the exception is for the workspace and nothing else."""
    shutil.rmtree(desk.workspace / ".git", ignore_errors=True)
    await desk.make(
        "git init -q .; git config user.name a; git config user.email a@b.c; git commit -q --allow-empty -m one"
    )
    for path in (desk.workspace / ".git", *(desk.workspace / ".git").rglob("*")):
        os.chown(path, owner, owner)
    home = Path.home() / ".gitconfig"
    before = home.read_bytes() if home.exists() else None
    status, head, trusted = await desk.calls(
        bash("git status --short >/dev/null"),
        bash("git log -1 --format=%H"),
        bash("git config --get-all safe.directory > /tmp/trusted; sort -u /tmp/trusted"),
    )
    assert (status.text, head.is_error) == ("(no output)\nExit code: 0", False)
    assert len(head.text.split("\n")[0]) == 40
    assert trusted.text == "/workspace\nExit code: 0"
    assert (home.read_bytes() if home.exists() else None) == before


async def test_dev_29_a_repository_elsewhere_gets_no_exception(desk: Desk) -> None:
    """git's own check holds there: told to take every owner for another one, it works in the workspace alone."""
    await desk.make("rm -rf /tmp/other; git init -q /tmp/other; [ -d .git ] || git init -q .")
    asked = "GIT_TEST_ASSUME_DIFFERENT_OWNER=1 git -C {} rev-parse --show-toplevel"
    inside, outside = await desk.calls(bash(asked.format("/workspace")), bash(asked.format("/tmp/other")))
    assert inside.text == "/workspace\nExit code: 0"
    assert (outside.is_error, "dubious ownership" in outside.text) == (True, True)
