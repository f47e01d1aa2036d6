"""Policy.decide on tools, paths and modes: deny, then ask, then the mode, then allow."""

from __future__ import annotations

import pytest
from policy_desk import bash, on_path, on_tool, policy

from sandbox_agent.policy.paths import PROTECTED
from sandbox_agent.types import Mode, PathAccess, PermissionRequest, Subject, Verdict


@pytest.mark.parametrize(
    ("rules", "wanted"),
    [
        ({"deny": ["Edit"], "ask": ["Edit"], "allow": ["Edit"]}, Verdict.DENY),
        ({"ask": ["Edit"], "allow": ["Edit"]}, Verdict.ASK),
        ({"allow": ["Edit"]}, Verdict.ALLOW),
        ({"deny": ["Edit(/src/**)"], "allow": ["Edit(/src/a.py)"]}, Verdict.DENY),
        ({}, Verdict.ASK),
    ],
)
def test_the_strictest_list_decides(rules: dict[str, list[str]], wanted: Verdict) -> None:
    """Deny beats ask beats allow, however specific; nothing matches: a write is asked."""
    assert on_path(policy(**rules), "Write", "/workspace/src/a.py").verdict is wanted


def test_what_only_reads_is_allowed_without_a_rule() -> None:
    """In the workspace and outside: a file of the container is harmless."""
    assert on_path(policy(), "Read", "/workspace/a").verdict is Verdict.ALLOW
    assert on_path(policy(), "Read", "/etc/passwd").verdict is Verdict.ALLOW


def test_a_decision_names_the_rule_its_place_and_its_reason() -> None:
    """The rule's own reason where it has one."""
    from sandbox_agent.policy.load import parse_policy

    text = "rules:\n  deny:\n    - {rule: Write, id: no-write, reason: Use Edit.}\n"
    decision = on_path(parse_policy(text, "p.yaml"), "Write", "/workspace/a")
    assert (decision.verdict, decision.rule, decision.location) == (Verdict.DENY, "no-write", "p.yaml:3")
    assert decision.reason == "Use Edit."


@pytest.mark.parametrize(
    ("pattern", "path", "covered"),
    [
        (".env", "/workspace/.env", True),
        (".env", "/workspace/sub/.env", True),
        (".env", "/workspace/.env.example", False),
        (".env", "/tmp/.env", False),
        ("//**/.env", "/tmp/.env", True),
        ("/secrets/**", "/workspace/secrets/a/b", True),
        ("/secrets/**", "/workspace/secrets", True),
        ("/secrets/**", "/workspace/sub/secrets/a", False),
        ("./a.txt", "/workspace/a.txt", True),
        ("./a.txt", "/workspace/b/a.txt", False),
        ("~/.ssh/**", "/home/agent/.ssh/id_rsa", True),
        ("~/.ssh/**", "/workspace/.ssh/id_rsa", False),
        ("//etc/shadow", "/etc/shadow", True),
        ("*.pem", "/workspace/a/b.pem", True),
        ("src/*.py", "/workspace/src/a.py", True),
        ("src/*.py", "/workspace/src/a/b.py", False),
        ("build/", "/workspace/build/x", True),
    ],
)
def test_paths_are_gitignore_patterns_with_anchors(pattern: str, path: str, covered: bool) -> None:
    """`//` root, `~/` home, `/` and `./` workspace, bare at any depth; for Read, Grep and Glob alike."""
    for tool in ("Read", "Grep", "Glob"):
        verdict = on_path(policy(deny=[f"Read({pattern})"]), tool, path).verdict
        assert verdict is (Verdict.DENY if covered else Verdict.ALLOW)


