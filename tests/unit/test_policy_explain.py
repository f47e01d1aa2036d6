"""Why a policy says what it says: each part of a command, where it stands, and what would allow the whole."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from policy_desk import policy

from sandbox_agent.errors import ConfigError
from sandbox_agent.policy.call_text import command_request, parse_call
from sandbox_agent.policy.explain import Explanation, explain
from sandbox_agent.policy.load import parse_policy
from sandbox_agent.policy.policy import Policy
from sandbox_agent.types import Mode, Verdict


def explained(judged_by: Policy, call: str, mode: Mode = Mode.DEFAULT) -> Explanation:
    return explain(judged_by, parse_call(call), mode)


def test_each_part_has_its_verdict_its_rule_and_its_place() -> None:
    """Wrappers are looked through, redirects are files, and a loop is what it runs."""
    text = "rules:\n  deny: ['Bash(rm:*)']\n  allow: ['Bash(make:*)', 'Edit(/out)']\n"
    found = explained(
        parse_policy(text, "p.yaml"), "Bash(timeout 5 make a > out; for f in x y; do\nrm $f; done; npm ci)"
    )
    parts = [(p.words, p.decision.verdict.name, p.decision.location, p.via, p.line, p.inside) for p in found.parts]

    assert parts == [
        (("timeout", "5", "make", "a"), "ALLOW", None, "", 1, ()),
        (("make", "a"), "ALLOW", "p.yaml:3", "timeout", 1, ()),
        (("rm", "x"), "DENY", "p.yaml:2", "", 2, ("loop",)),
        (("rm", "y"), "DENY", "p.yaml:2", "", 2, ("loop",)),
        (("npm", "ci"), "ASK", None, "", 2, ()),
    ]
    assert found.parts[0].writes == ("/workspace/out",)
    assert found.decision.verdict is Verdict.DENY


@pytest.mark.parametrize(
    ("rules", "call", "would_allow"),
    [
        ({}, "Bash(make && npm ci)", ("Bash(make)", "Bash(npm ci)")),
        ({}, "Bash(ls > /tmp/a)", ("Edit(//tmp/a)",)),
        ({}, "Edit(src/a.py)", ("Edit(/src/a.py)",)),
        ({}, "Write(~/a)", ("Edit(~/a)",)),
        ({"ask": ["Read(/src/**)"]}, "Read(src/a.py)", ()),
        ({}, "mcp__a__b", ("mcp__a__b",)),
        ({}, "WebFetch(https://example.org/x?y)", ("WebFetch(domain:example.org)",)),
        ({}, "WebFetch", ("WebFetch",)),
        ({}, "NotebookEdit(a.ipynb)", ("Edit(/a.ipynb)",)),
        ({"ask": ["Task"]}, "Task(Explore)", ()),
        ({"allow": ["Bash(make)"]}, "Bash(make && ls)", ()),
    ],
)
def test_what_would_allow_it_is_told_as_rules(
    rules: dict[str, list[str]], call: str, would_allow: tuple[str, ...]
) -> None:
    """They do: the call passes with them."""
    found = explained(policy(**rules), call)
    assert found.would_allow == would_allow
    if would_allow:
        assert explained(policy(allow=would_allow), call).decision.verdict is Verdict.ALLOW


@pytest.mark.parametrize(
    ("rules", "call", "mode", "why"),
    [
        ({"deny": ["Bash(rm:*)"]}, "Bash(ls; rm x)", Mode.DEFAULT, "rule Bash(rm:*) denies it"),
        ({"ask": ["Edit"]}, "Edit(a)", Mode.DEFAULT, "rule Edit wants it to be asked"),
        ({}, "Bash(make $x && npm ci)", Mode.DEFAULT, "a rule cannot cover `make $x`: $x is only known at run time"),
        ({}, "Bash(ls 'x)", Mode.DEFAULT, "what cannot be read is never allowed by a rule"),
        ({}, "Bash(make)", Mode.PLAN, "the mode plan denies all that is not read-only"),
        ({}, "ExitPlanMode", Mode.PLAN, "only a person can allow it, when asked"),
        ({}, "NotebookEdit(a.ipynb)", Mode.PLAN, "the mode plan denies all that is not read-only"),
        ({}, "Write(.git/config)", Mode.DEFAULT, "no rule can speak of it; a person can allow it when asked"),
        ({}, f"Bash({'; '.join(f'make {n}' for n in range(30))})", Mode.DEFAULT, "it would take more than 20 rules"),
    ],
)
def test_where_no_rule_helps_the_reason_is_told(rules: dict[str, list[str]], call: str, mode: Mode, why: str) -> None:
    """Only the parts that no rule can cover are blamed."""
    found = explained(policy(**rules), call, mode)
    assert found.would_allow == ()
    assert found.why_none is not None
    assert found.why_none.startswith(why)


def test_dont_ask_denies_and_still_names_the_rules() -> None:
    """That is what a person who sets up a pipeline needs."""
    found = explained(policy(), "Bash(make)", Mode.DONT_ASK)
    assert (found.decision.verdict, found.would_allow) == (Verdict.DENY, ("Bash(make)",))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("git status", "for a command write Bash"),
        ("Bsh(ls)", "did you mean Bash?"),
        ("ls", "for a command write Bash\\(ls\\)"),
        ("Bash", "has a command"),
        ("", "is not a call"),
    ],
)
def test_what_is_no_call_is_refused_with_what_to_write(text: str, message: str) -> None:
    """One line."""
    with pytest.raises(ConfigError, match=message):
        parse_call(text)


WORDS = st.sampled_from(["ls", "make a", "rm x", "git log", "cat .env", "echo $x", "git -c a=b log", "env A=1 make"])
JOINS = st.sampled_from([" && ", " | ", "; ", " > out; ", "\n"])


@given(st.lists(st.tuples(WORDS, JOINS), min_size=1, max_size=5), st.sampled_from(list(Mode)))
def test_the_parts_explain_the_whole(pieces: list[tuple[str, str]], mode: Mode) -> None:
    """A whole is as strict as its strictest part, and JSON takes it all."""
    judged_by = policy(deny=["Read(.env)", "Bash(rm y)"], ask=["Bash(rm:*)"], allow=["Bash(make:*)"])
    command = pieces[0][0] + "".join(join + piece for piece, join in pieces[1:])
    found = explain(judged_by, command_request(command), mode)
    strictest = max(part.decision.verdict for part in found.parts)
    if mode is Mode.DONT_ASK and strictest is Verdict.ASK:
        strictest = Verdict.DENY

    assert found.decision.verdict is strictest
    assert json.loads(json.dumps(found.as_json()))["verdict"] == strictest.name.lower()
