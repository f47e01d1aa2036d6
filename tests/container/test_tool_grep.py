"""Grep in a real container: what is found, what is not, in which order, and what is said about the rest."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
from search_tree import TREE
from tool_box import ToolBox, refused, said, started

from sandbox_agent.policy.load import load_policy
from sandbox_agent.testing.tool_calls import HOST_FOLDER
from sandbox_agent.tools.grep import TOOL as GREP

pytestmark = pytest.mark.docker

VISIBLE = [
    ".github/workflows/ci.yml",
    "keep.log",
    "src/a.py",
    "src/deep/b.py",
    "sub/anchored.txt",
    "we ird/c:1:d.txt",
]


@pytest.fixture(scope="module")
async def box(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[ToolBox]:
    async with started(tmp_path_factory.mktemp("search")) as box:
        await box.make(TREE)
        yield box


async def grep(box: ToolBox, pattern: str, **fields: object) -> str:
    return await said(GREP, box.fresh(), pattern=pattern, **fields)


@pytest.mark.parametrize("spelling", [{}, {"path": "."}, {"path": "/workspace"}, {"path": HOST_FOLDER}])
async def test_files_with_matches_come_in_path_order(box: ToolBox, spelling: dict[str, str]) -> None:
    """Hidden ones too; neither what .gitignore names nor .git; relative to the working directory."""
    assert (await grep(box, "TOKEN", **spelling)).split("\n") == VISIBLE


@pytest.mark.parametrize(
    ("glob", "found"),
    [
        ("*.txt", ["sub/anchored.txt", "we ird/c:1:d.txt"]),
        ("**/*.txt", ["sub/anchored.txt", "we ird/c:1:d.txt"]),
        ("*.log", ["keep.log"]),
        ("anchored.txt", ["sub/anchored.txt"]),
        ("*.{py,yml}", [".github/workflows/ci.yml", "src/a.py", "src/deep/b.py"]),
        ("src/**/*.py", ["src/a.py", "src/deep/b.py"]),
        ("src/*.py", ["src/a.py"]),
        ("src/**", ["src/a.py", "src/deep/b.py"]),
        ("src/", ["src/a.py", "src/deep/b.py"]),
        ("/workspace/src/*.py", ["src/a.py"]),
        ("{src,sub}/*", ["src/a.py", "sub/anchored.txt"]),
        ("!*.py", [path for path in VISIBLE if not path.endswith(".py")]),
        ("!src/deep/**", [path for path in VISIBLE if path != "src/deep/b.py"]),
        ("**", VISIBLE),
        ("we ird/*", ["we ird/c:1:d.txt"]),
    ],
)
async def test_a_glob_narrows_and_never_switches_the_ignore_rules_off(
    box: ToolBox, glob: str, found: list[str]
) -> None:
    """Names at any depth, or paths; what .gitignore hides stays hidden."""
    assert (await grep(box, "TOKEN", glob=glob)).split("\n") == found


@pytest.mark.parametrize("glob", ["build/**", "build/*", "**/out.txt", "out.txt", "a.log"])
async def test_a_glob_for_ignored_files_finds_nothing_and_says_why(box: ToolBox, glob: str) -> None:
    """The switch that finds them is named, and it works."""
    text = await grep(box, "TOKEN", glob=glob)
    assert "No matches in /workspace" in text
    assert ".gitignore" in text
    assert "include_ignored" in text
    assert (await grep(box, "TOKEN", glob=glob, include_ignored=True)) in ("build/out.txt", "a.log")


async def test_ignored_files_are_searched_on_request_but_never_git(box: ToolBox) -> None:
    """The switch is about ignore rules."""
    found = (await grep(box, "TOKEN", include_ignored=True)).split("\n")
    assert found == sorted([*VISIBLE, "a.log", "anchored.txt", "build/out.txt"])


async def test_rules_of_folders_above_hold_below(box: ToolBox) -> None:
    """A search that starts in a folder obeys the .gitignore above it."""
    await box.make("mkdir -p sub/in; echo TOKEN > sub/in/x.log; echo TOKEN > sub/in/x.md")
    assert await grep(box, "TOKEN", path="sub/in") == "sub/in/x.md"
    await box.make("rm -r sub/in")


async def test_rules_hold_without_a_repository(box: ToolBox) -> None:
    """A .gitignore counts where there is no .git, too."""
    await box.make(
        "mkdir /tmp/plain; cd /tmp/plain; echo '*.log' > .gitignore; echo TOKEN | tee a.log b.txt >/dev/null"
    )
    assert await grep(box, "TOKEN", path="/tmp/plain") == "/tmp/plain/b.txt"


@pytest.mark.parametrize(
    ("fields", "text"),
    [
        ({}, "src/a.py:1:one TOKEN\nsrc/a.py:4:four TOKEN x TOKEN"),
        ({"-n": False}, "src/a.py:one TOKEN\nsrc/a.py:four TOKEN x TOKEN"),
        ({"-o": True}, "src/a.py:1:TOKEN\nsrc/a.py:4:TOKEN\nsrc/a.py:4:TOKEN"),
        ({"-A": 1}, "src/a.py:1:one TOKEN\nsrc/a.py-2-two\n--\nsrc/a.py:4:four TOKEN x TOKEN\nsrc/a.py-5-five"),
        ({"-B": "1"}, "src/a.py:1:one TOKEN\n--\nsrc/a.py-3-\nsrc/a.py:4:four TOKEN x TOKEN"),
        ({"head_limit": 1}, "src/a.py:1:one TOKEN\n\n[1-1 of 2 lines in 1 file. Go on with offset 1.]"),
        ({"head_limit": 1, "offset": 1}, "src/a.py:4:four TOKEN x TOKEN\n\n[2-2 of 2 lines in 1 file.]"),
        ({"offset": 9}, "[Nothing at offset 9: there are 2 lines in 1 file.]"),
    ],
)
async def test_content_shows_lines(box: ToolBox, fields: dict[str, object], text: str) -> None:
    """With and without numbers, parts and neighbours, by pages."""
    assert await grep(box, "TOKEN", path="src", glob="a.py", output_mode="content", **fields) == text


@pytest.mark.parametrize("name", ["-C", "context"])
async def test_both_names_of_context_work(box: ToolBox, name: str) -> None:
    """One is the other's short form."""
    text = await grep(box, "two", path="src", output_mode="content", **{name: 1})
    assert text == "src/a.py-1-one TOKEN\nsrc/a.py:2:two\nsrc/a.py-3-"


