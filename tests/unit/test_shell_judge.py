"""The shell judge: the public vectors, variants of every kind, precedence, and that no text makes it raise or allow."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from policy_desk import bash, policy

from sandbox_agent.policy.load import parse_policy
from sandbox_agent.policy.shell import analyse
from sandbox_agent.types import Mode, PathAccess, Verdict

DATA = Path(__file__).parents[1] / "data"
CASES: dict[str, Any] = yaml.safe_load((DATA / "shell_cases.yaml").read_text())
VECTORS: list[dict[str, Any]] = json.loads((DATA / "bash_rules.json").read_text())["vectors"]

OPEN = policy(allow=["Bash(*)"], deny=["Bash(rm:*)", "Bash(git push:*)"])
READS = policy(
    allow=[
        f"Bash({name}:*)" for name in ("cat", "ls", "grep", "rg", "find", "git status", "git log", "git show", "echo")
    ],
    deny=["Bash(rm:*)", "Read(.env)", "Read(/secrets/**)"],
    read_only_commands=False,
)
TOOLS = policy(
    allow=[
        f"Bash({name}:*)" for name in ("sed", "awk", "tar", "git", "sort", "find", "env", "man", "tee", "rg", "xargs")
    ],
    read_only_commands=False,
)


@pytest.mark.parametrize("vector", VECTORS, ids=lambda vector: str(vector["id"]))
def test_a_vector_is_judged_as_expected(vector: dict[str, Any]) -> None:
    """`expect` or `also_ok`, never `must_not`; with the read-only list as well as without."""
    for listed in (False, True):
        decision = bash(policy(**vector["rules"], read_only_commands=listed), vector["command"])
        assert decision.verdict.name.lower() in {vector["expect"], *vector["also_ok"]}, decision.reason


@pytest.mark.parametrize("command", CASES["hidden_commands"])
def test_deny_sees_a_command_wherever_it_stands(command: str) -> None:
    """Even where everything else is allowed."""
    assert bash(OPEN, command).verdict is Verdict.DENY


@pytest.mark.parametrize("command", CASES["not_static"])
def test_allow_takes_only_what_is_static_and_brings_nothing_along(command: str) -> None:
    """No rule for everything allows it where anything is denied."""
    assert bash(OPEN, command).verdict is not Verdict.ALLOW


@pytest.mark.parametrize("command", CASES["runs_or_writes"])
def test_options_that_run_or_write_never_pass_by_prefix(command: str) -> None:
    """The rule names the program, not the option."""
    assert bash(TOOLS, command).verdict is Verdict.ASK


@pytest.mark.parametrize(
    ("rule", "command", "wanted"),
    [
        ("Bash(sed -i s/a/b/ f)", "sed -i s/a/b/ f", Verdict.ALLOW),
        ("Bash(git -c a=b log:*)", "git -c a=b log -1", Verdict.ALLOW),
        ("Bash(git config:*)", "git config a.b c", Verdict.ALLOW),
        ("Bash(./gradlew:*)", "./gradlew build", Verdict.ALLOW),
        ("Bash(bash build.sh:*)", "bash build.sh all", Verdict.ALLOW),
        ("Bash(bash:*)", "bash build.sh", Verdict.ASK),
        ("Bash(sh:*)", "echo x | sh", Verdict.ASK),
        ("Bash(gradlew:*)", "./gradlew build", Verdict.ASK),
    ],
)
def test_a_rule_that_names_the_hazard_lets_it_pass(rule: str, command: str, wanted: Verdict) -> None:
    """What a person wrote out is what they meant; text that nobody has seen never passes."""
    assert bash(policy(allow=[rule]), command).verdict is wanted


@pytest.mark.parametrize(("rules", "command"), [(name, c) for name, many in CASES["ordinary"].items() for c in many])
def test_ordinary_commands_run_unasked(rules: str, command: str) -> None:
    """A judge that always asks would be safe and useless."""
    decision = bash({"open": OPEN, "reads": READS, "tools": TOOLS}[rules], command)
    assert decision.verdict is Verdict.ALLOW, decision.reason


@pytest.mark.parametrize("command", CASES["reads_denied"])
def test_a_read_deny_binds_the_files_commands_name(command: str) -> None:
    """Operands, option values, redirects, revisions; from every folder a `cd` leads to."""
    assert bash(READS, command).verdict is Verdict.DENY


@pytest.mark.parametrize("command", CASES["reads_unsure"])
def test_what_could_reach_a_denied_file_is_asked(command: str) -> None:
    """Patterns, searches below a folder, names that come at run time."""
    assert bash(READS, command).verdict is Verdict.ASK


def test_links_do_not_get_around_a_read_deny() -> None:
    """The gate resolved the operand in the container."""
    led = (PathAccess("/workspace/a", write=False, resolved="/workspace/.env"),)
    assert bash(READS, "cat a", paths=led).verdict is Verdict.DENY
    assert bash(READS, "cat a").verdict is Verdict.ALLOW


def test_paths_are_seen_from_where_the_command_starts() -> None:
    """`..` from a sub-folder."""
    assert bash(READS, "cat ../secrets/a", cwd="/workspace/sub").verdict is Verdict.DENY
    assert bash(READS, "cat ../secrets/a", cwd="/workspace/sub/deep").verdict is Verdict.ALLOW


def test_redirects_are_writes_under_edit_rules() -> None:
    """Deny and allow by Edit; link and target both."""
    here = (PathAccess("/workspace/out", write=True, resolved="/workspace/out"),)
    away = (PathAccess("/workspace/out", write=True, resolved="/etc/out"),)
    writing = policy(allow=["Bash(echo:*)", "Edit(/out)"], deny=["Edit(/in/**)"])
    assert bash(writing, "echo x > out", paths=here).verdict is Verdict.ALLOW
    assert bash(writing, "echo x > out", paths=away).verdict is Verdict.ASK
    assert bash(writing, "echo x > out").verdict is Verdict.ASK
    assert bash(writing, "echo x > in/a").verdict is Verdict.DENY
    assert bash(writing, "echo x | tee in/a").verdict is Verdict.DENY
    assert bash(writing, "cat in/a").verdict is Verdict.ALLOW


def test_accept_edits_covers_simple_file_commands_in_the_workspace() -> None:
    """Every operand plain, resolved, inside and not protected."""

    def verdict(command: str, *resolved: str) -> Verdict:
        known = {access.path: access for access in analyse(command).accesses()}
        targets = dict(zip(known, resolved, strict=False))
        paths = [PathAccess(a.path, a.write, targets.get(a.path, a.path)) for a in known.values()]
        return bash(policy(), command, mode=Mode.ACCEPT_EDITS, paths=paths).verdict

    for command in CASES["file_commands"]:
        assert verdict(command) is Verdict.ALLOW, command
    for command in CASES["not_file_commands"]:
        assert verdict(command) is Verdict.ASK, command
    assert verdict("touch a", "/etc/a") is Verdict.ASK
    assert bash(policy(), "touch a", mode=Mode.ACCEPT_EDITS).verdict is Verdict.ASK


@pytest.mark.parametrize(
    ("command", "wanted"), [*((c, True) for c in CASES["read_only"]), *((c, False) for c in CASES["not_read_only"])]
)
def test_read_only_is_what_may_run_beside_others(command: str, wanted: bool) -> None:
    """Every part on the list with safe options, nothing written, no change of folder."""
    assert analyse(command).read_only is wanted


def test_read_only_commands_need_no_rule_but_do_not_widen_one() -> None:
    """Whoever allows exactly `git status` means that; the list still speaks for other commands."""
    assert bash(policy(), "git log | head -3").verdict is Verdict.ALLOW
    assert bash(policy(read_only_commands=False), "git log | head -3").verdict is Verdict.ASK
    assert bash(policy(), "ls | xargs cat").verdict is Verdict.ALLOW
    assert bash(policy(deny=["Read(.env)"]), "ls | xargs cat").verdict is Verdict.ASK
    exact = policy(allow=["Bash(git status)"])
    assert bash(exact, "git status").verdict is Verdict.ALLOW
    assert bash(exact, "git status --short").verdict is Verdict.ASK
    assert bash(exact, "git log").verdict is Verdict.ALLOW


@pytest.mark.parametrize(
    ("command", "wanted"),
    [
        ("cd /workspace && pytest", Verdict.ALLOW),
        ("cd sub && ls", Verdict.ALLOW),
        ("cd /etc && ls", Verdict.ASK),
        ("cd ../.. && ls", Verdict.ASK),
        ("cd && ls", Verdict.ASK),
        ("cd $x && ls", Verdict.ASK),
        ("cd /workspace && git status", Verdict.ALLOW),
        ("cd sub && git status", Verdict.ASK),
        ("cd sub && cd .. && git status", Verdict.ASK),
    ],
)
def test_cd_stays_in_the_workspace_and_away_from_git(command: str, wanted: Verdict) -> None:
    """Another folder can be another repository, with its own hooks."""
    assert bash(policy(allow=["Bash(pytest:*)"]), command).verdict is wanted


def test_allow_must_cover_every_part_of_a_compound() -> None:
    """dev-32: git log is allowed, what rides along is not, and is named."""
    only_log = policy(allow=["Bash(git log:*)"])
    for command in ("git log -1 ; touch pwned", "git log -1 && touch pwned", "git log -1 $(touch pwned)"):
        decision = bash(only_log, command, mode=Mode.DONT_ASK)
        assert decision.verdict is Verdict.DENY
        assert "touch pwned" in decision.reason
    assert bash(only_log, "git log -1", mode=Mode.DONT_ASK).verdict is Verdict.ALLOW


def test_deny_reaches_into_compounds_and_pipes() -> None:
    """dev-33: although everything is allowed."""
    for command in ("git fetch --dry-run; git clean -fd", "true && git clean -fd", "echo x | xargs git clean -fd"):
        assert bash(policy(allow=["Bash(*)"], deny=["Bash(git clean:*)"]), command).verdict is Verdict.DENY


def test_an_allowed_pipe_is_not_asked_and_a_foreign_part_is_named() -> None:
    """dev-34: one question at most, about that part alone."""
    rules = policy(allow=["Bash(grep *)", "Bash(head *)"])
    assert bash(rules, "grep foo a.txt | head -20 2>/dev/null").verdict is Verdict.ALLOW
    decision = bash(rules, "grep foo a.txt | rm -rf b")
    assert decision.verdict is Verdict.ASK
    assert "`rm -rf b`" in decision.reason
    assert "grep" not in decision.reason
    assert "`rm -rf b ...` (a word is only known at run time)" in bash(rules, "head -1 a.txt | xargs rm -rf b").reason


@pytest.mark.parametrize(
    "order", ["  allow: ['Bash(*)']\n  deny: ['Bash(rm *)']\n", "  deny: ['Bash(rm *)']\n  allow: ['Bash(*)']\n"]
)
def test_the_order_of_rules_does_not_matter(order: str) -> None:
    """dev-35: denied, with the rule and its file."""
    loaded = parse_policy("rules:\n" + order, "user.yaml")
    decision = bash(loaded.with_allow("Bash(*)"), "rm -rf z")
    assert decision.verdict is Verdict.DENY
    assert decision.rule == "Bash(rm *)"
    assert decision.location in ("user.yaml:2", "user.yaml:3")


@pytest.mark.parametrize(
    ("rule", "command", "covered"),
    [
        ("git log:*", "git log -1", True),
        ("git log *", "git log", True),
        ("ls*", "lsof -i", True),
        ("git log *", "git logx", False),
        ("npm run *:ci", "npm run test:ci", True),
        ("npm run *:ci", "npm run test:ci now", False),
        ("* --help", "make --help", True),
        ("git * main", "git push origin main", True),
        ("git * main", "git push origin mainline", False),
        ("echo 'a b'", 'echo "a b"', True),
        ("echo a b", "echo 'a b'", False),
        ("echo \\*", "echo '*'", True),
        ("echo \\*", "echo x", False),
    ],
)
def test_command_rules_match_whole_words_and_wildcards(rule: str, command: str, covered: bool) -> None:
    """Exact, prefix and wildcard forms, after quote removal."""
    rules = policy(allow=[f"Bash({rule})"], read_only_commands=False)
    assert (bash(rules, command).verdict is Verdict.ALLOW) is covered


@pytest.mark.parametrize(
    ("command", "why"),
    [
        ("ls\x00; rm x", "NUL"),
        ("echo " + "a" * 70_000 + "; rm x", "64 KiB"),
        ("$(" * 1000 + "rm x" + ")" * 1000, "nested"),
        ("ls; " * 600 + "rm x", "commands"),
        ("ls " + "a " * 5100 + "; rm x", "words"),
        ("".join(f"bash <<E{n}\nls\nE{n}\n" for n in range(30)) + "rm x", "shell texts"),
        ("nice " * 15 + "rm x", "wrapped"),
        ("rm x\necho 'a", "valid bash"),
        ("\ud800", "not text"),
    ],
)
def test_beyond_a_cap_nothing_is_allowed_and_deny_stays_deny(command: str, why: str) -> None:
    """With the cap in the reason; in every mode where something is denied."""
    for mode in (Mode.DEFAULT, Mode.BYPASS):
        decision = bash(OPEN, command, mode=mode)
        assert decision.verdict is Verdict.DENY
        assert why in decision.reason
    assert bash(policy(allow=["Bash"]), command).verdict in (Verdict.ASK, Verdict.DENY)


def test_many_parts_not_covered_are_counted_and_long_ones_cut() -> None:
    """The reason stays readable."""
    reason = bash(policy(), "; ".join(f"make {n}" for n in range(9)) + "; make " + "x" * 500).reason
    assert "`make 4` and 5 more." in reason
    assert len(bash(policy(), "make " + "x" * 500).reason) < 250


@pytest.mark.parametrize("saved", ["Bash(git log --output=x)", "Bash(find . -name x -delete)", "Bash(cd /etc)"])
def test_a_rule_that_names_a_hazard_does_not_narrow_the_read_only_list(saved: str) -> None:
    """Else answering "always" to one odd command would make ordinary ones be asked."""
    for command in ("git log", "find . -name x", "cd sub"):
        assert bash(policy(allow=[saved]), command).verdict is Verdict.ALLOW
