"""Policy files: what loads, what does not and how it is said, and what ships."""

from __future__ import annotations

from pathlib import Path

import pytest
from policy_desk import bash, on_path

from sandbox_agent.errors import PolicyError
from sandbox_agent.policy.load import check_outside_workspace, load_policy, parse_policy
from sandbox_agent.policy.policy import DEFAULT_MASKS, Policy, SandboxSettings
from sandbox_agent.policy.source import shipped_dir, shipped_names
from sandbox_agent.types import Limits, Mode, PathAccess, Verdict

BAD_FILES = [
    ("mode: fast\n", "p.yaml:1: mode: must be 'default', 'acceptEdits', 'plan', 'dontAsk' or 'bypassPermissions'"),
    ("version: 2\n", "p.yaml:1: version: must be 1, not 2"),
    ("\nruls: {}\n", "p.yaml:2: unknown key 'ruls'; did you mean 'rules'?"),
    ("zzz: 1\n", "p.yaml:1: unknown key 'zzz'; known are version, name"),
    ("rules:\n  denny: []\n", "p.yaml:2: unknown key 'rules.denny'; did you mean 'deny'?"),
    (
        "rules:\n  deny:\n    - {rule: Edit, reasn: x}\n",
        "p.yaml:3: unknown key 'rules.deny.0.reasn'; did you mean 'reason'",
    ),
    ("rules: [Edit]\n", "p.yaml:1: rules: "),
    ("rules:\n  deny: Edit\n", "p.yaml:2: rules.deny: must be a valid list, not 'Edit'"),
    ("rules:\n  deny:\n    - 3\n", "p.yaml:3: rules.deny.0"),
    ("rules:\n  deny:\n    - Edit\n    - 'Edit('\n", "p.yaml:4: rule 'Edit(': write Tool or Tool(specifier)"),
    ("rules: {deny: ['bash(rm)']}\n", "p.yaml:1: rule 'bash(rm)': there is no tool bash; did you mean Bash?"),
    ("rules: {deny: ['Raed(x)']}\n", "there is no tool Raed; did you mean Read?"),
    ("\nrules: {deny: ['Shell(rm:*)']}\n", "p.yaml:2: rule 'Shell(rm:*)': there is no tool Shell that takes brackets"),
    ("rules: {deny: ['Shell(rm:*)']}\n", "did you mean Bash(rm:*)?"),
    ("rules: {deny: ['Foo(x)']}\n", "for a tool of your own program write Foo alone"),
    ("rules: {allow: ['TodoWrite(x)']}\n", "TodoWrite takes no brackets; write TodoWrite"),
    ("rules: {deny: [mcp__]}\n", "p.yaml:1: rule 'mcp__': it names no server and tool; write mcp__server"),
    ("rules: {deny: [mcp__a__]}\n", "it names no server and tool"),
    ("rules: {deny: [mcp____a]}\n", "it names no server and tool"),
    ("rules: {deny: ['WebFetch(domain:)']}\n", "write WebFetch(domain:example.org)"),
    ("rules: {deny: ['WebFetch(a.org)']}\n", "p.yaml:1: rule 'WebFetch(a.org)': it is compared with the host alone"),
    ("rules: {deny: ['WebFetch(https://a.org/x)']}\n", "write WebFetch(domain:a.org)"),
    ("rules: {deny: ['WebFetch(domain:A.org:443)']}\n", "write WebFetch(domain:a.org)"),
    ("rules: {deny: ['Read(../x)']}\n", "p.yaml:1: path pattern '../x': paths are judged without . and .. in them"),
    ("rules: {deny: ['Edit(/a/./b)']}\n", "so it can never fit; write //path"),
    ("rules: {deny: ['Bash()']}\n", "the brackets are empty"),
    ("rules: {deny: ['Write(/x)']}\n", "write Edit(/x), which covers Write"),
    ("rules: {deny: ['Grep(/x)']}\n", "write Read(/x), which covers Grep"),
    ("rules: {allow: ['*']}\n", "an allow rule takes a wildcard only after a literal server"),
    ("rules: {allow: ['mcp__*']}\n", "an allow rule takes a wildcard only after a literal server"),
    ("rules: {deny: ['mcp__*(x)']}\n", "takes no specifier"),
    ("rules: {deny: ['Read(!x)']}\n", "must be a gitignore pattern that is not empty, negated or a comment"),
    ("rules: {deny: ['Bash(ls && rm:*)']}\n", "a rule judges one simple command"),
    ("rules: {deny: ['Bash(ls > x)']}\n", "Edit(path) for redirects"),
    ("rules: {deny: ['Bash(A=1 rm:*)']}\n", "an assignment cannot be part of a rule"),
    ('rules: {deny: ["Bash(echo \'x)"]}\n', "its quotes do not close"),
    (
        "rules:\n  deny:\n    - {rule: 'Bash(rm:*)', matches: ['ls']}\n",
        "p.yaml:3: Bash(rm:*) does not match its example 'ls'",
    ),
    (
        "rules: {deny: [{rule: 'Bash(rm:*)', not_matches: ['a; rm b']}]}\n",
        "Bash(rm:*) matches 'a; rm b', which it must not",
    ),
    ("rules: {allow: [{rule: 'Edit(/src/**)', matches: ['lib/a']}]}\n", "Edit(/src/**) does not match its example"),
    ("sandbox: {memory: lots}\n", "p.yaml:1: sandbox.memory: must be a size such as 2GiB or 500MB, not 'lots'"),
    ("sandbox: {memory: 2}\n", "sandbox.memory: must be at least 16MiB; write the unit, as in 2GiB, not 2"),
    ("sandbox:\n  network: bridge\n", "p.yaml:2: sandbox.network: must be 'none', not 'bridge'"),
    ("sandbox: {cpus: 0}\n", "sandbox.cpus: must be greater than or equal to 0.01, not 0"),
    ("sandbox: {pids: 1}\n", "sandbox.pids: must be greater than or equal to 16"),
    ("sandbox: {masks: ['!a']}\n", "mask '!a': write a gitignore pattern"),
    ("rulse:\n", "unknown key 'rulse'; did you mean 'rules'?"),
    ("sandbax: null\nmode: plan\n", "unknown key 'sandbax'; did you mean 'sandbox'?"),
    ("sandbox: {masks: [../a]}\n", "mask '../a': it can never fit"),
    ("sandbox: {masks: [./.env]}\n", "mask './.env': it can never fit"),
    ("sandbox: {masks: [a/../b]}\n", "mask 'a/../b': it can never fit"),
    ("sandbox: {masks: [//etc/x]}\n", "mask '//etc/x': it can never fit"),
    ("sandbox: {masks: [~/.ssh]}\n", "mask '~/.ssh': it can never fit"),
    ("sandbox:\n  allow_hosts:\n    - a\n", "p.yaml:3: sandbox.allow_hosts.0: must be host:port or one of @debian"),
    ("sandbox: {allow_hosts: ['https://a/']}\n", "(not host:port), not 'https://a/'"),
    ("sandbox: {allow_hosts: ['a:0']}\n", "a port is a number from 1 to 65535"),
    ("sandbox: {allow_hosts: ['127.1:80']}\n", "nor an IPv4 address of four plain decimal numbers"),
    ("sandbox: {allow_hosts: ['*.org:80']}\n", "a name of at least two parts behind it"),
    ("sandbox: {allow_hosts: ['@rust']}\n", "there is no such group; known are @debian, @node, @python"),
    ("sandbox: {allow_hosts: [{host: a}]}\n", "(not host:port in 'a')"),
    ("sandbox: {allow_hosts: [{host: a, port: 1, private: true}]}\n", "a mapping of host, port, allow_private"),
    ("sandbox: {allow_hosts: [{host: a, port: 1, allow_private: 1}]}\n", "allow_private is true or false"),
    ("sandbox: {ca_bundle: ca.pem}\n", "sandbox.ca_bundle: must match ^[/~], not 'ca.pem'"),
    ("limits: {turns: 0}\n", "limits.turns: must be greater than or equal to 1, not 0"),
    ("limits: {turns: true}\n", "limits.turns: must be a valid integer, not true"),
    ("limits: {cost_usd: 0}\n", "p.yaml:1: limits.cost_usd: must be greater than 0, not 0"),
    ("limits:\n  subagents:\n    depth: -1\n", "p.yaml:3: limits.subagents.depth: must be greater than or equal to 0"),
    ("limits: {subagents: {dept: 2}}\n", "unknown key 'limits.subagents.dept'; did you mean 'depth'?"),
    ("limits: {prices: {m: {input: 1}}}\n", "p.yaml:1: limits.prices.m.output: is missing"),
    ("limits: {prices: {m: 3}}\n", "limits.prices.m: must be a mapping of keys, not 3"),
    ("\n\nmcp: {servers: {x: y}}\n", "p.yaml:3: mcp.servers.x: must be a mapping of keys, not 'y'"),
    ("mcp:\n  servers:\n    x: {}\n", "p.yaml:3: the MCP server x: a stdio server has a command"),
    ("mcp: {servers: {x: {url: 'http://h/'}}}\n", "counts as one of this machine: write place: host"),
    ("mcp: {servers: {x: {command: c, url: 'http://h/'}}}\n", "has a url, and neither command"),
    ("mcp: {servers: {x: {command: c, comand: d}}}\n", "unknown key 'mcp.servers.x.comand'; did you mean 'command'"),
    ("mcp: {servers: {x: {command: c, image: i}}}\n", "are of a server with place: own"),
    ("mcp: {servers: {x: {command: c, env: {A: '${TOKEN}'}}}}\n", "${TOKEN} cannot be given to it"),
    ("mcp: {servers: {'x y': {command: c}}}\n", "mcp.servers.x y"),
    ("mcp: {servers: {x: {command: c, place: here}}}\n", "mcp.servers.x.place"),
    ("name: 'a b'\n", "name: "),
    ("mode: plan\nmode: default\n", "p.yaml:2: the key 'mode' is there twice"),
    ("a: &x 1\nb: *x\n", "p.yaml:2: YAML aliases (*x) are not taken"),
    ("a: [\n", "p.yaml:2: not valid YAML"),
    ("a: !!python/object:os.x 1\n", "p.yaml:1: '1' is not a value a policy takes"),
    ("- a\n", "p.yaml:1: a policy is a mapping"),
    ("a: " + "[" * 200 + "]" * 200, "nested too deeply"),
    ("a: \x00\n", "not valid YAML"),
]


