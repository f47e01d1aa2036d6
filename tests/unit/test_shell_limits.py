"""However hostile the text, the judge answers soon, with little memory, and never allows what it has not read."""

from __future__ import annotations

import time

import pytest
from policy_desk import bash, policy

from sandbox_agent.policy.shell.analyse import forget
from sandbox_agent.types import Verdict

LIMIT_S = 2.0
RULES = policy(
    allow=["Bash(*)"], deny=["Bash(mark:*)", "Bash(*a*b*c*d*e*)", "Read(.env)", "Read(/secrets/**)", "Edit(/docs/**)"]
)
HOSTILE = {
    "a megabyte in a word": "echo " + "a" * 1_000_000 + "; mark",
    "100,000 parts": "ls;" * 100_000 + "mark",
    "20,000 parts": "ls;" * 20_000 + "mark",
    "1,000 substitutions in one another": "$(" * 1000 + "mark" + ")" * 1000,
    "1,000 groups in one another": "{ " * 1000 + "mark" + "; }" * 1000,
    "5,000 subscripts": "a[" * 5000 + "$(mark)" + "]" * 5000,
    "5,000 expansions": "echo " + "${a:-" * 5000 + "$(mark)" + "}" * 5000,
    "2,000 functions": "f(){ " * 2000 + "mark;" + "}" * 2000,
    "20,000 backticks": "echo " + "`" * 20_000 + "; mark",
    "2,000 here-documents": "".join(f"bash <<E{n}\nls\nE{n}\n" for n in range(2000)) + "mark",
    "20 slow scripts": ("bash <<'E'\n" + "ls;" * 900 + "\nE\n") * 20 + "mark",
    "10,000 wrappers": "nice " * 10_000 + "mark",
    "texts that env splits again and again": "env -S '" * 1000 + "mark",
    "a wrapper with unknown options": "setpriv --x " + "setpriv --y " * 400 + "mark",
    "folders upon folders": "cd a; cd b; cd c; cd d; cd e; cd f;" * 60 + "cat " + "x " * 500 + "; mark",
    "a word that nearly matches a wildcard": "echo " + "abcd" * 15_000,
    "a name that nearly matches a path": "cat " + "secrets" * 500 + "; mark",
}


@pytest.mark.parametrize("kind", HOSTILE)
def test_an_answer_comes_within_two_seconds(kind: str) -> None:
    """From the text to the decision, nothing known before; and nothing with a denied command in it is allowed."""
    forget()
    started = time.monotonic()
    decision = bash(RULES, HOSTILE[kind])
    took_s = time.monotonic() - started
    assert took_s < LIMIT_S
    assert decision.verdict is not Verdict.ALLOW or "mark" not in HOSTILE[kind], decision.reason


@pytest.mark.parametrize(
    ("command", "why"),
    [
        ("env -S '" * 1000 + "x", "runs another has more than 1000 words"),
        ("cat " + " ".join(f"f{n}" for n in range(2500)), "more than 2000 files"),
        ("cd a; cd b; cd c; " + "cat " + " ".join(f"f{n}" for n in range(300)), "more than 2000 files"),
        ("; ".join(f"cd {n}" for n in range(8)), "too often to be followed"),
    ],
)
def test_what_is_beyond_a_cap_is_named(command: str, why: str) -> None:
    """The person learns what to change."""
    assert why in bash(policy(allow=["Bash(cat:*)"]), command).reason


@pytest.mark.parametrize(
    "command", ["cd; cat .ssh/id", "cd -P /secrets; cat a", "cd a; cd ..; cd a; cd ../..; cat secrets/a"]
)
def test_a_change_of_folder_is_followed_for_deny_rules(command: str) -> None:
    """To the home, with options, there and back again."""
    denying = policy(allow=["Bash(cd:*)", "Bash(cat:*)"], deny=["Read(~/.ssh/**)", "Read(//secrets/**)"])
    assert bash(denying, command).verdict is Verdict.DENY


@pytest.mark.parametrize(
    ("rule", "command", "covered"),
    [
        ("a*b*c", "abc", True),
        ("a*b*c", "a1b b2c", True),
        ("a*b*c", "acb", False),
        ("ab*ba", "aba", False),
        ("ab*ba", "abba", True),
        ("*x:*", "ax b", True),
        ("*x:*", "axb", False),
        ("x *", "$'x\\x1fy'", False),
    ],
)
def test_wildcards_match_text_in_order_without_overlap(rule: str, command: str, covered: bool) -> None:
    """As a regular expression would, but never slowly; a word is never two."""
    rules = policy(allow=[f"Bash({rule})"], read_only_commands=False)
    assert (bash(rules, command).verdict is Verdict.ALLOW) is covered
