"""`sandbox-agent policy check`, `show` and `schema`, as their users call them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml
from cli_calls import policy_command as call

from sandbox_agent.policy.load import parse_policy
from sandbox_agent.policy.published import json_schema_text


@pytest.fixture
def config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The user's configuration folder, with nothing in it."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    folder = tmp_path / "sandbox-agent"
    folder.mkdir(mode=0o700)
    return folder


def test_check_says_ok_or_one_line_for_each_fault(tmp_path: Path) -> None:
    """Exit code 0 or 2; what is odd in a file never reaches the terminal raw."""
    bad = tmp_path / "bad.yaml"
    bad.write_text('mod: plan\n"\\e[2J": 1\nlimits: {turns: 0}\n')
    assert call("check", "ci", "default") == (0, "ci: ok\ndefault: ok\n", "")
    code, out, err = call("check", "ci", str(bad))
    assert (code, err) == (2, "")
    assert out.splitlines()[:2] == ["ci: ok", f"{bad}:1: unknown key 'mod'; did you mean 'mode'?"]
    assert len(out.splitlines()) == 4
    assert "\x1b" not in out


def test_check_as_json_has_file_line_and_message_apart(tmp_path: Path) -> None:
    """For editors and pipelines."""
    bad = tmp_path / "bad.yaml"
    bad.write_text("\nmode: fast\n")
    code, out, _ = call("check", "--json", "ci", str(bad), "nope")
    document = json.loads(out)
    assert (code, document["ok"]) == (2, False)
    assert [file["ok"] for file in document["files"]] == [True, False, False]
    [error] = document["files"][1]["errors"]
    assert (error["file"], error["line"]) == (str(bad), 2)
    assert error["message"].startswith("mode: must be 'default'")
    assert document["files"][2]["errors"][0]["line"] is None


def test_show_names_the_place_of_each_line_and_is_a_policy_itself(config: Path, tmp_path: Path) -> None:
    """The user's deny under a named policy, a saved rule, an option, a default that nobody wrote."""
    (config / "policy.yaml").write_text("rules: {deny: ['Bash(rm:*)'], allow: [Task]}\n")
    (config / "allowed.yaml").write_text("allow:\n- Bash(ls)\n")
    (config / "allowed.yaml").chmod(0o600)
    named = tmp_path / "n.yaml"
    named.write_text("name: n\nsandbox: {memory: 1536MiB}\nhooks: {stop: [{command: 'true'}]}\n")
    code, out, err = call("show", "--policy", str(named), "--mode", "plan", "--deny", "Read(/secret)")
    assert (code, err) == (0, "")
    lines = {line.split(" #")[0].strip(): line.rpartition("# ")[2] for line in out.splitlines() if " # " in line}
    assert lines['- "Bash(rm:*)"'] == f"{config}/policy.yaml:1"
    assert lines['- "Bash(ls)"'] == f"{config}/allowed.yaml:2"
    assert lines['- "Read(/secret)"'] == "--deny"
    assert lines["mode: plan"] == "--mode"
    assert lines["memory: 1536MiB"] == f"{named}:2"
    assert lines["pids: 512"] == "built in"
    assert "Task" not in out
    shown = yaml.safe_load(out)
    assert shown["sandbox"]["masks"][-1] == "/secret"
    del shown["hooks"]
    assert parse_policy(yaml.safe_dump(shown)).mode.value == "plan"


def test_show_as_json_has_rules_with_layer_and_place(config: Path) -> None:
    """And settings with theirs; null for a default that nobody wrote."""
    code, out, _ = call("show", "--json", "--policy", "untrusted", "--allow", "Task")
    document = json.loads(out)
    assert (code, document["name"], document["location"]) == (0, "untrusted", "policies/untrusted.yaml")
    assert document["rules"]["ask"][0]["id"] == "ask-git"
    assert document["rules"]["ask"][0]["layer"] == "shipped"
    assert document["rules"]["allow"][-1] == {
        "rule": "Task",
        "id": None,
        "reason": None,
        "location": "--allow",
        "layer": "command line",
    }
    assert document["settings"]["saved_rules"]["value"] == "ignore"
    assert document["settings"]["sandbox.runtime"] == {"value": "runc", "location": None}


def test_show_refuses_what_run_would_refuse(config: Path, tmp_path: Path) -> None:
    """In one line, with exit code 2."""
    workspace = tmp_path / "work"
    workspace.mkdir()
    (workspace / "p.yaml").write_text("mode: plan\n")
    code, out, err = call("show", "--policy", str(workspace / "p.yaml"), "-w", str(workspace))
    assert (code, out) == (2, "")
    assert "a policy must not lie in the workspace" in err
    assert err.count("\n") == 1
    (config / "policy.yaml").write_text("mode: plan\nlock: mode\n")
    code, _, err = call("show", "--mode", "default")
    assert (code, err) == (
        2,
        f"sandbox-agent: --mode: mode default is looser than plan, which {config}/policy.yaml:2 locks; take it out\n",
    )


def test_schema_prints_the_published_schema() -> None:
    """So that it can be put beside any policy."""
    assert call("schema") == (0, json_schema_text(), "")


def test_the_group_without_a_command_shows_its_help() -> None:
    """Readable, on stderr, with exit code 2; a near name is offered for a wrong one."""
    code, out, err = call()
    assert (code, out) == (2, "")
    assert err.startswith("Usage: sandbox-agent policy ")
    assert "\n  check" in err
    assert call("chek").err == (
        "sandbox-agent: no such command 'chek' (did you mean check or schema?); see: sandbox-agent policy --help\n"
    )


def test_show_has_an_empty_list_as_one(config: Path) -> None:
    """A key without a value would be null."""
    shown = yaml.safe_load(call("show").out)
    assert shown["sandbox"]["allow_hosts"] == []


def test_limits_and_prices_are_shown_as_they_are_written(config: Path, tmp_path: Path) -> None:
    """What is shown says the same as the file."""
    text = (
        "limits: {turns: null, tokens: 7, cost_usd: 1.5, context_tokens: 2000, subagents: {depth: 0}, "
        "prices: {'a-*': {input: 1, output: 2, cache_write: 3, cache_read: 0.5}}}\n"
    )
    path = tmp_path / "p.yaml"
    path.write_text(text)
    code, out, _ = call("show", "--policy", str(path))
    assert code == 0
    again, meant = parse_policy(out, "shown"), parse_policy(text, "p")
    assert (again.limits, again.prices) == (meant.limits, meant.prices)
    _, document, _ = call("show", "--policy", str(path), "--json")
    assert "a-*" in document