@pytest.mark.parametrize(("text", "message"), BAD_FILES)
def test_a_bad_file_is_one_line_with_place_and_remedy(text: str, message: str) -> None:
    """file:line, the key, and the near name or what to do."""
    with pytest.raises(PolicyError) as caught:
        parse_policy(text, "p.yaml")
    told = str(caught.value)
    assert message in told
    assert told.startswith("p.yaml")
    assert "\n" not in told


def test_an_empty_file_is_the_strict_defaults() -> None:
    """No rules, no network, the full mask list."""
    assert parse_policy("", "empty.yaml") == Policy("empty", location="empty.yaml")
    assert SandboxSettings().masks == DEFAULT_MASKS
    assert SandboxSettings().network == "none"


def test_every_key_of_a_file_arrives() -> None:
    """Sizes in bytes, both rule forms, empty sections of later versions accepted."""
    text = """
version: 1
name: mine
mode: plan
read_only_commands: ask
rules:
  deny: ["Bash(rm:*)"]
  ask:
  allow:
    - {rule: "Bash(ls:*)", id: list, reason: it lists, matches: [ls -l], not_matches: [lsof]}
sandbox: {image: img, runtime: runsc, network: none, allow_hosts: [], memory: 1.5GiB, cpus: 0.5, pids: 64,
          disk: 500MB, masks: [x], seccomp: debug, nofile: 99, fsize: 1GiB, tmp: 64MiB, tmp_files: 300, home: 32MiB,
          home_files: 200, shm: 16MiB}
limits: {turns: null, wall_s: 60, tokens: null, cost_usd: null, subagents: {}}
mcp: {servers: {}}
hooks: {}
"""
    loaded = parse_policy(text, "p.yaml")
    assert (loaded.name, loaded.mode, loaded.location) == ("mine", Mode.PLAN, "p.yaml")
    mib = 1024**2
    box = ("img", "runsc", "none", 1536 * mib, 0.5, 64, 500_000_000, ("x",), "debug", 99, 1024 * mib)
    assert loaded.sandbox == SandboxSettings(*box, 64 * mib, 300, 32 * mib, 200, 16 * mib)
    assert loaded.limits == Limits(turns=None, wall_s=60)
    assert [(rule.label, rule.reason, rule.location) for rule in loaded.rules.allow] == [
        ("list", "it lists", "p.yaml:10")
    ]
    assert not loaded.rules.read_only_commands
    assert loaded.describe()["rules"] == {"deny": ["Bash(rm:*)"], "ask": [], "allow": ["Bash(ls:*)"]}