async def test_one_file_is_shown_without_its_path(box: ToolBox) -> None:
    """The model named it itself; line ends are not shown."""
    assert await grep(box, "TOKEN", path="src/deep/b.py", output_mode="content") == "2:TOKEN"


async def test_context_of_filtered_files_leaves_no_stray_separators(box: ToolBox) -> None:
    """Groups are parted by one "--", whatever was left out between them."""
    text = await grep(box, "TOKEN", glob="{src,sub}/*", output_mode="content", **{"-A": 0, "-C": 1})
    assert "--\n--" not in text
    assert not text.startswith("--")
    assert not text.endswith("--")


async def test_count_counts_lines_or_matches(box: ToolBox) -> None:
    """Per file and in all; with -o every match counts."""
    assert await grep(box, "TOKEN", path="src", output_mode="count") == (
        "src/a.py:2\nsrc/deep/b.py:1\n\n[3 matching lines in 2 files.]"
    )
    assert "4 matches in 2 files" in await grep(box, "TOKEN", path="src", output_mode="count", **{"-o": True})


async def test_the_total_covers_what_is_not_shown(box: ToolBox) -> None:
    """250 by default, 0 for all, and the count is of all."""
    text = await grep(box, "MANY")
    assert len(text.split("\n")) == 252
    assert text.endswith("[1-250 of 300 files have matches. Go on with offset 250.]")
    assert len((await grep(box, "MANY", head_limit=0)).split("\n")) == 300
    assert (await grep(box, "MANY", output_mode="count", head_limit=2)).startswith("many/001.txt:1\nmany/002.txt:1\n")
    assert "1-2 of 300 matching lines in 300 files" in await grep(box, "MANY", output_mode="count", head_limit=2)


@pytest.mark.parametrize(
    ("pattern", "fields", "found"),
    [
        ("token", {"-i": True}, True),
        ("token", {}, False),
        ("one TOKEN.two", {"multiline": True}, True),
        ("one TOKEN.two", {}, False),
        ("TOKEN", {"type": "py"}, True),
        ("TOKEN", {"type": "rust"}, False),
        ("TOKEN", {"type": "py", "glob": "src/*.py"}, True),
        ("-TOKEN", {}, False),
        ("--", {"path": "src"}, False),
        (r"\bTOKEN\b", {}, True),
    ],
)
async def test_the_switches_do_what_they_say(
    box: ToolBox, pattern: str, fields: dict[str, object], found: bool
) -> None:
    """Case, lines, types; a pattern that looks like an option is a pattern."""
    assert ("src/a.py" in await grep(box, pattern, **fields)) is found


