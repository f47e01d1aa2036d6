"""`policy import`: permission lists of Claude Code as a policy that loads, with a note for all that is different."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from cli_calls import policy_command
from hypothesis import given
from hypothesis import strategies as st

from sandbox_agent.policy.call_text import parse_call
from sandbox_agent.policy.importing import read_settings
from sandbox_agent.policy.load import parse_policy
from sandbox_agent.types import Mode, Verdict

SETTINGS: dict[str, Any] = {
    "$schema": "x",
    "model": "m",
    "permissions": {
        "allow": [
            "Bash(npm run *)",
            "Bash(ls:*)",
            "Bash(npm run build)",
            "WebFetch(domain:example.org)",
            "mcp__srv",
            "mcp__srv__*",
            "Edit(/src/**)",
            "Agent(Explore)",
            "Skill(x)",
            "mcp__*",
            "Write(a)",
            "Bash(cd a && make)",
            "Bash(run_in_background:true)",
        ],
        "ask": ["Bash(git commit:*)", "Read(~/.ssh/**)"],
        "deny": ["Bash(rm:*)", "Read(./.env)", "Read(//etc/**)", "Write(b)", "*bad("],
        "defaultMode": "acceptEdits",
        "additionalDirectories": ["../other"],
        "surprise": 1,
    },
}


@pytest.fixture
def settings(tmp_path: Path) -> Path:
    path = tmp_path / ".claude" / "settings.json"
    path.parent.mkdir()
    path.write_text(json.dumps(SETTINGS))
    return path


def test_the_lists_are_taken_over_and_load(settings: Path) -> None:
    """Each entry in the same list, as the same rule where it means the same."""
    code, out, err = policy_command("import", str(settings))
    taken = parse_policy(out, "taken")

    assert code == 0
    assert taken.mode is Mode.ACCEPT_EDITS
    assert [rule.text for rule in taken.rules.allow] == [
        *("Bash(npm run *)", "Bash(ls:*)", "Bash(npm run build)", "WebFetch(domain:example.org)"),
        *("mcp__srv", "mcp__srv__*", "Edit(/src/**)", "Task(Explore)"),
    ]
    assert [rule.text for rule in taken.rules.ask] == ["Bash(git commit:*)", "Read(~/.ssh/**)"]
    assert [rule.text for rule in taken.rules.deny] == ["Bash(rm:*)", "Read(./.env)", "Read(//etc/**)", "Edit(b)"]
    for text, verdict in (
        ("Bash(npm run x)", Verdict.ALLOW),
        ("Bash(ls; rm x)", Verdict.DENY),
        ("Read(.env)", Verdict.DENY),
    ):
        assert taken.decide(parse_call(text), Mode.DEFAULT).verdict is verdict
    assert len(err.splitlines()) == out.count("    # ") + 3


def test_each_difference_is_one_line(settings: Path) -> None:
    """What is left out and what means something else, with why."""
    err = policy_command("import", str(settings)).err
    notes = [line.removeprefix("note: ") for line in err.splitlines()]

    assert notes == [
        '"model" of the settings is left out: only permissions are taken over',
        "additionalDirectories is left out: "
        "only the workspace is in the container; what lies elsewhere cannot be reached",
        '"surprise" is left out: it is not known here',
        'deny: not the same: "Read(//etc/**)": a path of the container, where the host\'s folders are not',
        'deny: not the same: "Write(b)": it had no effect there; here it is Edit(...), which covers Write',
        'deny: left out: "*bad(": it is not Tool or Tool(specifier)',
        'ask: not the same: "Read(~/.ssh/**)": ~ is the home of the tools in the container, not yours',
        'allow: not the same: "WebFetch(domain:example.org)": '
        "it asks nobody, but the network is none until the policy's sandbox section opens a host",
        'allow: not the same: "Agent(Explore)": Agent is called Task here',
        'allow: left out: "Skill(x)": there is no such tool here',
        'allow: left out: "mcp__*": an allow rule takes a wildcard only after a literal server, as in mcp__server__*',
        'allow: left out: "Write(a)": it had no effect there; write Edit(...) if it is meant',
        'allow: left out: "Bash(cd a && make)": '
        "a rule judges one simple command; write one rule per command, and Edit(path) for redirects",
        'allow: left out: "Bash(run_in_background:true)": rules about single parameters of a call are not known here',
    ]


def test_a_path_of_the_project_becomes_one_of_the_workspace(settings: Path, tmp_path: Path) -> None:
    """The folder of the settings' folder is what a run works on."""
    settings.write_text(json.dumps({"permissions": {"allow": [f"Edit(/{tmp_path}/src/**)", "Edit(//opt/x)"]}}))
    rules = [one.rule for one in read_settings(settings).rules["allow"]]
    assert rules == ["Edit(/src/**)", "Edit(//opt/x)"]


