"""Files of agent types: what loads, and that whatever does not is one line that says where and what to do."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from sandbox_agent.engine.agent_types import AgentType, load_agent_types
from sandbox_agent.errors import ConfigError
from sandbox_agent.tools.pool import builtin_tools
from sandbox_agent.types import Mode

TOOLS = [tool.name for tool in builtin_tools()]
HEAD = "---\nname: x\ndescription: d\n"
GOOD = f"{HEAD}---\nbody\n"
NO_FRONT = "x.md:1: an agent's file begins with `---`, its front matter, and another `---`"

BAD_FILES = [
    ("", NO_FRONT),
    ("hello", NO_FRONT),
    (HEAD, NO_FRONT),
    (f"# title\n{GOOD}", NO_FRONT),
    (GOOD.replace("\n", "\r"), NO_FRONT),
    ("---\n- a\n---\nb", "x.md:1: an agent's file is a mapping of keys such as name: and description:"),
    ("---\nname: x\n---\nb", "x.md:2: description is missing"),
    ("---\nname: x\ndescription: ''\n---\nb", "x.md:3: description: must not be empty"),
    (f"---\nname: x\ndescription: {'d' * 1001}\n---\nb", "x.md:3: description: must have at most 1000 characters"),
    ("---\nname: x\ndescription: a: b\n---\nb", "x.md:3: not valid YAML"),
    ("---\nname: x\ndescription: [a\n---\nb", "x.md:4: not valid YAML"),
    ("---\nname: x\nname: y\ndescription: d\n---\nb", "x.md:3: the key 'name' is there twice"),
    ("---\nname: &a x\ndescription: *a\n---\nb", "x.md:3: YAML aliases (*a) are not taken"),
    ("---\nname: a b\ndescription: d\n---\nb", "x.md:2: name: letters, digits, `-` and `_`, at most 64"),
    ("---\nname: ../x\ndescription: d\n---\nb", "x.md:2: name: letters"),
    ("---\nname: 3\ndescription: d\n---\nb", "x.md:2: name: must be text"),
    (f"{HEAD}tool: [Read]\n---\nb", "x.md:4: unknown key 'tool'. Did you mean tools?"),
    (f"{HEAD}tools: 3\n---\nb", "x.md:4: tools: must be a list of names, or names with commas between"),
    (f"{HEAD}tools:\n---\nb", "x.md:4: tools has no value; give it one, or leave the key out"),
    (f"{HEAD}tools: Read, Bsh\n---\nb", "x.md:4: tools: there is no tool 'Bsh'. Did you mean Bash?"),
    (f"{HEAD}disallowedTools: [Raed]\n---\nb", "x.md:4: disallowedTools: there is no tool 'Raed'. Did you mean Read?"),
    (f"{HEAD}tools: ['Bash(git:*)']\n---\nb", "x.md:4: tools: a tool is named without brackets: write Bash"),
    (f"{HEAD}tools: {'[' * 60}{']' * 60}\n---\nb", "x.md:4: an agent's file is nested too deeply"),
    (f"{HEAD}mode: fast\n---\nb", "x.md:4: mode: must be one of default, acceptEdits, plan, dontAsk"),
    (f"{HEAD}mode: plan\npermissionMode: default\n---\nb", "x.md:5: permissionMode is the same as mode"),
    (f"{HEAD}max_turns: 0\n---\nb", "x.md:4: max_turns: must be 1 or more"),
    (f"{HEAD}maxTurns: many\n---\nb", "x.md:4: maxTurns: must be a whole number"),
    (f"{HEAD}maxTurns: true\n---\nb", "x.md:4: maxTurns: must be a whole number"),
    (f"{HEAD}model: ''\n---\nb", "x.md:4: model: must not be empty"),
    (f"{HEAD}model: script:x.yaml\n---\nb", "x.md:4: model: the name of another model of the same API, alone"),
    ("---\nname: x\ndescription: ' '\n---\nb", "x.md:3: description: must not be empty"),
    (f"{HEAD}---\n \n", "the text below the front matter, which tells the agent what it is, is empty"),
    (GOOD + "x" * 300_000, "x.md: an agent's file is longer than 256 KiB"),
    (b"---\nname: \xff\n---\nb", "x.md: not UTF-8 text (byte 10)"),
    (GOOD.encode("utf-16"), "x.md: not UTF-8 text (byte 0)"),
]


def load(folder: Path) -> dict[str, AgentType]:
    return dict(load_agent_types(folder / "agents", TOOLS, folder / "workspace"))


def write(folder: Path, text: str | bytes, name: str = "x.md") -> Path:
    path = folder / "agents" / name
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return path


@pytest.mark.parametrize(("text", "said"), BAD_FILES, ids=range(len(BAD_FILES)))
def test_a_bad_file_is_one_line_with_its_place(tmp_path: Path, text: str | bytes, said: str) -> None:
    """No file that is wrong starts a run with fewer or more tools than it means."""
    write(tmp_path, text)
    with pytest.raises(ConfigError) as caught:
        load(tmp_path)
    assert said in str(caught.value)
    assert str(caught.value).startswith(str(tmp_path / "agents" / "x.md"))
    assert "\n" not in str(caught.value)


def test_what_is_no_file_is_said_and_never_waited_for(tmp_path: Path) -> None:
    """A FIFO, a folder, a link to nowhere, and a file in place of the folder."""
    path = write(tmp_path, GOOD)
    for make, said in (
        (os.mkfifo, "not a pipe, socket or device"),
        (os.mkdir, "Is a directory"),
        (lambda place: os.symlink("nowhere", place), "No such file"),
    ):
        path.unlink()
        make(path)
        with pytest.raises(ConfigError, match=said):
            load(tmp_path)
        if path.is_dir():
            path.rmdir()
            path.touch()
    path.unlink()
    path.parent.rmdir()
    path.parent.touch()
    with pytest.raises(ConfigError, match="Not a directory"):
        load(tmp_path)


def test_none_may_lie_in_the_workspace(tmp_path: Path) -> None:
    """Not by a link either, nor by a folder that is one; what lies there besides is never looked for."""
    inside = tmp_path / "workspace" / "agents"
    inside.mkdir(parents=True)
    (inside / "x.md").write_text(GOOD)
    assert "x" not in load(tmp_path)

    (tmp_path / "agents").symlink_to(inside)
    with pytest.raises(ConfigError, match="must not lie in the workspace"):
        load(tmp_path)
    (tmp_path / "agents").unlink()
    write(tmp_path, GOOD).unlink()
    (tmp_path / "agents" / "x.md").symlink_to(inside / "x.md")
    with pytest.raises(ConfigError, match="must not lie in the workspace"):
        load(tmp_path)


@pytest.mark.parametrize("text", [GOOD, f"\ufeff{GOOD}", GOOD.replace("\n", "\r\n"), GOOD.replace("---\n", "--- \n")])
def test_a_file_loads_however_it_was_saved(tmp_path: Path, text: str) -> None:
    """With a byte order mark, and with the line ends of another system."""
    write(tmp_path, text)
    write(tmp_path, "not one", ".x.md.swp.md")
    write(tmp_path, "not one", "README")
    kind = load(tmp_path)["x"]
    assert (kind.description, kind.instruction, kind.tools, kind.mode) == ("d", "body", None, None)


def test_keys_of_other_programs_are_known(tmp_path: Path) -> None:
    """A list or a text with commas, camel case, older names of tools, patterns for the tools of servers."""
    front = (
        "tools: Read, BashOutput, mcp__a__*\ndisallowedTools: [Wr*]\npermissionMode: plan\nmaxTurns: 7\ncolor: red\n"
    )
    write(tmp_path, f"{HEAD}{front}model: inherit\n---\nfirst\n\n---\nlast\n")
    kind = load(tmp_path)["x"]
    assert (kind.tools, kind.disallowed_tools) == (("Read", "TaskOutput", "mcp__a__*"), ("Wr*",))
    assert (kind.mode, kind.max_turns, kind.model) == (Mode.PLAN, 7, None)
    assert kind.instruction == "first\n\n---\nlast"
    assert [name for name in ("Read", "TaskOutput", "Write", "mcp__a__b", "mcp__b__a") if kind.has(name)] == [
        "Read",
        "TaskOutput",
        "mcp__a__b",
    ]


def test_an_own_one_replaces_a_shipped_one_and_no_other_own_one(tmp_path: Path) -> None:
    """Two own ones of one name are a mistake that names both files."""
    assert {"general-purpose", "explore"} <= load(tmp_path).keys()
    write(tmp_path, GOOD.replace("name: x", "name: explore"), "mine.md")
    assert load(tmp_path)["explore"].instruction == "body"
    assert load(tmp_path)["explore"].source == str(tmp_path / "agents" / "mine.md")
    write(tmp_path, GOOD.replace("name: x", "name: explore"), "other.md")
    with pytest.raises(ConfigError, match=r"other.md: the name 'explore' is that of .*mine.md already"):
        load(tmp_path)


def test_shipped_ones_are_right(tmp_path: Path) -> None:
    """One that only reads, in plan mode and without a tool that changes files; one that has everything."""
    kinds = load(tmp_path)
    assert kinds["explore"].mode is Mode.PLAN
    assert not any(kinds["explore"].has(name) for name in ("Write", "Edit", "NotebookEdit", "Task"))
    assert all(kinds["explore"].has(name) for name in ("Bash", "TaskOutput", "TaskStop"))  # it may start a job
    assert all(kinds["general-purpose"].has(name) for name in TOOLS)


def test_no_more_than_a_model_can_be_offered(tmp_path: Path) -> None:
    """Each is a line in every request."""
    for number in range(50):
        write(tmp_path, GOOD.replace("name: x", f"name: x{number}"), f"{number}.md")
    with pytest.raises(ConfigError, match="52 agent types; at most 50"):
        load(tmp_path)


def test_the_example_of_the_documentation_loads(tmp_path: Path) -> None:
    """It is copied more often than it is read."""
    text = (Path(__file__).parents[2] / "docs" / "agents.md").read_text()
    write(tmp_path, text.partition("```markdown\n")[2].partition("```")[0])
    kind = load(tmp_path)["reviewer"]
    assert (kind.mode, kind.max_turns, kind.tools) == (Mode.PLAN, 30, ("Read", "Grep", "Glob", "mcp__tracker__*"))