@pytest.mark.parametrize("name", shipped_names())
def test_a_shipped_policy_holds_its_examples(name: str) -> None:
    """Loading by name leaves the examples out for speed; here they are checked."""
    text = (shipped_dir() / f"{name}.yaml").read_text()
    checked = parse_policy(text, f"policies/{name}.yaml")
    assert checked == load_policy(name)
    assert checked.name == name
    for rule in (*checked.rules.deny, *checked.rules.ask):
        assert rule.reason, f"{rule.label} gives no reason"


def test_the_policies_that_ship() -> None:
    """Found in the repository, and by the same names in the wheel."""
    assert shipped_names() == ["ci", "default", "readonly", "trusted-build", "untrusted"]


def test_default_is_used_where_none_is_named() -> None:
    """And refuses to publish, with the alternative in the reason."""
    decision = bash(load_policy(None), "true && git push origin main")
    assert decision.verdict is Verdict.DENY
    assert decision.rule == "no-git-push"
    assert "workspace" in decision.reason
    assert decision.location is not None
    assert decision.location.startswith("policies/default.yaml:")


def test_the_command_line_adds_rules_and_sets_the_mode() -> None:
    """A deny of the file still beats an allow given there."""
    merged = load_policy("default", allow=["Bash(git push:*)", "Bash(make:*)"], deny=["Bash(pytest:*)"], mode=Mode.PLAN)
    assert merged.mode is Mode.PLAN
    assert bash(merged, "git push").verdict is Verdict.DENY
    assert bash(merged, "make").verdict is Verdict.ALLOW
    assert bash(merged, "pytest").location == "--deny"
    with pytest.raises(PolicyError, match="--allow: rule 'Bsh': there is no tool Bsh; did you mean Bash"):
        load_policy("default", allow=["Bsh"])