@pytest.mark.parametrize(
    ("permissions", "mode"),
    [
        ({"allow": [], "defaultMode": "manual"}, Mode.DEFAULT),
        ({"allow": [], "defaultMode": "auto"}, Mode.DEFAULT),
        ({"allow": [], "denyInsteadOfPrompting": True}, Mode.DONT_ASK),
        ({"allow": [], "defaultMode": "bypassPermissions"}, Mode.BYPASS),
    ],
)
def test_modes_are_those_of_the_field(tmp_path: Path, permissions: dict[str, Any], mode: Mode) -> None:
    """One that is not known becomes the strict one."""
    path = tmp_path / "settings.json"
    path.write_text(json.dumps(permissions))
    assert read_settings(path).mode is mode


def test_it_is_written_to_a_new_file_only(settings: Path, tmp_path: Path) -> None:
    """And `policy check` takes it."""
    target = tmp_path / "imported.yaml"
    assert policy_command("import", str(settings), "-o", str(target)).code == 0
    assert policy_command("check", str(target)).code == 0
    assert policy_command("import", str(settings), "-o", str(target)).code == 2


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("{", "settings.json:1: not valid JSON"),
        ("[]", "a JSON object"),
        ("{}", "no permissions object"),
        ('{"permissions": {"allow": "Bash"}}', "permissions.allow is a list"),
        ('{"permissions": {"deny": [1]}}', "permissions.deny is a list"),
    ],
)
def test_a_file_that_is_something_else_is_refused(tmp_path: Path, text: str, told: str) -> None:
    """In one line."""
    path = tmp_path / "settings.json"
    path.write_text(text)
    code, out, err = policy_command("import", str(path))
    assert (code, out) == (2, "")
    assert told in err


def test_no_entry_turns_round_what_a_terminal_shows_of_it(tmp_path: Path) -> None:
    """In the rules and in the comments; the rule itself stays what it was."""
    entries = ["Bash(ls \u202e\x1b[31m)", "Edit(\u202e/../x\u2066)", "Bash(a\u202e | b)"]
    path = tmp_path / "settings.json"
    path.write_text(json.dumps({"permissions": {"allow": entries}}))
    code, out, _ = policy_command("import", str(path))

    assert code == 0
    assert all(line.isprintable() for line in out.split("\n"))
    assert parse_policy(out, "imported").rules.allow[0].text == entries[0]


TOOLS = st.sampled_from(
    ["Bash", "Read", "Edit", "Write", "Glob", "WebFetch", "Agent", "mcp__a__b", "Skill", "*", "LS", ""]
)
ENTRIES = st.one_of(
    st.text(max_size=12), st.builds(lambda tool, inner: f"{tool}({inner})", TOOLS, st.text(max_size=12)), TOOLS
)


@given(st.dictionaries(st.sampled_from(["allow", "ask", "deny"]), st.lists(ENTRIES, max_size=5)))
def test_whatever_the_entries_are_the_result_loads(lists: dict[str, list[str]]) -> None:
    """And no entry is lost without a word."""
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "settings.json"
        path.write_text(json.dumps({"permissions": lists}))
        found = read_settings(path)
    loaded = parse_policy(found.text("settings\n.json"), "imported")

    for name, entries in lists.items():
        taken = found.rules[name]
        assert [one.entry for one in taken] == entries
        assert all(one.rule is not None or one.note for one in taken)
        assert {one.rule for one in taken if one.rule is not None} == {
            rule.text for rule in getattr(loaded.rules, name)
        }