@pytest.mark.parametrize(
    ("path", "resolved", "denied", "allowed"),
    [
        ("/workspace/in/a", "/workspace/in/a", True, True),
        ("/workspace/in/link", "/etc/passwd", True, False),
        ("/workspace/link", "/workspace/in/a", True, False),
        ("/workspace/out", "/workspace/out", False, False),
        ("/workspace/in/a", None, True, False),
    ],
)
def test_deny_needs_link_or_target_and_allow_needs_both(
    path: str, resolved: str | None, denied: bool, allowed: bool
) -> None:
    """A link can neither escape a deny nor widen an allow; what is not resolved is never allowed."""
    deny = on_path(policy(deny=["Edit(/in/**)"]), "Edit", path, resolved=resolved).verdict
    allow = on_path(policy(allow=["Edit(/in/**)"]), "Edit", path, resolved=resolved).verdict
    assert (deny is Verdict.DENY, allow is Verdict.ALLOW) == (denied, allowed)


def test_an_unresolved_read_is_asked_where_rules_restrict_reading() -> None:
    """It could be a link to what is denied."""
    restricted = policy(deny=["Read(.env)"])
    assert on_path(restricted, "Read", "/workspace/a", resolved=None).verdict is Verdict.ASK
    assert on_path(policy(), "Read", "/workspace/a", resolved=None).verdict is Verdict.ALLOW


def test_accept_edits_allows_edits_in_the_workspace_only() -> None:
    """Not outside, not by a link that leaves, not what is not resolved."""

    def verdict(path: str, resolved: str | None = "same") -> Verdict:
        return on_path(policy(), "Write", path, resolved=resolved, mode=Mode.ACCEPT_EDITS).verdict

    assert verdict("/workspace/a/b.py") is Verdict.ALLOW
    assert verdict("/workspaces/a") is Verdict.ASK
    assert verdict("/home/agent/a") is Verdict.ASK
    assert verdict("/workspace/a", "/etc/a") is Verdict.ASK
    assert verdict("/workspace/a", None) is Verdict.ASK
    assert verdict("/workspace/../etc/a") is Verdict.ASK


@pytest.mark.parametrize("name", PROTECTED)
def test_protected_paths_are_asked_even_with_an_allow_rule(name: str) -> None:
    """At any depth, as link or as target; only bypassPermissions writes them unasked."""
    allowing = policy(allow=["Edit(/**)"])
    for path in (f"/workspace/{name}", f"/workspace/sub/{name}/x"):
        assert on_path(allowing, "Write", path, mode=Mode.ACCEPT_EDITS).verdict is Verdict.ASK
        assert on_path(allowing, "Write", "/workspace/ok", resolved=path).verdict is Verdict.ASK
        assert on_path(allowing, "Write", path, mode=Mode.BYPASS).verdict is Verdict.ALLOW
    assert on_path(allowing, "Write", f"/workspace/{name}x").verdict is Verdict.ALLOW


@pytest.mark.parametrize(
    "name",
    [
        ".GIT/config",
        "Git~1/config",
        ".g\u200cit/x",
        ".\uff27IT/x",
        ".git./x",
        ".git /x",
        ".git::$X/x",
        ".BashRC",
        ".VSCode/x",
    ],
)
def test_protected_paths_are_known_by_all_their_spellings(name: str) -> None:
    """For file tools and for commands."""
    path = f"/workspace/sub/{name}"
    assert on_path(policy(allow=["Edit(/**)"]), "Write", path, mode=Mode.ACCEPT_EDITS).verdict is Verdict.ASK
    written = [PathAccess(path, write=True, resolved=path)]
    for command in (f"echo x > 'sub/{name}'", f"touch 'sub/{name}'"):
        assert (
            bash(policy(allow=["Bash(echo:*)"]), command, paths=written, mode=Mode.ACCEPT_EDITS).verdict is Verdict.ASK
        )
    for plain in ("git/x", ".gitx", "a.git/x", ".github/x", ".git\u0301/x"):
        assert on_path(policy(), "Write", f"/workspace/{plain}", mode=Mode.ACCEPT_EDITS).verdict is Verdict.ALLOW