@pytest.mark.parametrize(
    ("fields", "why"),
    [
        ({"pattern": "(open"}, "unclosed group"),
        ({"pattern": "TOKEN", "type": "nosuch"}, "unrecognized file type: nosuch"),
        ({"pattern": "TOKEN(?=x)"}, "look-around"),
        ({"pattern": "a\nb"}, "not allowed"),
        ({"pattern": "TOKEN", "path": "scr"}, "Did you mean /workspace/src"),
        ({"pattern": "TOKEN", "path": "/dev/null"}, "neither a file nor a directory"),
        ({"pattern": "TOKEN", "glob": "{a,b}" * 20}, "more than 512"),
    ],
)
async def test_a_search_that_cannot_be_made_says_why(box: ToolBox, fields: dict[str, object], why: str) -> None:
    """In rg's own words where it is rg that refuses; never "nothing found"."""
    assert why in await refused(GREP, box.fresh(), **fields)


async def test_long_lines_and_binaries_do_not_flood(box: ToolBox) -> None:
    """A line of 600 kB is cut with a mark; a binary file is named, not shown."""
    text = await grep(box, "LONG", output_mode="content")
    assert len(text) < 1000
    assert "omitted" in text
    assert "binary file matches" in await grep(box, "TOKEN", path="bin.dat", output_mode="content")
    assert "caf\ufffd LATIN" in await grep(box, "LATIN", output_mode="content")


async def test_unreadable_files_are_counted_not_fatal(box: ToolBox) -> None:
    """What could be read is found."""
    await box.make("mkdir -p locked; echo TOKEN > locked/a; echo TOKEN > locked/b; chmod 0 locked/b")
    text = await grep(box, "TOKEN", path="locked")
    assert text.split("\n")[0] == "locked/a"
    assert "1 file or directory could not be read" in text
    await box.make("rm -rf locked")


async def test_results_are_relative_to_where_the_model_stands(box: ToolBox) -> None:
    """Below the working directory relative, elsewhere absolute."""
    ctx = box.fresh()
    ctx.cwd = "/workspace/src"
    assert await said(GREP, ctx, pattern="TOKEN") == "a.py\ndeep/b.py"
    assert await said(GREP, ctx, pattern="TOKEN", path="../sub") == "/workspace/sub/anchored.txt"


async def test_a_linked_folder_is_searched_under_its_own_name(box: ToolBox) -> None:
    """What the model asked for is what it is shown."""
    assert await grep(box, "TOKEN", path="linked/src") == "linked/src/a.py\nlinked/src/deep/b.py"


@pytest.mark.parametrize("output_mode", ["files_with_matches", "content", "count"])
async def test_what_rules_keep_from_being_read_is_not_shown(box: ToolBox, output_mode: str) -> None:
    """Whatever the names of the files are. The note is the same whether something was left out or not."""
    await box.make(
        "mkdir -p kept/open kept/secret; cd kept; for f in open/a secret/k $'secret/x\ny'; do echo KEPT > \"$f\"; done"
    )
    ctx = box.fresh()
    ctx.withheld = load_policy(None, deny=["Read(/kept/secret/**)"]).withheld
    text = await said(GREP, ctx, pattern="KEPT", path="kept", output_mode=output_mode)
    note = "[Left out, if there are any: files that Read(/kept/secret/**) keeps from being read.]"
    assert text.startswith("kept/open/a")
    assert text.count("KEPT") == (output_mode == "content")
    assert "kept/secret/k" not in text.replace(note, "")
    assert "kept/y" not in text
    assert note in text
    assert note in await said(GREP, ctx, pattern="not in any file", path="kept")


async def test_a_folder_that_cannot_be_entered_is_an_error_of_the_call(box: ToolBox) -> None:
    """And nothing worse."""
    await box.make("mkdir -p /tmp/shut && chmod 000 /tmp/shut")
    assert "cannot be searched: Permission denied" in await refused(GREP, box.fresh(), pattern="x", path="/tmp/shut")
