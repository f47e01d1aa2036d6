"""`policy learn`: the smallest allow list for recorded calls, never against a deny, and a text a person can review."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sandbox_agent.engine.recorded import recorded
from sandbox_agent.errors import PolicyError
from sandbox_agent.events import (
    AssistantMessage,
    CallEffects,
    EgressDecided,
    Event,
    PermissionDecided,
    RunFinished,
    SessionStarted,
    ToolFinished,
    ToolStarted,
)
from sandbox_agent.policy.call_text import parse_call
from sandbox_agent.policy.editing import edited
from sandbox_agent.policy.learn import Learned, RecordedCall, RecordedRun, learn
from sandbox_agent.policy.load import load_policy, parse_policy
from sandbox_agent.tape import TapeWriter, read_tape
from sandbox_agent.tools.pool import builtin_tools
from sandbox_agent.types import Limits, Mode, Usage, Verdict

BASE = """\
# Mine.
rules:
  deny:
    - "Bash(git push:*)"
    - "Read(.env)"
  ask: ["Bash(rm:*)"]
  allow:
    - "Bash(make:*)"  # builds
limits: {turns: 100}
"""


def learned(*calls: str, text: str = BASE, mode: Mode | None = None, generalise_from: int | None = None) -> Learned:
    requests = [RecordedCall(parse_call(call)) for call in calls]
    return learn(parse_policy(text, "p.yaml"), requests, mode=mode, generalise_from=generalise_from)


def test_only_what_is_missing_is_learned_and_once() -> None:
    """Exact rules, in the order of the calls; what a rule learned before covers needs none."""
    found = learned(
        "Bash(make all && npm ci)", "Bash(npm ci)", "Bash(ls | head)", "Edit(src/a.py)", "Write(src/a.py)", "mcp__a__b"
    )
    assert found.rules == ("Bash(npm ci)", "Edit(/src/a.py)", "mcp__a__b")
    assert found.apart == ()


def test_what_must_not_pass_is_listed_apart_with_why() -> None:
    """Denied by a rule, asked by a rule, beyond every rule, refused by a person."""
    refused = RecordedCall(parse_call("Bash(npm publish)"), "it was refused when asked: no")
    calls = [RecordedCall(parse_call(f"Bash({text})")) for text in ("git push", "rm x", "make $x", "npm publish")]
    found = learn(parse_policy(BASE, "p.yaml"), [*calls, refused])

    assert found.rules == ()
    assert [(apart.request.subject.command, apart.why.split(":")[0]) for apart in found.apart] == [
        ("git push", "denied by rule Bash(git push"),
        ("rm x", "always asked by rule Bash(rm"),
        ("make $x", "no rule can cover it"),
        ("npm publish", "it was refused when asked"),
    ]


def test_the_mode_counts() -> None:
    """In acceptEdits no rule for an edit is needed; what dontAsk denied is what would have been asked."""
    assert learned("Edit(src/a.py)", mode=Mode.ACCEPT_EDITS).rules == ()
    assert learned("Bash(npm ci)", text="mode: dontAsk").rules == ("Bash(npm ci)",)


@pytest.mark.parametrize(
    ("calls", "rules"),
    [
        (["Bash(pytest a)", "Bash(pytest b -x)", "Bash(pytest)"], ("Bash(pytest:*)",)),
        (["Bash(python -m pytest a)", "Bash(python -m pytest b)", "Bash(python -m pip list)"], None),
        (["Bash(pytest a)", "Bash(pytest b)"], ("Bash(pytest a)", "Bash(pytest b)")),
        (["Bash(python a.py)", "Bash(python b.py)", "Bash(python c.py)"], None),
        (["Bash(touch a)", "Bash(touch b)", "Bash(touch c)"], None),
        (["Bash(npm run a)", "Bash(npm run b)", "Bash(npm run c)"], None),
        (["Bash(git add a)", "Bash(git add -e)", "Bash(git add b)"], None),
        (["Bash(bash a)", "Bash(bash b)", "Bash(bash c)"], None),
        (["Edit(src/a)", "Edit(src/b)", "Edit(src/c)"], ("Edit(/src/**)",)),
        (["Edit(a)", "Edit(b)", "Edit(c)"], None),
        (["Edit(/etc/a)", "Edit(/etc/b)", "Edit(/etc/c)"], None),
    ],
)
def test_rules_become_wider_only_where_that_is_safe(calls: list[str], rules: tuple[str, ...] | None) -> None:
    """None: as exact as without. Three alike are asked for."""
    exact = learned(*calls, text="")
    found = learned(*calls, text="", generalise_from=3)
    assert found.rules == (exact.rules if rules is None else rules)
    assert len(exact.rules) == len(calls)


PIECES = st.sampled_from(
    (
        *("ls", "make x", "npm ci", "cat 'a b'", "cat .env", "git push", "rm y", "echo $z", "pytest -k 'a*'"),
        *(
            "tee out",
            "for f in a b; do grep q $f; npm $f; done",
            "A=1 npm ci",
            "git -c a=b log",
            "printf '%s' \"'\"",
            "sudo ls",
        ),
    )
)
JOINS = st.sampled_from([" && ", " | ", "; ", " > out; ", "\n"])
CALLS = st.one_of(
    st.lists(st.tuples(PIECES, JOINS), min_size=1, max_size=4).map(
        lambda some: "Bash(" + some[0][0] + "".join(join + piece for piece, join in some[1:]) + ")"
    ),
    st.sampled_from(["Edit", "Write", "Read", "Grep"]).flatmap(
        lambda tool: st.text("ab/.* [?\\'é#:", min_size=1, max_size=8).map(lambda path: f"{tool}({path})")
    ),
    st.sampled_from(["mcp__a__b", "Task(x y)", "WebFetch(https://a.example/x)"]),
)


@given(st.lists(CALLS, max_size=6), st.sampled_from([None, 2]), st.sampled_from([Mode.DEFAULT, Mode.ACCEPT_EDITS]))
def test_with_the_learned_policy_all_pass_but_those_set_apart(
    calls: list[str], generalise_from: int | None, mode: Mode
) -> None:
    """The written file is loaded again; what a deny rule denies is denied, as before."""
    requests = [parse_call(call) for call in calls]
    base = parse_policy(BASE, "p.yaml")
    found = learn(base, [RecordedCall(one) for one in requests], mode=mode, generalise_from=generalise_from)
    again = parse_policy(edited(BASE, "p.yaml", allow=found.rules), "p.yaml")
    apart = {one.request for one in found.apart}

    for request in requests:
        before, after = base.decide(request, mode).verdict, again.decide(request, mode).verdict
        assert (after is Verdict.ALLOW) == (request not in apart)
        assert (before is Verdict.DENY) == (after is Verdict.DENY)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "name: x\n# end",
        "rules:\nname: x\n",
        "rules: {}   # c\nname: x\n",
        "rules:\n  allow: []\n  deny: []\n",
        "rules:\n  allow:   # hi\n  deny: []\n",
        "rules: {deny: [Bash], allow: []}\n",
        "rules: {deny: [Bash], allow: [Read]}\n",
        "rules: {deny: [Bash]}\n",
        "rules:\n  allow: [Read,\n    Grep,  # c\n  ]\n",
        "rules:\n  allow:\n  - Read\n  - Grep  # last\n\n# after\nname: x\n",
        "rules:\n  allow:\n    - rule: Read\n      reason: >-\n        foo\n\n    # tail\n  deny:\n   - Bash\nname: x",
        "rules:\n  deny:\n    - {rule: Bash}\n",
        "rules:\n  allow:\n    - Read",
        "limits:\n  turns: 5\n",
        "limits: {wall_s: 5}  # short\n",
        *(load_policy(name).name for name in ("default", "readonly", "ci", "untrusted", "trusted-build")),
    ],
)
def test_a_text_is_added_to_as_it_is_written(text: str) -> None:
    """Whatever the style: nothing is lost, no other line changes its meaning, comments stay."""
    shipped = Path(__file__).parents[2] / "policies" / f"{text}.yaml"
    text = shipped.read_text() if shipped.name != ".yaml" and shipped.is_file() else text
    rules = ("Bash(make \"x\" 'y' # z)", "Edit(/a\\ é)")
    hosts = ("a.example:443", "[2001:db8::1]:80")
    new = edited(text, "p", allow=rules, hosts=hosts, limits=Limits(turns=7, wall_s=60.0))
    before, after = parse_policy(text, "p"), parse_policy(new, "p")

    assert [rule.text for rule in after.rules.allow] == [*(rule.text for rule in before.rules.allow), *rules]
    assert [rule.text for rule in after.rules.deny] == [rule.text for rule in before.rules.deny]
    assert after.limits == Limits(turns=7, wall_s=60.0)
    assert [entry.text for entry in after.sandbox.allow_hosts] == [
        *(entry.text for entry in before.sandbox.allow_hosts),
        *hosts,
    ]
    assert replace(after.sandbox, allow_hosts=()) == replace(before.sandbox, allow_hosts=())
    assert {line for line in text.splitlines() if line.lstrip().startswith("#")} <= set(new.splitlines())


@pytest.mark.parametrize("text", ["{rules: {allow: []}}", "- a", "rules: ["])
def test_what_cannot_be_added_to_is_said(text: str) -> None:
    """Nothing is guessed."""
    with pytest.raises(PolicyError, match="p: "):
        edited(text, "p", allow=["Read"])


def test_limits_are_lowered_to_what_the_runs_used_and_never_raised() -> None:
    """Turns as they were, time to the full minute."""
    base = parse_policy("limits: {turns: 50, wall_s: null}", "p")
    assert learn(base, (), [RecordedRun(7, 61.0), RecordedRun(9, 3.0)]).limits == Limits(turns=9, wall_s=120.0)
    assert learn(base, (), [RecordedRun(99, 1.0)]).limits == Limits(turns=50, wall_s=60.0)
    assert learn(base, ()).limits == base.limits


def test_hosts_are_opened_that_only_want_of_an_entry_refused() -> None:
    """Not what an entry covers already, and not what is no host."""
    base = parse_policy('sandbox: {allow_hosts: ["*.example.org:443"]}', "p")
    unlisted = ("b.test:443", "a.example.org:443", "a.example.org:80", "b.test:443", "$(x):1", "@python")
    found = learn(base, (), [RecordedRun(1, 1.0, unlisted=unlisted), RecordedRun(1, 1.0, unlisted=("[::1]:80",))])

    assert found.opened == ("[::1]:80", "a.example.org:80", "b.test:443")
    assert learn(base, (), [RecordedRun(1, 1.0, hosts=("b.test:443",))]).opened == ()


def block(call_id: str, name: str, **fields: object) -> dict[str, object]:
    return {"type": "tool_use", "id": call_id, "name": name, "input": fields}


def decided(call_id: str, tool: str, verdict: str, **more: object) -> PermissionDecided:
    fields = {"rule": None, "location": None, "input_sha256": "", "reason": ""} | more
    return PermissionDecided(call_id=call_id, tool=tool, verdict=verdict, **fields)  # type: ignore[arg-type]


def ended(call_id: str, tool: str, **meta: object) -> ToolFinished:
    return ToolFinished(call_id=call_id, tool=tool, content="", is_error=False, duration_s=0, meta=meta)


def test_a_record_tells_calls_as_they_ran(tmp_path: Path) -> None:
    """From the folder they started in, with the input a hook put in place, host paths translated; who refused what."""
    blocks = (
        block("1", "Bash", command="cd sub"),
        block("2", "Bash", command="make"),
        block("3", "Bash", command="rewritten later"),
        block("4", "Write", file_path="/home/me/p/a.py", content=""),
        block("5", "Bash", command="npm publish"),
        block("6", "Bash", nonsense=1),
        block("7", "mcp__a__b"),
    )
    told: list[Event] = [
        SessionStarted(
            session_id="s", model="m", workspace="/home/me/p", workspace_mode="copy", image="i", policy="mine",
            mode="default", tools=(), version="0",
        ),
        AssistantMessage(content=blocks, stop_reason="tool_use", model="m", usage=Usage()),
        decided("1", "Bash", "allow"),
        ended("1", "Bash", cwd="/workspace/sub"),
        decided("2", "Bash", "deny"),
        ended("2", "Bash"),
        decided("3", "Bash", "allow"),
        ToolStarted(call_id="3", tool="Bash", summary="", input={"command": "make -n"}, batch=0),
        ended("3", "Bash", cwd="/workspace"),
        decided("4", "Write", "allow", asked=True, answered_by="person"),
        ended("4", "Write"),
        decided("5", "Bash", "deny", asked=True, answered_by="person", answer="not now"),
        ended("5", "Bash"),
        ended("6", "Bash"),
        decided("7", "mcp__a__b", "deny", hook="guard"),
        ended("7", "mcp__a__b"),
        CallEffects(
            call_id="2", tool="Bash", read_only=False, batch=0, duration_s=0, changed=None, hosts=("b.example:443",),
            max_rss_bytes=5,
        ),
        EgressDecided(host="c.example", port=443, verdict="deny", reason="", unlisted=True),
        EgressDecided(host="d.example", port=443, verdict="deny", reason="its address is private"),
        RunFinished(status="done", text="", turns=3, usage=Usage(), duration_s=1.5),
    ]  # fmt: skip
    tape = TapeWriter(tmp_path / "events.jsonl")
    for event in told:
        tape.append(event)
    tape.close()
    found = recorded([read_tape(tmp_path / "events.jsonl").entries], builtin_tools())

    seen = [(c.request.subject.command or c.request.tool, c.request.subject.cwd, c.refused) for c in found.calls]
    assert seen == [
        ("cd sub", "/workspace", None),
        ("make", "/workspace/sub", None),
        ("make -n", "/workspace/sub", None),
        ("Write", "/workspace", None),
        ("npm publish", "/workspace", "it was refused when asked: not now"),
        ("mcp__a__b", "/workspace", "a hook refused it: guard"),
    ]
    assert [access.path for access in found.calls[3].request.subject.paths] == ["/workspace/a.py"]
    assert found.runs == (RecordedRun(3, 1.5, ("b.example:443",), ("c.example:443",), 5),)
    assert found.policies == ("mine",)