def test_plan_mode_denies_what_is_not_read_only_and_says_so() -> None:
    """Even with an allow rule; reading goes on."""
    planning = policy(allow=["Edit", "Bash(make:*)"])
    denied = on_path(planning, "Edit", "/workspace/a", mode=Mode.PLAN)
    assert denied.verdict is Verdict.DENY
    assert "plan mode" in denied.reason
    assert bash(planning, "make", mode=Mode.PLAN).verdict is Verdict.DENY
    assert bash(planning, "cd sub && cat a | head -3", mode=Mode.PLAN).verdict is Verdict.ALLOW
    assert on_path(planning, "Read", "/workspace/a", mode=Mode.PLAN).verdict is Verdict.ALLOW


def test_dont_ask_denies_what_would_be_asked() -> None:
    """The reason names the mode; what is allowed stays allowed."""
    decision = on_path(policy(), "Write", "/workspace/a", mode=Mode.DONT_ASK)
    assert decision.verdict is Verdict.DENY
    assert "dontAsk" in decision.reason
    assert bash(policy(ask=["Bash(ls:*)"]), "ls", mode=Mode.DONT_ASK).verdict is Verdict.DENY
    assert bash(policy(), "ls", mode=Mode.DONT_ASK).verdict is Verdict.ALLOW


def test_bypass_obeys_deny_and_explicit_ask() -> None:
    """All else runs."""
    strict = policy(deny=["Bash(rm:*)", "Edit(/in/**)"], ask=["Bash(git push:*)"])
    assert bash(strict, "x=1 make > log", mode=Mode.BYPASS).verdict is Verdict.ALLOW
    assert bash(strict, "make; rm x", mode=Mode.BYPASS).verdict is Verdict.DENY
    assert bash(strict, "git push", mode=Mode.BYPASS).verdict is Verdict.ASK
    assert on_path(strict, "Write", "/workspace/in/a", mode=Mode.BYPASS).verdict is Verdict.DENY
    assert on_path(strict, "Write", "/etc/a", mode=Mode.BYPASS).verdict is Verdict.ALLOW


@pytest.mark.parametrize(
    ("rule", "tool", "covered"),
    [
        ("mcp__srv", "mcp__srv__get", True),
        ("mcp__srv", "mcp__srv2__get", False),
        ("mcp__srv__*", "mcp__srv__get", True),
        ("mcp__srv__get_*", "mcp__srv__get_a", True),
        ("mcp__srv__get_*", "mcp__srv__set_a", False),
        ("mcp__srv__get", "mcp__srv__get", True),
        ("mcp__srv__get", "mcp__srv__get__more", False),
        ("Task", "Task", True),
        ("Deploy", "Deployment", False),
    ],
)
def test_a_rule_names_tools_and_servers(rule: str, tool: str, covered: bool) -> None:
    """For allow and deny alike."""
    assert on_tool(policy(allow=[rule]), tool).verdict is (Verdict.ALLOW if covered else Verdict.ASK)
    assert on_tool(policy(deny=[rule]), tool).verdict is (Verdict.DENY if covered else Verdict.ASK)


@pytest.mark.parametrize("rule", ["*", "mcp__*"])
def test_deny_and_ask_take_wildcards_for_tools(rule: str) -> None:
    """Allow does not (see the bad files)."""
    assert on_tool(policy(deny=[rule]), "mcp__a__b").verdict is Verdict.DENY
    assert on_tool(policy(ask=[rule]), "mcp__a__b", mode=Mode.BYPASS).verdict is Verdict.ASK


@pytest.mark.parametrize(
    ("rule", "tool", "specifier", "wanted"),
    [
        ("WebFetch(domain:example.org)", "WebFetch", "domain:example.org", Verdict.ALLOW),
        ("WebFetch(domain:*.example.org)", "WebFetch", "domain:a.example.org", Verdict.ALLOW),
        ("WebFetch(domain:*.example.org)", "WebFetch", "domain:example.org.evil", Verdict.ASK),
        ("Task(Explore)", "Task", "Explore", Verdict.ALLOW),
        ("Task(Explore)", "Task", "Build", Verdict.ASK),
        ("Task(Explore)", "Task", None, Verdict.ASK),
    ],
)
def test_a_specifier_is_compared_as_text(rule: str, tool: str, specifier: str | None, wanted: Verdict) -> None:
    """With `*` for any text."""
    assert on_tool(policy(allow=[rule]), tool, specifier).verdict is wanted


