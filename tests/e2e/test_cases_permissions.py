"""The cases of permissions: what rides along is judged, deny stays deny, few questions, and what is masked."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from case_rig import Desk, bash, started, use
from program import Program

from sandbox_agent.engine.approval import ApprovalAnswer, ApprovalRequest
from sandbox_agent.policy import saved
from sandbox_agent.policy.load import Places, load_policy, parse_policy, run_policy
from sandbox_agent.policy.policy import Policy
from sandbox_agent.types import Mode

pytestmark = pytest.mark.docker


@pytest.fixture(scope="module")
async def desk(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Desk]:
    async with started(tmp_path_factory.mktemp("permissions")) as desk:
        await desk.make(
            "git init -q .; git config user.name a; git config user.email a@b.c; printf 'foo\\nbar\\n' > a.txt; "
            "git add a.txt; git commit -qm one; echo untracked > u.txt; mkdir b z; touch b/kept z/kept"
        )
        yield desk


def rules(*, allow: tuple[str, ...] = (), deny: tuple[str, ...] = (), name: str = "case.yaml") -> Policy:
    """A policy of these rules and nothing else."""
    return parse_policy(json.dumps({"rules": {"allow": list(allow), "deny": list(deny)}}), name)


RIDES_ALONG = [
    "git log -1 ; touch pwned",
    "git log -1 && touch pwned",
    "git log -1 $(touch pwned)",
    "git log -1 `touch pwned`",
    'git log -1 "$(touch pwned)"',
    "git log -1 || touch pwned",
    "git log -1 & touch pwned",
    "git log -1\ntouch pwned",
    "git log -1 | tee pwned",
    "git log -1 > pwned",
    "git log -1 &>> pwned",
    "git log -1 <(touch pwned)",
    "git log -1 <<< $(touch pwned)",
    "git log -1 <<X\n$(touch pwned)\nX",
    "git log -1 ${x:-$(touch pwned)}",
    "git log -1 $((a[$(touch pwned)]))",
    "git log --output=pwned -1",
    "git log -1 --output pwned",
    "git -c core.pager='touch pwned' --paginate log -1",
    "GIT_EXTERNAL_DIFF='touch pwned' git log -1 -p --ext-diff",
    "git log -1 -p --ext-diff; GIT_PAGER='touch pwned' git -p log",
    "bash -c 'git log -1; touch pwned'",
    "eval 'git log -1; touch pwned'",
    "if git log -1; then touch pwned; fi",
    "git log -1 #\rtouch pwned\ntouch pwned",
    "git() { touch pwned; }; git log -1",
    "alias git='touch pwned #'\ngit log -1",
    "{ git log -1; touch pwned; }",
    "(git log -1; touch pwned)",
    "! git log -1 nosuch || touch pwned",
    "trap 'touch pwned' EXIT; git log -1",
    "for i in 1; do git log -1; touch pwned; done",
    "xargs touch pwned; git log -1",
]


async def test_dev_32_an_allowed_command_takes_nothing_along(desk: Desk) -> None:
    """Every compound is denied with the offending part on record, and nothing of it ran; the plain command runs."""
    policy = rules(allow=("Bash(git log:*)",))
    played = await desk.play(*map(bash, RIDES_ALONG), bash("git log -1"), policy=policy, mode=Mode.DONT_ASK)
    *denied, allowed = played.results
    assert [command for command, result in zip(RIDES_ALONG, denied, strict=True) if not result.is_error] == []
    assert not (desk.workspace / "pwned").exists()
    unnamed = [
        (command, decision.reason)
        for command, decision in zip(RIDES_ALONG, played.decisions, strict=False)
        if decision.verdict != "deny" or ("pwned" not in decision.reason and "output" not in decision.reason)
    ]
    assert unnamed == []
    assert [denial["tool_input"]["command"] for denial in played.end.denials] == RIDES_ALONG
    assert (played.end.status, allowed.is_error, "one" in allowed.text) == ("denied", False, True)


CLEANS = [
    "git fetch --dry-run; git clean -fd",
    "true && git clean -fd",
    "echo x | xargs git clean -fd",
    "git  clean\t-fd",
    "git clean",
    "/usr/bin/git clean -fd",
    "git -C . clean -fd",
    "git --git-dir=.git --work-tree . clean -fd",
    "git -c clean.requireForce=false clean -d",
    "'git' \"clean\" -fd",
    "g\\it cl''ean -fd",
    "env X=1 git clean -fd",
    "X=1 git clean -fd",
    "command git clean -fd",
    "exec git clean -fd",
    "timeout 5 nice -n 3 git clean -fd",
    "bash -c 'git clean -fd'",
    "sh <<< 'git clean -fd'",
    "sh <<X\ngit clean -fd\nX",
    "eval git clean -fd",
    "find . -maxdepth 0 -exec git clean -fd \\;",
    "echo $(git clean -fd)",
    "(git clean -fd)",
    "git clean -fd &",
    "! git clean -fd",
    "while git clean -fd; do break; done",
    "f() { git clean -fd; }; f",
    "time git clean -fd",
    "true | git clean -fd | cat",
    "trap 'git clean -fd' EXIT",
    "printf 'clean -fd' | xargs git",
    "git 'clean' -fd # git status",
    "g=git; $g clean -fd",
    "$(echo git) clean -fd",
    "alias c='git clean'; c -fd",
    "echo 'git clean -fd' | sh",
    "echo Z2l0IGNsZWFuIC1mZA== | base64 -d | bash",
    "git -c alias.c='clean -fd' c",
    "git -c alias.c='!git clean -fd' c",
]


@pytest.mark.parametrize("mode", [Mode.DEFAULT, Mode.ACCEPT_EDITS])
async def test_dev_33_a_deny_reaches_into_compounds(desk: Desk, mode: Mode) -> None:
    """All are denied although Bash(*) is allowed and nobody can be asked; untracked files are still there."""
    policy = rules(allow=("Bash(*)",), deny=("Bash(git clean:*)",))
    played = await desk.play(*map(bash, CLEANS), policy=policy, mode=mode)
    ran = [command for command, result in zip(CLEANS, played.results, strict=True) if not result.is_error]
    assert ran == []
    assert [denial["tool_input"]["command"] for denial in played.end.denials] == CLEANS
    assert (desk.workspace / "u.txt").exists()


async def test_dev_33_other_commands_still_run(desk: Desk) -> None:
    """What has nothing to do with the denied command is not held up by it."""
    policy = rules(allow=("Bash(*)",), deny=("Bash(git clean:*)",))
    fine = [
        "git status --short; ls",
        "echo git clean",
        "git log -1 | head -1",
        "grep clean a.txt || true",
        "touch t && rm t",
    ]
    played = await desk.play(*map(bash, fine), policy=policy)
    assert [command for command, result in zip(fine, played.results, strict=True) if result.is_error] == []


class Person:
    """Answers no to every question and keeps them."""

    def __init__(self) -> None:
        self.asked: list[ApprovalRequest] = []

    async def __call__(self, request: ApprovalRequest) -> ApprovalAnswer:
        self.asked.append(request)
        return ApprovalAnswer(False)


COVERED = [
    "grep foo a.txt | head -20 2>/dev/null",
    "grep foo a.txt 2>&1 | head -5",
    "grep -n 'foo|bar' a.txt | grep -v baz | head -n 3",
    "grep foo a.txt > /dev/null && head -1 a.txt",
    "head -1 a.txt; grep foo a.txt || true",
    'grep -c "foo; rm -rf b" a.txt || head -1 a.txt',
    "if grep -q foo a.txt; then head -1 a.txt; fi",
]


async def test_dev_34_what_the_rules_cover_is_not_asked(desk: Desk) -> None:
    """Pipes, redirects to nowhere, lists and loops of covered commands: no question, all of them run."""
    person = Person()
    policy = rules(allow=("Bash(grep *)", "Bash(head *)"))
    played = await desk.play(*map(bash, COVERED), policy=policy, approver=person)
    assert [request.input["command"] for request in person.asked] == []
    assert [result.text for result in played.results if "denied" in result.text] == []


@pytest.mark.parametrize(
    ("command", "part"),
    [
        ("grep foo a.txt | rm -rf b", "rm -rf b"),
        ("grep foo a.txt | head -3 && rm -rf b", "rm -rf b"),
        ("grep foo a.txt | head -3 > /dev/null; rm -r b", "rm -r b"),
        ("grep foo a.txt | tee b/new", "tee b/new"),
        ("grep $(rm -rf b) a.txt | head", "rm -rf b"),
        ("head -1 a.txt | xargs rm -rf b", "rm -rf b ..."),
    ],
)
async def test_dev_34_what_they_do_not_cover_is_asked_once_and_named(desk: Desk, command: str, part: str) -> None:
    """One question for the whole call, with the part that is not covered; the covered ones are not blamed."""
    person = Person()
    policy = rules(allow=("Bash(grep *)", "Bash(head *)"))
    played = await desk.play(bash(command), policy=policy, approver=person)
    [request] = person.asked
    assert f"`{part}`" in request.decision.reason
    assert "`head" not in request.decision.reason
    assert played.results[0].is_error
    assert (desk.workspace / "b/kept").exists()


def layers(folder: Path) -> dict[str, tuple[Policy, str]]:
    """The same two rules from different places, and where the deny stands."""
    both = {
        "allow first": "rules:\n  allow: ['Bash(*)']\n  deny: ['Bash(rm *)']\n",
        "deny first": "rules:\n  deny: ['Bash(rm *)']\n  allow: ['Bash(*)']\n",
    }
    deny, allow = folder / "deny.yaml", folder / "allow.yaml"
    deny.write_text("rules:\n  deny: ['Bash(rm *)']\n")
    allow.write_text("mode: bypassPermissions\nrules:\n  allow: ['Bash(*)', 'Bash(rm *)', 'Bash(rm -rf z)']\n")
    own = folder / "own" / "policy.yaml"
    own.parent.mkdir()
    own.write_text(deny.read_text())
    saved.save(folder / "allowed.yaml", "Bash(rm *)")
    saved.save(folder / "allowed.yaml", "Bash")
    return {
        "allow first": (parse_policy(both["allow first"], "one.yaml"), "one.yaml:3"),
        "deny first": (parse_policy(both["deny first"], "one.yaml"), "one.yaml:2"),
        "deny in the file, allow given": (load_policy(str(deny), allow=["Bash(*)", "Bash(rm:*)"]), f"{deny}:2"),
        "allow in the file, deny given": (load_policy(str(allow), deny=["Bash(rm *)"]), "--deny"),
        "deny in the file, allow saved": (
            run_policy(str(deny), places=Places(own_folder=folder, administrators=folder / "none")),
            f"{deny}:2",
        ),
        "deny of the user's own, allow in the file": (
            run_policy(str(allow), places=Places(own_folder=own.parent, administrators=folder / "none")),
            f"{own}:2",
        ),
    }


@pytest.mark.parametrize("command", ["rm -rf z", "true; rm -rf z", "rm -r -f ./z"])
@pytest.mark.parametrize(
    "layer",
    [
        "allow first",
        "deny first",
        "deny in the file, allow given",
        "allow in the file, deny given",
        "deny in the file, allow saved",
        "deny of the user's own, allow in the file",
    ],
)
async def test_dev_35_no_order_and_no_layer_takes_a_deny_away(
    desk: Desk, tmp_path: Path, layer: str, command: str
) -> None:
    """Denied in each; the record names the rule and where it stands."""
    policy, location = layers(tmp_path)[layer]
    played = await desk.play(bash(command), policy=policy)
    [decision] = played.decisions
    assert (decision.verdict, decision.rule, decision.location) == ("deny", "Bash(rm *)", location)
    assert (desk.workspace / "z/kept").exists()


DENIED = {
    ".env": "Read(**/.env)",
    "deep/.env": "Read(**/.env)",
    "conf/db.ini": "Read(/conf/**)",
    "my.key": "Read(my.key)",
    "keys/id": "Read(keys/)",
}
"""Files, and the rules that deny reading them."""

READS = [
    "cat NAME",
    "python3 -c \"print(open('NAME').read())\"",
    "cp NAME x && cat x",
    "f=NAME; cat $f; base64 $f; git diff --no-index /dev/null $f",
    "ln -s NAME l; cat l; ln NAME h; cat h; mv NAME moved; cat moved; cat ./NAME; cat $PWD/NAME",
]
SEARCHES = [
    "cat .??* * */* */.??* 2>/dev/null",
    "grep -rs SECRET_D36 .",
    "find . -type f -exec cat {} +",
    "tar c . | cat",
]


@pytest.mark.parametrize("workspace_mode", ["copy", "overlay"])
def test_dev_36_a_file_denied_for_reading_is_masked_inside(program: Program, workspace_mode: str) -> None:
    """However it is read, nothing shows its content, even where every command is allowed; the host's file stays."""
    for name in DENIED:
        (program.folder / name).parent.mkdir(exist_ok=True)
        (program.folder / name).write_text("SECRET_D36=abcxyz\n")
    rules = [word for rule in sorted(set(DENIED.values())) for word in ("--deny", rule)]
    turns = [[use("Read", file_path=name), *(bash(read.replace("NAME", name)) for read in READS)] for name in DENIED]
    found = use("Grep", pattern="SECRET_D36", output_mode="content", include_ignored=True)
    turns.append([found, *map(bash, SEARCHES)])
    script = program.script([*({"tools": turn} for turn in turns), {"text": "Done."}])
    arguments = ("--workspace-mode", workspace_mode, *rules, "--mode", "bypassPermissions")
    ended = program.call("run", "-p", "--output", "stream-json", *arguments, "--model", script, "x")
    lines = [json.loads(line) for line in ended.stdout.splitlines()]
    results = [block for line in lines if line["type"] == "user" for block in line["message"]["content"]]
    assert ended.code == 3, ended.stderr
    assert len(results) == sum(map(len, turns))
    assert "abcxyz" not in ended.stdout + ended.stderr
    assert {(program.folder / name).read_text() for name in DENIED} == {"SECRET_D36=abcxyz\n"}
