"""Loops over words that are written out are judged as what they run; where the variable could be anything else, not."""

from __future__ import annotations

import pytest
from policy_desk import bash, policy

from sandbox_agent.policy.shell import analyse
from sandbox_agent.types import Verdict

READS = policy(deny=["Read(.env)"])


@pytest.mark.parametrize(
    "command",
    [
        'for f in a b; do grep foo "$f"; done',
        'for f in a.py b.py; do echo "== $f =="; sed -n 1,5p $f; done',
        'for f in src/*.py; do wc -l "$f"; done',
        'for f in *.py; do wc -l "$f"; done',
        'for d in a b; do for f in x y; do cat "$d/${f}.txt"; done; done',
        'for f in a b; do if [[ -f "$f" ]]; then cat "$f"; fi; done',
        'for f in a b; do [ -f "$f" ] && head -3 "$f" | tail -1; done',
        'set -euo pipefail; for t in rg fd; do command -v "$t"; done; for t in x; do printf "%s\\n" "$t"; done',
    ],
)
def test_a_loop_that_only_reads_runs_unasked(command: str) -> None:
    """Each time round is one of the commands that are judged."""
    decision = bash(policy(), command)
    assert decision.verdict is Verdict.ALLOW, decision.reason


def test_what_a_loop_runs_is_seen_by_deny() -> None:
    """Value by value, in every place."""
    assert bash(READS, 'for f in a .env; do cat "$f"; done').verdict is Verdict.DENY
    assert bash(READS, 'for d in . x; do cat < "$d/.env"; done').verdict is Verdict.DENY
    assert bash(policy(deny=["Bash(make b)"]), "for t in a b; do make $t; done").verdict is Verdict.DENY
    assert bash(policy(deny=["Bash(git push:*)"]), 'for v in log push; do git "$v"; done').verdict is Verdict.DENY


def test_an_allow_rule_must_cover_every_time_round() -> None:
    """And a value may be an option, which is judged as one."""
    some = policy(allow=["Bash(make a)", "Bash(make b)"])
    assert bash(some, "for t in a b; do make $t; done").verdict is Verdict.ALLOW
    assert bash(some, "for t in a b c; do make $t; done").verdict is Verdict.ASK
    assert bash(policy(), "for o in -name -delete; do find . $o; done").verdict is Verdict.ASK


SETTING = [
    "read f",
    "command read f",
    "builtin read f",
    "time -- read f",
    "printf -v f %s /etc/shadow",
    "printf $x f y",
    "mapfile f",
    "getopts ab f",
    "eval 'f=/etc/shadow'",
    "source ./x",
    ". ./x",
    "trap 'f=x' DEBUG",
    "f=/etc/shadow",
    "f+=x",
    "f[0]=x",
    "export f=x",
    "declare f=x",
    "declare -n g=f",
    ": ${f:=x}",
    ": $((f=1))",
    "((f=1))",
    "let f=1",
    "wait -p f",
    "exec {f}>x",
    "unset f",
    "select f in x; do break; done",
    "shopt -s dotglob",
    "set -k",
    "$x f",
    "g() { f=x; }",
]


@pytest.mark.parametrize("setting", SETTING)
def test_a_variable_that_something_else_can_set_is_not_known(setting: str) -> None:
    """Wherever it stands, and however it is spelled; the rule for everything does not help where one denies."""
    builtins = ["read", "command", "builtin", "printf", "mapfile", "getopts", "eval", "source", ".", "trap", "export"]
    builtins += ["declare", "let", "wait", "exec", "unset", "shopt", "set", "cat", ":"]
    wide = policy(allow=[f"Bash({name}:*)" for name in builtins], deny=["Bash(never:*)"])
    for command in (
        f'for f in a b; do {setting}; cat "$f"; done',
        f'{setting}; for f in a b; do cat "$f"; done',
        f'for f in a b; do cat "$f"; done; {setting}',
    ):
        assert bash(wide, command).verdict is not Verdict.ALLOW, command


@pytest.mark.parametrize(
    "command",
    [
        'for f in *.py; do sort "$f"; done',
        "for f in src/*.py; do cat $f; done",
        "for f in 'a b'; do cat $f; done",
        "for f in 'src/*'; do cat $f; done",
        "for f in ''; do cat $f; done",
        'for f in a b; do cat "$g"; done',
        'for f in a b; do cat "${f%b}"; done',
        'for f in $x; do cat "$f"; done',
        'for f in $(ls); do cat "$f"; done',
        'for f in a b; do :; done; cat "$f"',
        'cat "$f"; for f in a b; do :; done',
        'for f in a b; do for f in c; do :; done; cat "$f"; done',
        'for f in a b; do for f; do :; done; cat "$f"; done',
        'for PATH in a b; do cat "$PATH"; done',
    ],
)
def test_what_is_not_plainly_one_of_the_words_is_asked(command: str) -> None:
    """Splitting, patterns, other variables, other places."""
    assert bash(policy(), command).verdict is Verdict.ASK


def test_a_loop_too_long_to_follow_is_asked_and_not_refused() -> None:
    """A cap on the expansion is no cap on the command."""
    words = " ".join(f"w{number}" for number in range(2000))
    assert bash(READS, f'for f in {words}; do cat "$f"; done').verdict is Verdict.ASK


def test_a_command_says_where_it_stands() -> None:
    """The line, and what it is inside of, outermost first."""
    found = analyse("make\nfor f in a; do\n  (echo $(id)); timeout 5 ls\ndone").commands
    places = {command.words[0].text: (command.line, command.inside) for command in found}
    assert places["make"] == (1, ())
    assert places["id"] == (3, ("loop", "subshell", "substitution"))
    assert places["ls"] == places["timeout"] == (3, ("loop",))
