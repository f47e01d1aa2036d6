"""Reading policy files: YAML as written by people, what is no policy file, and all that is wrong at once."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from sandbox_agent.errors import PolicyError
from sandbox_agent.policy.load import check_policy, load_policy, parse_policy
from sandbox_agent.policy.source import parse_document
from sandbox_agent.types import Mode


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("on", "on"),
        ("no", "no"),
        ("Off", "Off"),
        ("true", True),
        ("False", False),
        ("1:30", "1:30"),
        ("010", 10),
        ("0x10", 16),
        ("0o10", 8),
        ("1_000", "1_000"),
        ("1e3", 1000.0),
        (".5", 0.5),
        ("-.inf", float("-inf")),
        ("2024-01-01", "2024-01-01"),
        ("~", None),
        ("''", ""),
        ("'true'", "true"),
        ('"1"', "1"),
        ("9" * 41, "9" * 41),
    ],
)
def test_words_are_read_by_the_rules_of_yaml_1_2(text: str, value: object) -> None:
    """`on` and `no` are words and 1:30 is no number of seconds, as editors see them."""
    read = parse_document(f"a: {text}\n", "p").data["a"]
    assert (read, type(read)) == (value, type(value))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("mode: plan\n\tname: x\n", "p:2: not valid YAML: a tab cannot indent; use spaces"),
        ("mode: @plan\n", "p:1: not valid YAML: a value that begins with @ needs quotes"),
        ("a: 1\n---\nb: 1\n", "p:2: a policy is one YAML document; take out the second `---`"),
        ("a: 1\nb: \x01\n", "p:2: not valid YAML: the control character '\\x01'"),
        ("mode: !!str plan\nname: !x y\n", "p:2: 'y' is not a value a policy takes; write it without a tag"),
        ("? [a]\n: 1\n", "p:1: a key is one word, not a list or a mapping"),
        ("a: &x 1\nb: *x\n", "p:2: YAML aliases (*x) are not taken"),
        ("<<: {mode: plan}\n", "p:1: unknown key '<<'"),
        ("a: 'x\n", "p:2: not valid YAML: "),
        ("x" * 100, "p:1: a policy is a mapping"),
        ("a: " + "[" * 100_000, "p:1: the policy is nested too deeply"),
        (
            "mode: on\n",
            "p:1: mode: must be 'default', 'acceptEdits', 'plan', 'dontAsk' or 'bypassPermissions', not 'on'",
        ),
        ("mode: true\n", "'bypassPermissions', not true"),
        ("mode: acceptedits\n", "not 'acceptedits'; did you mean 'acceptEdits'?"),
        ("version: true\n", "p:1: version: must be 1, not true"),
        ("name: 2024\n", "p:1: name: must be a valid string, not 2024"),
        ("name: a b\n", "p:1: name: must match ^[A-Za-z0-9][A-Za-z0-9._-]*$, not 'a b'"),
        ("sandbox: {cpus: .nan}\n", "sandbox.cpus: must be a finite number, not .nan"),
        ("sandbox: {cpus: 1e-10}\n", "sandbox.cpus: must be greater than or equal to 0.01, not 1e-10"),
        ("sandbox: {cpus: true}\n", "sandbox.cpus: must be a valid number, not true"),
        ("sandbox: {pids: -1}\n", "sandbox.pids: must be greater than or equal to 16, not -1"),
        ("sandbox: {memory: -2GiB}\n", "sandbox.memory: must be a size such as 2GiB or 500MB, not '-2GiB'"),
        ("sandbox: {memory: " + "9" * 400 + "}\n", "sandbox.memory: must be a size such as 2GiB or 500MB"),
        ("sandbox: {disk: 9999TiB}\n", "sandbox.disk: must be at most 1024TiB, not '9999TiB'"),
        ("sandbox: {masks: [a, no, 3]}\n", "sandbox.masks.2: must be a valid string, not 3"),
        ("limits: {wall_s: .inf}\n", "limits.wall_s: must be a finite number, not .inf"),
        ("limits: {wall_s: 1:30}\n", "limits.wall_s: must be a valid number, not '1:30'"),
        ("limits: {turns: 1e400}\n", "limits.turns: must be a valid integer, not 1e400"),
        ("limits: 3\n", "p:1: limits: must be a mapping of keys, not 3"),
        ("rules: {deny: [null]}\n", "rules.deny.0: must be a mapping of keys, not empty"),
        ("rules: {deny: [{id: x}]}\n", "rules.deny.0.rule: is missing"),
        ("lock: [sandbox.memry]\n", "p:1: lock 'sandbox.memry': there is no such part; did you mean 'sandbox.memory'?"),
        ("lock: {a: 1}\n", "p:1: lock: must be a name, or a list of names, not a mapping"),
        ("hooks: {stop: [{comand: x}]}\n", "unknown key 'hooks.stop.0.comand'; did you mean 'command'?"),
    ],
)
def test_what_people_get_wrong_is_said_in_words_of_the_file(text: str, message: str) -> None:
    """The place, the value as it was written, and what to write instead."""
    with pytest.raises(PolicyError) as caught:
        parse_policy(text, "p")
    assert message in str(caught.value)


def test_a_file_from_windows_is_read(tmp_path: Path) -> None:
    """With a byte order mark and carriage returns, the lines still right."""
    path = tmp_path / "p.yaml"
    path.write_bytes(b"\xef\xbb\xbfmode: plan\r\nrules:\r\n  deny:\r\n  - Bash(rm)\r\n")
    policy = load_policy(str(path))
    assert (policy.mode, policy.rules.deny[0].location) == (Mode.PLAN, f"{path}:4")


def test_what_is_no_file_is_refused_at_once(tmp_path: Path) -> None:
    """A pipe that nobody writes to, a device, a socket's kin, a link to itself, another encoding."""
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "loop").symlink_to("loop")
    (tmp_path / "to-pipe").symlink_to("pipe")
    (tmp_path / "utf16").write_bytes("mode: plan\n".encode("utf-16"))
    for name, message in [
        (str(tmp_path / "pipe"), "not a pipe, socket or device"),
        (str(tmp_path / "to-pipe"), "not a pipe, socket or device"),
        ("/dev/zero", "not a pipe, socket or device"),
        (str(tmp_path / "loop"), "symbolic links"),
        (str(tmp_path / "utf16"), "the policy is UTF-16; save it as UTF-8"),
        (str(tmp_path / ("x" * 5000)), "File name too long"),
        ("./a\0b", "its name holds a NUL character"),
        ("~nobody-of-this-name/x", "No such file"),
        ("", "the name of the policy is empty"),
    ]:
        with pytest.raises(PolicyError, match=message):
            load_policy(name)


