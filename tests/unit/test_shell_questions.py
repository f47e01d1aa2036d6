"""What runs without a question under the read-only list, and what that list does not speak for."""

from __future__ import annotations

import pytest
from policy_desk import bash, policy

from sandbox_agent.types import Verdict

UNASKED = [
    'ls; echo "exit $?"',
    "echo $PWD $1 ${HOME} $#",
    'echo "== ${name} =="',
    "ls *.py",
    "wc -l *",
    "grep -n import *.py | head",
    "cat [ab]*.md",
    'for f in *.txt; do head -3 "$f"; done',
]


@pytest.mark.parametrize("command", UNASKED)
def test_what_can_only_print_or_read_runs_whatever_the_words_become(command: str) -> None:
    """A variable that echo prints, a file pattern of a program to which no option does harm."""
    decision = bash(policy(), command)
    assert decision.verdict is Verdict.ALLOW, decision.reason


ASKED = [
    "echo $(make)",
    "echo ${x:=y}",
    "echo ${x@P}",
    "echo ${a[0]}",
    "echo $((1+1))",
    "echo ~bob",
    "echo {a,$x}",
    "echo $x > out",
    "printf $x",
    "sort *",
    "find *",
    "rm *",
    "ls -*",
    "$x",
    "git log $x",
]


@pytest.mark.parametrize("command", ASKED)
def test_what_could_do_more_is_asked(command: str) -> None:
    """Other expansions than a variable's value, other programs."""
    assert bash(policy(), command).verdict is Verdict.ASK


@pytest.mark.parametrize("command", ["wc -l *", "cat [ab]*.md", "grep -n import *.py"])
def test_names_that_are_not_known_are_asked_where_reading_is_restricted(command: str) -> None:
    """One of them could be an option that reads more."""
    assert bash(policy(deny=["Read(/secret/**)"]), command).verdict is Verdict.ASK


@pytest.mark.parametrize(("rule", "command"), [("Bash(ls:*)", "ls *"), ("Bash(echo:*)", "echo $x")])
def test_a_rule_still_takes_only_what_is_static(rule: str, command: str) -> None:
    """Whoever names a program decides about it alone."""
    assert bash(policy(allow=[rule]), command).verdict is Verdict.ASK
    assert bash(policy(allow=[rule], read_only_commands=False), command).verdict is Verdict.ASK