def test_a_bare_deny_hides_the_tools_it_speaks_for() -> None:
    """Edit speaks for Write, too; a rule with a specifier hides nothing."""
    strict = policy(deny=["Edit", "mcp__a", "Bash(rm:*)"])
    names = ["Bash", "Edit", "Read", "Write", "mcp__a__x", "mcp__b__x"]
    assert strict.hidden_tools(names) == {"Edit", "Write", "mcp__a__x"}


@pytest.mark.parametrize("kind", ["deny", "ask"])
def test_a_search_withholds_what_rules_keep_from_being_read(kind: str) -> None:
    """By the path or by where it leads; a rule about the searched folder itself was judged with the call."""
    strict = policy(**{kind: ["Read(.env)", "Read(/secret/**)", "Read(/other/x)", "Edit(/src/**)"]})
    withheld = strict.withheld("/workspace", "/workspace")
    assert withheld is not None
    assert withheld.rules == ("Read(.env)", "Read(/secret/**)", "Read(/other/x)")
    names = [".env", "a/.env", "secret/k", "other/x", "other/y", "src/a", "secrets"]
    assert [name for name in names if withheld.covers(name)] == [".env", "a/.env", "secret/k", "other/x"]
    linked = strict.withheld("/tmp/link", "/workspace")
    assert linked is not None
    assert linked.covers("secret/k")
    inside = strict.withheld("/workspace/secret", "/workspace/secret")
    assert inside is not None
    assert inside.rules == ("Read(.env)",)


def test_a_search_withholds_nothing_where_no_rule_reaches() -> None:
    """A bare rule is about the tool, and one for another folder is about other files."""
    assert policy(ask=["Read"], deny=["Read(/secret/**)"]).withheld("/workspace/src", "/workspace/src") is None


def here(path: str) -> tuple[PathAccess, ...]:
    return (PathAccess(path, write=True, resolved=path),)


@pytest.mark.parametrize(
    ("tool", "subject", "wanted"),
    [
        ("Bash", Subject("x", command="npm  run 'a b'"), ("Bash(npm run 'a b')",)),
        ("Bash", Subject("x", command="rm ./a\\*"), ("Bash(rm './a\\*')",)),
        ("Bash", Subject("x", command="make && rm x; ls; make"), ("Bash(make)", "Bash(rm x)")),
        ("Bash", Subject("x", command="timeout 5 make | tee out"), ("Bash(make)", "Bash(tee out)")),
        ("Bash", Subject("x", command="for t in a b; do make $t; done"), ("Bash(make a)", "Bash(make b)")),
        ("Bash", Subject("x", command="make > x", paths=here("/workspace/x")), ("Bash(make)", "Edit(/x)")),
        ("Bash", Subject("x", command="ls > x", paths=here("/workspace/x")), ("Edit(/x)",)),
        ("Bash", Subject("x", command="git -c a=b log"), ("Bash(git -c a=b log)",)),
        ("Bash", Subject("x", command="make $x"), ()),
        ("Bash", Subject("x", command="make && rm $x"), ()),
        ("Bash", Subject("x", command="A=1 make"), ()),
        ("Bash", Subject("x", command="make &"), ()),
        ("Bash", Subject("x", command="make && f() { :; }"), ()),
        ("Bash", Subject("x", command="; ".join(f"make {n}" for n in range(21))), ()),
        ("Bash", Subject("x", command="ls"), ()),
        ("Write", Subject("x", paths=here("/workspace/a b[1].py")), ("Edit(/a\\ b\\[1].py)",)),
        ("Write", Subject("x", paths=here("/workspace/.git/x")), ()),
        ("Write", Subject("x", paths=here("/workspace/a") + here("/workspace/b")), ("Edit(/a)", "Edit(/b)")),
        ("mcp__a__b", Subject("x"), ("mcp__a__b",)),
        ("Task", Subject("x", specifier="Explore"), ("Task(Explore)",)),
        ("Task", Subject("x", specifier="a*"), ()),
        ("Deploy", Subject("x", specifier="staging"), ()),
    ],
)
def test_the_suggested_rules_allow_this_call_and_no_other(tool: str, subject: Subject, wanted: tuple[str, ...]) -> None:
    """One for each part that nothing covers; none where no rules can. None of them can be left out."""
    request = PermissionRequest(tool, subject, input_sha256="")
    assert policy().suggest_rules(request) == wanted
    if wanted:
        assert policy(allow=wanted).decide(request, Mode.DEFAULT).verdict is Verdict.ALLOW
        for rule in wanted:
            fewer = policy(allow=[other for other in wanted if other != rule])
            assert fewer.decide(request, Mode.DEFAULT).verdict is Verdict.ASK