def test_all_that_is_wrong_is_found_at_once(tmp_path: Path) -> None:
    """Shapes, rules, examples, keys that are there twice, also in what is extended; in the order of the lines."""
    (tmp_path / "base.yaml").write_text("mod: plan\n")
    path = tmp_path / "p.yaml"
    path.write_text(
        "extends: base.yaml\nmode: fast\nmode: plan\nrules:\n  deny:\n  - Bsh(x)\n  - {rule: Edit, reasn: x}\n"
        "limits: {turns: 0, tokens: 0}\n"
    )
    found = [str(fault).replace(f"{tmp_path}/", "") for fault in check_policy(str(path))]
    assert [line.split(" ")[0] for line in found] == [
        *("p.yaml:2:", "p.yaml:3:", "p.yaml:6:", "p.yaml:7:", "p.yaml:8:", "p.yaml:8:", "base.yaml:1:")
    ]
    assert "there is no tool Bsh" in found[2]
    path.write_text("rules:\n  deny:\n  - Edit(\n  - {rule: 'Bash(ls)', matches: [rm]}\nsandbox: {masks: ['']}\n")
    assert [fault.location for fault in check_policy(str(path))] == [f"{path}:3", f"{path}:4", f"{path}:5"]


def test_a_run_is_refused_with_the_first_fault_and_their_number() -> None:
    """And the command that lists the others."""
    with pytest.raises(PolicyError) as caught:
        parse_policy("mode: plan\nmod: x\nlimits: {turns: 0}\n", "p")
    assert str(caught.value) == ("p:2: unknown key 'mod'; did you mean 'mode'? (1 more: sandbox-agent policy check)")
    assert caught.value.location == "p:2"