def test_an_unknown_name_lists_what_there_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """And says how to name a file that is called so."""
    monkeypatch.chdir(tmp_path)
    with pytest.raises(PolicyError, match="there are ci, default, readonly, trusted-build, untrusted"):
        load_policy("strict")
    (tmp_path / "strict").write_text("mode: plan\n")
    with pytest.raises(PolicyError, match=r"for the file write \./strict"):
        load_policy("strict")
    assert load_policy("./strict").mode is Mode.PLAN


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    """Missing, a folder, not text, too long."""
    (tmp_path / "latin.yaml").write_bytes(b"name: \xe9\n")
    (tmp_path / "long.yaml").write_bytes(b"#" * (256 * 1024 + 1))
    for name, message in [
        ("none.yaml", "No such file"),
        (".", "Is a directory"),
        ("latin.yaml", "not UTF-8"),
        ("long.yaml", "longer than 256 KiB"),
    ]:
        with pytest.raises(PolicyError, match=message):
            load_policy(str(tmp_path / name))


def test_a_policy_in_the_workspace_is_refused(tmp_path: Path) -> None:
    """By its path, and through links on either side."""
    workspace = tmp_path / "work"
    workspace.mkdir()
    (workspace / "p.yaml").write_text("mode: plan\n")
    (tmp_path / "link.yaml").symlink_to(workspace / "p.yaml")
    (tmp_path / "out.yaml").write_text("mode: plan\n")
    (tmp_path / "alias").symlink_to(workspace)
    for path in (workspace / "p.yaml", tmp_path / "link.yaml", tmp_path / "alias" / "p.yaml"):
        with pytest.raises(PolicyError, match="must not lie in the workspace"):
            check_outside_workspace(load_policy(str(path)), workspace)
    check_outside_workspace(load_policy(str(tmp_path / "out.yaml")), workspace)
    check_outside_workspace(load_policy(None), tmp_path)