def test_no_rules_are_suggested_against_a_deny_or_an_ask() -> None:
    """They would not help; and the mode is taken into account."""
    request = PermissionRequest("Bash", Subject("x", command="make && git push"), input_sha256="")
    for kind in ("deny", "ask"):
        assert policy(**{kind: ["Bash(git push:*)"]}).suggest_rules(request) == ()
    touching = PermissionRequest("Bash", Subject("x", command="touch a && make", paths=here("/workspace/a")), "")
    assert policy().suggest_rules(touching, Mode.ACCEPT_EDITS) == ("Bash(make)",)


def test_a_suggested_path_rule_is_about_that_path_alone() -> None:
    """Pattern characters in a name are no pattern."""
    rules = policy(allow=["Edit(/a\\ b\\[1].py)"])
    assert on_path(rules, "Write", "/workspace/a b[1].py").verdict is Verdict.ALLOW
    assert on_path(rules, "Write", "/workspace/a b1.py").verdict is Verdict.ASK


def test_a_rule_for_the_session_leaves_deny_standing() -> None:
    """And the policy it was made from unchanged."""
    before = policy(deny=["Bash(make install:*)"])
    after = before.with_allow("Bash(make:*)")
    assert bash(after, "make").verdict is Verdict.ALLOW
    assert bash(after, "make install").verdict is Verdict.DENY
    assert bash(before, "make").verdict is Verdict.ASK


@pytest.mark.parametrize("mode", list(Mode))
def test_what_sends_something_out_is_not_allowed_for_only_reading(mode: Mode) -> None:
    """It is asked, also while planning, until a rule names it; the mode that allows all does so, and dontAsk denies."""
    request = PermissionRequest(
        "WebFetch", Subject("x", specifier="domain:a.org", sends_out=True), input_sha256="", read_only=True
    )
    alone = {Mode.BYPASS: Verdict.ALLOW, Mode.DONT_ASK: Verdict.DENY}.get(mode, Verdict.ASK)
    assert policy().decide(request, mode).verdict is alone
    assert policy(allow=["WebFetch(domain:a.org)"]).decide(request, mode).verdict is Verdict.ALLOW
    assert policy(deny=["WebFetch(domain:*.org)"]).decide(request, mode).verdict is Verdict.DENY


@pytest.mark.parametrize("mode", list(Mode))
def test_what_needs_a_person_is_asked_in_every_mode(mode: Mode) -> None:
    """No rule and no mode speaks for them; a deny stands, and nobody is asked under dontAsk."""
    request = PermissionRequest("ExitPlanMode", Subject("x", needs_person="It needs a yes."), "", read_only=True)
    found = policy(allow=["ExitPlanMode"]).decide(request, mode)
    assert found.verdict is (Verdict.DENY if mode is Mode.DONT_ASK else Verdict.ASK)
    assert found.reason.startswith("It needs a yes.")
    assert policy(deny=["ExitPlanMode"]).decide(request, mode).verdict is Verdict.DENY
    assert policy().suggest_rules(request, mode) == ()
