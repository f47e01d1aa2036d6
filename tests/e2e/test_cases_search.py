"""The cases of searching, and of calls made side by side in one turn; in a real container."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
from case_rig import Call, Desk, bash, started, use

from sandbox_agent.events import ToolStarted

pytestmark = pytest.mark.docker


@pytest.fixture(scope="module")
async def desk(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Desk]:
    async with started(tmp_path_factory.mktemp("search")) as desk:
        yield desk


LARGE = """
import os
for top in {tops}:
    for folder in range({folders}):
        os.makedirs(f"/tmp/large/{{top}}/{{folder}}", exist_ok=True)
        for number in range({files}):
            open(f"/tmp/large/{{top}}/{{folder}}/{{number}}.py", "w").close()
"""


@pytest.mark.parametrize(
    ("tops", "folders", "files", "patterns"),
    [
        (("src", "node_modules"), 200, 100, {"**/*": 40_000, "src/**/*.py": 20_000, "**/7.{py,ts}": 400}),
        (("flat", "a/b/c/d/e/f/g"), 1, 10_000, {"**/*": 20_000, "flat/*/1*.py": 1_111, "a/**": 10_000}),
    ],
)
async def test_dev_30_a_large_tree_is_listed_soon_and_in_the_same_order(
    desk: Desk, tops: tuple[str, ...], folders: int, files: int, patterns: dict[str, int]
) -> None:
    """Each pattern twice: under 5 s, 100 paths, the flag and the total, the same list again."""
    desk.put("grow.py", LARGE.format(tops=tops, folders=folders, files=files))
    await desk.make("rm -rf /tmp/large; python3 grow.py")
    calls = [use("Glob", pattern=pattern, path="/tmp/large") for pattern in patterns]
    done = await desk.calls(*calls, *calls)
    for once, again, total in zip(done, done[len(patterns) :], patterns.values(), strict=False):
        listed, note = once.text.split("\n\n")
        assert once.text == again.text
        assert max(once.duration_s, again.duration_s) < 5
        assert len(set(listed.split("\n"))) == 100
        assert note == f"[The 100 newest of {total:,} files. Narrow the pattern to see others.]"
        assert (once.meta["truncated"], once.meta["total"]) == (True, total)


SECRET_PLACES = """
rm -rf /workspace/r; mkdir /workspace/r; cd /workspace/r
git init -q .; mkdir -p .github/workflows build src/deep/build
echo TOKEN_D31 | tee .github/workflows/ci.yml .git/description build/out.txt src/deep/build/log.txt src/a.txt >/dev/null
"""


@pytest.mark.parametrize(
    "ignore",
    [
        "echo build/ > .gitignore",
        "echo /build/ > .gitignore; echo build > src/.gitignore",
        "echo build/ > .git/info/exclude",
        "echo build > .ignore",
        "echo '**/build/*.txt' > .gitignore",
        "rm -rf .git; mkdir .git; echo TOKEN_D31 > .git/description; echo build/ > .gitignore",
    ],
)
async def test_dev_31_hidden_files_are_searched_ignored_ones_and_git_are_not(desk: Desk, ignore: str) -> None:
    """A file pattern does not switch the ignore rules off; a switch does; nothing found says what was skipped."""
    await desk.make(f"{SECRET_PLACES}{ignore}")
    found, texts, logs, everything = await desk.calls(
        use("Grep", pattern="TOKEN_D31", path="r"),
        use("Grep", pattern="TOKEN_D31", path="r", glob="*.txt"),
        use("Grep", pattern="TOKEN_D31", path="r", glob="out.txt"),
        use("Grep", pattern="TOKEN_D31", path="r", include_ignored=True),
    )
    assert found.text.split("\n") == ["r/.github/workflows/ci.yml", "r/src/a.txt"]
    assert texts.text.split("\n") == ["r/src/a.txt"]
    assert "No matches" in logs.text
    assert "include_ignored" in logs.text
    assert [line for line in everything.text.split("\n") if "/." not in line or "github" in line] == [
        "r/.github/workflows/ci.yml",
        "r/build/out.txt",
        "r/src/a.txt",
        "r/src/deep/build/log.txt",
    ]
    assert ".git/" not in everything.text


@pytest.mark.parametrize(
    ("calls", "outcomes"),
    [
        (
            [
                bash("grep nothing good.txt"),
                bash("pwd"),
                use("Read", file_path="missing.txt"),
                use("Read", file_path="good.txt"),
                bash("sleep 1; echo late"),
            ],
            [
                ("(no output)\nExit code: 1", True),
                ("/workspace\nExit code: 0", False),
                ("/workspace/missing.txt does not exist", True),
                ("1\tgood", False),
                ("late\nExit code: 0", False),
            ],
        ),
        (
            [
                use("Read", file_path="missing.txt"),
                use("Nosuch", x=1),
                use("Grep", pattern="(", path="good.txt"),
                use("Edit", file_path="good.txt", old_string="absent", new_string="x"),
                use("Glob", pattern="good.*"),
                bash("exit 7"),
                bash("sleep 60", timeout_s=0.3),
                use("Write", file_path="/usr/x", content="x"),
                use("TodoWrite", todos="wrong"),
                bash("cat good.txt"),
            ],
            [
                ("does not exist", True),
                ("Nosuch", True),
                ("regex", True),
                ("not read", True),
                ("good.txt", False),
                ("Exit code: 7", True),
                ("the limit of 0.3 s", True),
                ("/usr/x", True),
                ("todos", True),
                ("good\nExit code: 0", False),
            ],
        ),
        ([use("Read", file_path=f"{'good' if n % 2 else 'missing'}.txt") for n in range(25)], None),
    ],
)
async def test_dev_48_a_failing_call_spoils_none_of_its_turn(
    desk: Desk, calls: list[Call], outcomes: list[tuple[str, bool]] | None
) -> None:
    """One result a call, in the order of the calls, each with its own outcome."""
    desk.put("good.txt", "good\n")
    if outcomes is None:
        outcomes = [("good" if n % 2 else "does not exist", n % 2 == 0) for n in range(len(calls))]
    played = await desk.play(calls)
    assert len(played.results) == len(calls)
    for result, (part, is_error) in zip(played.results, outcomes, strict=True):
        assert part in result.text
        assert result.is_error is is_error
        assert "sibling" not in result.text
        assert "cancel" not in result.text.lower()
        assert "Interrupted" not in result.text


async def test_dev_48_reads_of_a_turn_run_side_by_side(desk: Desk) -> None:
    """Ten reads are one step; a command that changes something is a step of its own, between the others."""
    desk.put("good.txt", "good\n")
    read = use("Read", file_path="good.txt")
    played = await desk.play([*[read] * 10, bash("echo x >> good.txt"), read])
    steps = [event.batch for event in played.events if isinstance(event, ToolStarted)]
    assert steps == [0] * 10 + [1, 2]
    assert [result.text for result in played.results] == ["1\tgood"] * 10 + [
        "(no output)\nExit code: 0",
        "1\tgood\n2\tx",
    ]