def test_readonly_hides_edits_and_ci_edits_without_asking() -> None:
    """What the shipped policies promise at their head."""
    assert load_policy("readonly").hidden_tools(["Edit", "Write", "Read"]) == {"Edit", "Write"}
    ci = load_policy("ci")
    assert on_path(ci, "Write", "/workspace/src/a.py", mode=ci.mode).verdict is Verdict.ALLOW
    assert on_path(ci, "Write", "/workspace/.github/workflows/a.yml", mode=ci.mode).verdict is Verdict.DENY
    assert on_path(ci, "Write", "/workspace/.git/config", mode=ci.mode).verdict is Verdict.DENY


def test_trusted_build_asks_only_for_what_runs_code_later() -> None:
    """Redirects, variables and unknown programs run."""
    trusted = load_policy("trusted-build")
    assert bash(trusted, "CC=clang make > log; ./run.sh $X", mode=trusted.mode).verdict is Verdict.ALLOW
    assert bash(trusted, "echo x > .git/hooks/pre-commit", mode=trusted.mode).verdict is Verdict.ASK


@pytest.mark.parametrize(
    ("rule", "mask"),
    [
        ("Read(**/.env)", "**/.env"),
        ("Read(my.conf)", "my.conf"),
        ("Read(./my.conf)", "/my.conf"),
        ("Read(/secrets/**)", "/secrets/**"),
        ("Read(/)", "/**"),
        ("Read(//workspace/a/b)", "/a/b"),
        ("Read(//workspace)", "/**"),
        ("Read(//w*/a)", "/a"),
        ("Read(//**/id)", "**/id"),
        ("Read(//**)", "**/*"),
        ("Read(//etc/passwd)", None),
        ("Read(~/.ssh/**)", None),
        ("Edit(/src/**)", None),
        ("Read", None),
        ("Bash(cat:*)", None),
    ],
)
def test_what_may_not_be_read_is_masked(rule: str, mask: str | None) -> None:
    """In a file or from the command line; paths outside the workspace and rules about other things mask nothing."""
    base = parse_policy("sandbox: {masks: [x]}").sandbox.masks
    expected = base if mask is None else (*base, mask)
    assert parse_policy(f"sandbox: {{masks: [x]}}\nrules: {{deny: ['{rule}']}}").sandbox.masks == expected
    given = load_policy(None, deny=[rule]).sandbox.masks
    assert given == load_policy(None).sandbox.masks + expected[1:]
    assert parse_policy(f"sandbox: {{masks: [x]}}\nrules: {{ask: ['{rule}']}}").sandbox.masks == base


@pytest.mark.parametrize(
    "rule",
    [
        *("Fetch", "Shell", "Foo", "mcp__a", "mcp__a__b", "mcp__a_b__*", "WebFetch(domain:*.a.org)", "WebFetch(*)"),
        *("WebFetch(domain:::1)", "Task(Explore)", "Read(//)", "Read(./a)", "Read(..a)", "Read(/a/...)"),
    ],
)
def test_what_some_call_fits_stays_possible(rule: str) -> None:
    """A tool of an embedding program is called as it likes, as long as the rule is about all of it."""
    assert [one.text for one in parse_policy(f"rules: {{deny: ['{rule}']}}").rules.deny] == [rule]


def test_the_root_of_the_container_is_everything_in_it() -> None:
    """`//` is a pattern as any other, and not one that never fits."""
    [rule] = parse_policy("rules: {deny: ['Read(//)']}").rules.deny
    assert rule.touches(PathAccess("/etc/passwd", write=False))
