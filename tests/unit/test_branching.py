"""A branch of a bundle: conversation and tree of a step in a new session, and nothing where that cannot be."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import anyio
import pytest
from engine_session import use
from recording_rig import STARTED, forged, parts_of, record, steps_of, with_tree
from test_laying_out import DATA, KINDS, entry

from sandbox_agent.config import sessions_dir
from sandbox_agent.engine.branching import branch
from sandbox_agent.engine.container import last_start, settings_of
from sandbox_agent.engine.past import load_past
from sandbox_agent.errors import ConfigError, ReplayMismatchError
from sandbox_agent.policy.policy import SandboxSettings
from sandbox_agent.records.bundle import read

TURNS: list[dict[str, Any]] = [
    {"tools": [use("Write", file_path="/workspace/b.txt", content="two\n")]},
    {"tools": [use("Task", description="one", prompt="[one]")]},
    {"tools": [use("Write", file_path="/workspace/c.txt", content="three\n")]},
    {"text": "All done."},
]
TWO = hashlib.sha256(b"two\n").hexdigest()


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The state folder of the branches."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "home"))
    return tmp_path / "home"


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """A bundle whose first call changes b.txt, whose sub-agent nothing, and whose last call c.txt."""
    bundle = anyio.run(partial(record, TURNS, tmp_path, agents={"[one]": [{"text": "one is done"}]}))
    changed: Sequence[dict[str, Any]] = ({"b.txt": f"file 644 {TWO}"}, {}, {"b.txt": None, "c.txt": "link 777 a.txt"})
    return with_tree(bundle, [entry("", "directory", 0o755), entry("a.txt")], [DATA, b"two\n"], *changed)


def kinds(file: Path) -> list[tuple[str, str]]:
    return [(step["agent"], step["kind"]) for step in steps_of(parts_of(file))]


def requests(file: Path, agent: str = "main") -> list[int]:
    """The numbers of an agent's requests."""
    return [number for number, step in enumerate(kinds(file)) if step == (agent, "request")]


def said(session_id: str) -> list[str]:
    """The conversation of a branch, in few words."""
    past = load_past(sessions_dir(), session_id, Path())
    assert past.warning is None
    return [block.get("name") or block["type"] for message in past.messages for block in message["content"]]


def left_behind(tmp_path: Path) -> list[str]:
    sessions = tmp_path / "home" / "sandbox-agent" / "sessions"
    names = [path.name for path in sessions.iterdir()] if sessions.is_dir() else []
    return [*names, *(path.name for path in tmp_path.glob("branch*"))]


def test_a_branch_has_the_conversation_and_the_tree_of_its_step(file: Path, tmp_path: Path) -> None:
    """Of each request of the first agent, whichever step up to the next is named."""
    bundle, asked = read(file), requests(file)
    found = []
    for number, (at, until) in enumerate(zip(asked, [*asked[1:], len(bundle.steps)], strict=True)):
        for step in {at, until - 1}:
            folder = tmp_path / f"branch-{number}-{step}"
            made = branch(bundle, step, folder)
            assert made.step == at
            found.append((said(made.session_id), sorted(os.listdir(folder))))
    one, two, three = (
        ["text"],
        ["text", "Write", "tool_result"],
        ["text", "Write", "tool_result", "Task", "tool_result"],
    )
    assert found[0] == found[1] == (one, ["a.txt"])
    assert found[2] == found[3] == (two, ["a.txt", "b.txt"])
    assert found[4] == found[5] == (three, ["a.txt", "b.txt"])
    assert found[6] == found[7] == ([*three, "Write", "tool_result"], ["a.txt", "c.txt"])


def test_a_step_of_a_sub_agent_begins_with_the_request_that_led_to_it(file: Path, tmp_path: Path) -> None:
    """The sub-agent is to be started anew, so the call that started it is not in the conversation."""
    [step] = requests(file, "agent-1")
    made = branch(read(file), step, tmp_path / "branch")
    assert said(made.session_id) == ["text", "Write", "tool_result"]
    assert branch(read(file), 0, tmp_path / "branch-0").step == requests(file)[0]


