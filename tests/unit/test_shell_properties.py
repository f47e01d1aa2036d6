"""What holds for every text: the judge never raises, never misses a command that runs, and fails closed."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from policy_desk import bash, policy

from sandbox_agent.policy.policy import Policy
from sandbox_agent.policy.shell.parser import UnreadableError, parse_with, shfmt_binary
from sandbox_agent.types import Mode, Verdict

CASES: dict[str, Any] = yaml.safe_load((Path(__file__).parents[1] / "data" / "shell_cases.yaml").read_text())
VECTORS: dict[str, Any] = yaml.safe_load((Path(__file__).parents[1] / "data" / "shell_vectors.yaml").read_text())
RULES = (
    policy(allow=["Bash(*)"], deny=["Bash(rm:*)", "Read(.env)"]),
    policy(),
    policy(ask=["Bash(git:*)"], allow=["Bash"]),
)
SHELL_PIECES = st.sampled_from(CASES["pieces"])


@settings(max_examples=150, deadline=None, derandomize=True)
@given(st.lists(SHELL_PIECES | st.text(max_size=4), max_size=12).map("".join))
def test_no_text_makes_the_judge_raise(text: str) -> None:
    """And whatever holds `rm` as a command is not allowed by what does not name it."""
    for rules in RULES:
        for mode in Mode:
            assert bash(rules, text, mode=mode).verdict in Verdict


SHELL_FORMS = st.one_of(
    st.sampled_from(CASES["forms"]),
    st.builds(
        lambda place, word: place.replace("%s", word), st.sampled_from(CASES["places"]), st.sampled_from(CASES["words"])
    ),
)


@settings(max_examples=150, deadline=None, derandomize=True)
@given(
    st.sampled_from(CASES["markers"]),
    st.lists(st.sampled_from(CASES["wrappers"]), max_size=3),
    st.lists(SHELL_FORMS, max_size=4),
)
def test_a_command_that_runs_is_never_missed(marker: str, wrappers: list[str], forms: list[str]) -> None:
    """Whatever wrappers and forms hold the denied program, the whole is not allowed."""
    text = marker
    for form in (*wrappers, *forms):
        text = form.replace("%q", shlex.quote(text)).replace("%s", text)
    assert bash(policy(allow=["Bash(*)"], deny=["Bash(mark:*)"]), text).verdict is not Verdict.ALLOW, text


COMMANDS: list[str] = [command for entry in VECTORS["vectors"] for command in entry["commands"]]


def is_whole(text: str) -> bool:
    """Bash reads it. Two texts with an open quote each are one harmless command once they are joined."""
    try:
        parse_with(shfmt_binary(), text)
    except UnreadableError:
        return False
    return True


RULE_TEXTS: list[str] = sorted(
    {rule for rules in VECTORS["rule_sets"].values() for kind in rules.values() for rule in kind} | {"Bash", "Bash(*)"}
)


def rule_set(allow: list[str], deny: list[str]) -> Policy:
    return policy(allow=allow, deny=deny, ask=["Bash(make:*)"])


# dontAsk denies what would be asked, and an allow rule may well answer that.
MODES = st.sampled_from([mode for mode in Mode if mode is not Mode.DONT_ASK])
LISTS_OF_RULES = st.lists(st.sampled_from(RULE_TEXTS), max_size=4)


@settings(max_examples=150, deadline=None)
@given(st.sampled_from(COMMANDS), LISTS_OF_RULES, LISTS_OF_RULES, st.sampled_from(RULE_TEXTS), MODES)
def test_a_denial_stays_whatever_else_is_allowed(
    command: str, allow: list[str], deny: list[str], more: str, mode: Mode
) -> None:
    """Adding an allow rule never turns deny into anything else."""
    if bash(rule_set(allow, deny), command, mode=mode).verdict is Verdict.DENY:
        added = bash(rule_set([*allow, more], deny), command, mode=mode)
        assert added.verdict is Verdict.DENY


@settings(max_examples=150, deadline=None)
@given(st.sampled_from(COMMANDS), LISTS_OF_RULES, LISTS_OF_RULES, st.sampled_from(RULE_TEXTS), st.sampled_from(Mode))
def test_a_deny_rule_more_never_loosens(command: str, allow: list[str], deny: list[str], more: str, mode: Mode) -> None:
    """In any mode."""
    without = bash(rule_set(allow, deny), command, mode=mode).verdict
    assert bash(rule_set(allow, [*deny, more]), command, mode=mode).verdict >= without


@settings(max_examples=200, deadline=None)
@given(
    st.sampled_from(COMMANDS),
    st.sampled_from(COMMANDS),
    st.sampled_from(
        ["%s\n%s", "{ %s\n} && { %s\n}", "( %s\n) | { %s\n}", "if %s\nthen %s\nfi", "! { %s\n} || { %s\n}"]
    ),
    st.sampled_from(sorted(VECTORS["rule_sets"])),
)
def test_a_compound_is_as_strict_as_its_strictest_part(one: str, other: str, form: str, rules: str) -> None:
    """In whatever list the parts stand."""
    assume(is_whole(one) and is_whole(other))
    judged_by = policy(**VECTORS["rule_sets"][rules])
    parts = max(bash(judged_by, one).verdict, bash(judged_by, other).verdict)
    assert bash(judged_by, form % (one, other)).verdict >= parts


def test_the_parser_is_the_one_of_the_package() -> None:
    """Found by the package's record, and it reads bash."""
    binary = shfmt_binary()
    assert binary is not None
    assert parse_with(binary, "ls")["Stmts"][0]["Cmd"]["Type"] == "CallExpr"


@pytest.mark.parametrize(
    ("program", "message"),
    [
        ("exec sleep 60", "took too long"),
        ("exec cat /dev/zero", "too large"),
        ("echo '{'", "gave no tree"),
        ("echo '[]'", "gave no tree"),
        ("echo oops >&2; exit 1", "not valid bash: oops"),
    ],
)
def test_a_parser_that_fails_makes_the_text_unreadable(tmp_path: Path, program: str, message: str) -> None:
    """Whichever way it fails, in bounded time and memory."""
    fake = tmp_path / "shfmt"
    fake.write_text(f"#!/bin/sh\n{program}\n")
    fake.chmod(0o755)
    with pytest.raises(UnreadableError, match=message):
        parse_with(str(fake), "ls")


def test_without_the_parser_nothing_is_readable(tmp_path: Path) -> None:
    """Not installed, or not there any more."""
    with pytest.raises(UnreadableError, match="reinstall the package shfmt-py"):
        parse_with(None, "ls")
    with pytest.raises(UnreadableError, match="could not be run"):
        parse_with(str(tmp_path / "gone"), "ls")
