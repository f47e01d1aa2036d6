"""`policy test`: files of cases in YAML and JSON, what it says of failures, and its reports."""

from __future__ import annotations

import json
from pathlib import Path
from xml.etree import ElementTree

import pytest
from cli_calls import policy_command

MINE = """\
policy: ./mine.yaml
cases:
  - {call: "Bash(git push)", expect: deny}
  - {call: "Bash(make \x1b[1m)", expect: allow, name: odd}
  - call: Edit(src/a.py)
    mode: acceptEdits
    expect: allow
  - {call: "Read(/etc/passwd)", expect: deny, also_ok: ask}
  - {command: "true", policy: readonly, expect: allow}
  - {command: ls, rules: {allow: ["Bash(cat:*)"]}, expect: ask}
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "mine.yaml").write_text("rules:\n  deny: ['Bash(git push:*)']\n")
    (tmp_path / "cases.yaml").write_text(MINE.replace("\x1b", "\\x1b"))
    return tmp_path


def test_a_failure_is_one_line_with_its_place_and_what_decided(folder: Path) -> None:
    """Policies are looked for beside the file; each case has its own policy, mode or rules where it says so."""
    code, out, err = policy_command("test", str(folder / "cases.yaml"))

    assert (code, err) == (1, "")
    first, second, summary = out.splitlines()
    assert first.startswith(f"{folder}/cases.yaml:4: odd: got ask, wanted allow: ")
    assert second == f"{folder}/cases.yaml:8: Read(/etc/passwd): got allow, wanted deny (or ask): it only reads."
    assert summary == "6 cases: 4 passed, 2 failed"


def test_json_and_junit_say_the_same(folder: Path) -> None:
    """For programs; control characters are escapes in both."""
    report = folder / "report.xml"
    code, out, _ = policy_command("test", "--json", "--junit", str(report), str(folder / "cases.yaml"))
    document = json.loads(out)
    suite = ElementTree.fromstring(report.read_bytes())[0]

    assert (code, document["passed"], document["failed"]) == (1, 4, 2)
    assert (suite.get("tests"), suite.get("failures")) == ("6", "2")
    assert [case.get("line") for case in suite] == ["3", "4", "5", "8", "9", "10"]
    assert [len(case) for case in suite] == [0, 1, 0, 1, 0, 0]
    assert document["cases"][0]["rule_location"] == f"{folder}/mine.yaml:2"


@pytest.mark.parametrize("wrap", [lambda cases: cases, lambda cases: {"note": 1, "vectors": cases}])
def test_json_takes_a_list_or_an_object_and_knows_lines(tmp_path: Path, wrap: object) -> None:
    """As vectors come: each with its rules, under which nothing else is allowed."""
    assert callable(wrap)
    rules: dict[str, list[str]] = {"allow": [], "deny": []}
    vector = {"id": "v1", "command": "ls", "rules": rules, "expect": "allow", "must_not": ["ask"], "more": {}}
    content = wrap([vector, {**vector, "id": 2, "command": "a\u0000b", "expect": "deny"}])
    path = tmp_path / "v.json"
    path.write_text(json.dumps(content, indent=1))
    code, out, _ = policy_command("test", str(path))

    line = path.read_text()[: path.read_text().index('"v1"')].count("\n")
    assert code == 1
    assert out.startswith(f"{path}:{line}: v1: got ask, which it must not be, wanted allow: ")
    assert out.endswith("2 cases: 1 passed, 1 failed\n")


def test_cases_without_a_policy_are_judged_by_the_given_one(folder: Path) -> None:
    """Else by the shipped default, and never by what this machine's user has."""
    path = folder / "bare.yaml"
    path.write_text("- {call: Bash(git push), expect: deny}\n- {call: Bash(npm test), expect: ask}\n")
    assert policy_command("test", str(path), "--policy", str(folder / "mine.yaml")).code == 0
    assert policy_command("test", str(path)).out.splitlines()[0].startswith(f"{path}:2: Bash(npm test): got allow")


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("cases: []", "there is no case"),
        ("x", "is a list, or a mapping"),
        ("{policy: default}", "no list under cases"),
        ("cases:\n  - {call: Bash(ls), expect: yes}", ":2: expect: "),
        ("cases:\n  - {call: Bash(ls)}", ":2: expect: is missing"),
        ("cases:\n  - {call: Bash(ls), expect: ask, expct: x}", ":2: unknown key 'expct'"),
        ("cases:\n  - {call: Bash(ls), command: ls, expect: ask}", ":2: write either"),
        ("cases:\n  - {call: Bash(ls), expect: ask, must_not: ask}", ":2: what is expected"),
        ("cases:\n  - {call: Bash(ls), expect: ask, policy: nosuch}", "nosuch"),
        ("cases:\n  - {call: Bash(ls), expect: ask, policy: ./no.yaml}", "no.yaml"),
        ("cases:\n  - {call: git status, expect: ask}", ":2: 'git status' is not a call"),
        ("cases:\n  - {call: Bash(ls), expect: ask, rules: {allow: ['Bash(']}}", ":2: rule 'Bash('"),
        ("cases:\n  - {call: Bash(ls), expect: ask, expect: deny}", ":2: the key 'expect' is there twice"),
        ("cases:\n  - &a {call: Bash(ls), expect: ask}\n  - *a", "aliases"),
        ("cases:\n  - {call: Bash(ls), expect: [ask]}", ":2: expect: must be 'allow', 'ask' or 'deny'"),
        ("cases:\n  - {call: Bash(ls), expect: ask, rules: []}", ":2: rules: must be a mapping\n"),
        ("cases:\n  - {call: Bash(ls), expect: ask, cwd: [x]}", ":2: cwd: must be a valid string"),
        ("cases: [", "not valid YAML"),
        ("cases:\n  - ls", ":2: a case is a mapping"),
    ],
)
def test_a_file_that_is_wrong_is_named_with_its_line(tmp_path: Path, text: str, told: str) -> None:
    """One line, exit code 2, nothing half-run."""
    path = tmp_path / "c.yaml"
    path.write_text(text)
    code, out, err = policy_command("test", str(path))

    assert (code, out) == (2, "")
    assert told in err
    assert err.count("\n") == 1


def test_what_cannot_be_read_is_said(tmp_path: Path) -> None:
    """A missing file, a folder, bytes that are no text."""
    (tmp_path / "bytes").write_bytes(b"\xff\xfe")
    for name in ("missing", ".", "bytes"):
        assert policy_command("test", str(tmp_path / name)).code == 2


def test_a_policy_that_is_not_there_is_said_with_the_case_that_names_it(tmp_path: Path) -> None:
    """One given by option is not the file's fault, so no line of it is named."""
    file = tmp_path / "cases.yaml"
    file.write_text("cases:\n  - {command: ls, expect: allow}\n  - {command: ls, expect: allow, policy: ./none.yaml}\n")

    code, _, err = policy_command("test", str(file))
    assert (code, err.startswith(f"sandbox-agent: {file}:3: its policy: {tmp_path}/")) == (2, True)
    code, _, err = policy_command("test", "--policy", "nosuch", str(file))
    assert (code, str(file) in err) == (2, False)