def test_a_branch_is_a_session_of_the_newcomer(file: Path, tmp_path: Path) -> None:
    """It says what it comes from; container and network are those of the command line, but for the image."""
    made = branch(read(file), 3, tmp_path / "branch")

    started = last_start(sessions_dir() / made.session_id)
    assert started is not None
    assert (started.forked_step, started.workspace) == (made.step, str(tmp_path / "branch"))
    assert (started.forked_from, started.session_id) == (STARTED.session_id, made.session_id)
    assert settings_of(STARTED).memory_bytes == 2**40
    assert settings_of(started) == SandboxSettings(image=STARTED.image)


def test_every_kind_of_entry_comes_back(tmp_path: Path, file: Path) -> None:
    """As it was, but for bits that let a file run as somebody else."""
    changed = {"made": "other 644 p", "a": f"file 4755 {TWO}", "d/in": None}
    bundle = read(with_tree(file, KINDS, [DATA, b"two\n"], changed))
    made = branch(bundle, requests(tmp_path / "tree.bundle")[1], tmp_path / "branch")
    folder = tmp_path / "branch"
    assert made.step > 0
    assert (folder / "made").is_fifo()
    assert (folder / "a").read_bytes() == b"two\n"
    assert (folder / "again").read_bytes() == DATA
    assert (folder / "a").stat().st_mode & 0o7777 == 0o755
    assert not (folder / "d/in").exists()


@pytest.mark.parametrize(
    ("number", "said"), [(9999, "steps are 0 to"), (-1, "steps are 0 to")], ids=["too large", "negative"]
)
def test_a_step_that_is_not_there_is_said(file: Path, tmp_path: Path, number: int, said: str) -> None:
    """With those that are."""
    with pytest.raises(ConfigError, match=said):
        branch(read(file), number, tmp_path / "branch")
    assert left_behind(tmp_path) == []


def test_a_folder_that_is_there_is_not_touched(file: Path, tmp_path: Path) -> None:
    """Nor a link, or what lies below a file."""
    (tmp_path / "there").mkdir()
    (tmp_path / "a-file").write_text("mine")
    (tmp_path / "dangling").symlink_to(tmp_path / "nowhere")
    for name, why in (
        ("there", "is there already"),
        ("a-file", "is there already"),
        ("dangling", "is there already"),
        ("a-file/in", "cannot be made: Not a directory"),
    ):
        with pytest.raises(ConfigError, match=why):
            branch(read(file), 0, tmp_path / name)
    assert (list((tmp_path / "there").iterdir()), (tmp_path / "a-file").read_text()) == ([], "mine")
    assert not (tmp_path / "nowhere").exists()
    assert left_behind(tmp_path) == []


def test_a_bundle_that_lacks_the_folder_or_a_file_of_it_is_no_branch(tmp_path: Path, file: Path) -> None:
    """What is missing, and why, is said; an earlier step may have all of it."""

    def left_out(_: dict[str, Any], steps: list[dict[str, Any]]) -> None:
        steps[-1]["data"]["left_out"] = {TWO: "holds a secret"}

    other = tmp_path / "other"
    other.mkdir()
    with pytest.raises(ConfigError, match="does not have the folder"):
        branch(read(anyio.run(record, TURNS[3:], other)), 3, tmp_path / "branch")
    asked, secret = requests(file), read(forged(file, left_out))
    with pytest.raises(ConfigError, match=r"b\.txt as it was then: holds a secret; begin with an earlier step"):
        branch(secret, asked[1], tmp_path / "branch")
    assert left_behind(tmp_path) == []
    assert branch(secret, asked[0], tmp_path / "branch").step == asked[0]


def test_what_cannot_be_brought_back_leaves_nothing(file: Path, tmp_path: Path) -> None:
    """A tree that leads out of its folder, a record without a beginning."""
    bundle = read(file)
    hostile = with_tree(file, [entry("l", "link", target=str(tmp_path)), entry("l/planted")], [DATA])
    with pytest.raises(ReplayMismatchError, match="lies in no folder"):
        branch(read(hostile), 3, tmp_path / "branch")
    with pytest.raises(ReplayMismatchError, match="no beginning"):
        branch(replace(bundle, events=b""), 3, tmp_path / "branch")
    assert left_behind(tmp_path) == []
    assert not (tmp_path / "planted").exists()
