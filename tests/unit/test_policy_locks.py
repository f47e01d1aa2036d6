"""What an administrator's file says under every policy, and what it locks."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from layers_desk import LayersDesk
from policy_desk import bash

from sandbox_agent.errors import PolicyError
from sandbox_agent.policy.elsewhere import refuse_looser
from sandbox_agent.policy.load import Places, administrators_policy, check_policy, load_policy
from sandbox_agent.policy.policy import SandboxSettings
from sandbox_agent.types import Limits, Mode, Price, Verdict


@pytest.fixture
def desk(tmp_path: Path) -> LayersDesk:
    """Nobody has written a policy yet."""
    return LayersDesk(tmp_path)


def test_an_administrator_s_rules_stay_under_every_policy(desk: LayersDesk) -> None:
    """Denies and asks; and without a lock its settings give way."""
    admin = desk.file("etc/policy.yaml", "mode: plan\nrules: {deny: ['Bash(curl:*)'], ask: ['Bash(make:*)']}\n")
    for named in (None, "trusted-build", desk.file("n.yaml", "mode: bypassPermissions\nrules: {allow: [Bash]}\n")):
        policy = desk.run(named, allow=["Bash"])
        decision = bash(policy, "curl x", mode=Mode.BYPASS)
        assert (decision.verdict, decision.location, decision.layer) == (Verdict.DENY, f"{admin}:2", "administrator")
        assert bash(policy, "make", mode=Mode.BYPASS).verdict is Verdict.ASK
    assert desk.run("ci").mode is Mode.DONT_ASK
    assert desk.run(mode=Mode.DEFAULT).mode is Mode.DEFAULT
    assert desk.run().mode is Mode.PLAN, "the shipped default, that nobody chose, is behind it"


LOCKED = """mode: default
lock: [mode, allow, hooks, project_instructions, sandbox, limits]
project_instructions: ignore
rules: {allow: ['Bash(make test)']}
sandbox: {image: img, memory: 1GiB, masks: [secret]}
limits: {turns: 10, wall_s: null}
"""


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("mode: acceptEdits\n", "n.yaml:1: mode acceptEdits is looser than default, which etc/policy.yaml:2 locks"),
        ("\nmode: bypassPermissions\n", "n.yaml:2: mode bypassPermissions is looser than default"),
        (
            "rules:\n  allow:\n  - Bash(ls)\n",
            "n.yaml:3: the allow rule Bash(ls) may not be added: etc/policy.yaml:2 locks",
        ),
        ("sandbox: {image: other}\n", "n.yaml:1: sandbox.image other is looser than img, which etc/policy.yaml:2"),
        ("sandbox:\n  runtime: x\n", "n.yaml:2: sandbox.runtime x is looser than runc, which etc/policy.yaml:2 locks"),
        (
            "sandbox:\n  seccomp: debug\n",
            "n.yaml:2: sandbox.seccomp debug is looser than default, which etc/policy.yaml:2",
        ),
        (
            "project_instructions: give\n",
            "n.yaml:1: project_instructions give is looser than ignore, which etc/policy.yaml:2 locks",
        ),
        (
            "hooks: {stop: [{id: h, command: x}]}\n",
            "n.yaml:1: the hook h may not be added: etc/policy.yaml:2 locks hooks",
        ),
    ],
)
@pytest.mark.parametrize("layer", ["named", "own"])
def test_loosening_what_is_locked_is_refused_with_both_places(
    desk: LayersDesk, layer: str, text: str, message: str
) -> None:
    """In the user's own policy, and in one that is named."""
    desk.file("etc/policy.yaml", LOCKED)
    if layer == "own":
        desk.file("config/policy.yaml", text)
        assert desk.refusal().startswith(message.replace("n.yaml", "config/policy.yaml"))
    else:
        assert desk.refusal(desk.file("n.yaml", text)).startswith(message)


def test_options_cannot_loosen_what_is_locked(desk: LayersDesk) -> None:
    """Each says which option, and where the lock is."""
    desk.file("etc/policy.yaml", LOCKED)
    assert desk.refusal(mode=Mode.BYPASS).startswith(
        "--mode: mode bypassPermissions is looser than default, which etc/"
    )
    assert desk.refusal(allow=["Edit"]).startswith("--allow: the allow rule Edit may not be added: etc/policy.yaml:2")
    assert desk.refusal(project_instructions=True).startswith("--project-instructions: project_instructions give is l")
    assert desk.run(project_instructions=False).project_instructions is False
    assert desk.refusal(image="x").startswith("--image: sandbox.image x is looser than img, which etc/policy.yaml:2")


def test_what_is_locked_may_be_tightened_and_sizes_are_capped(desk: LayersDesk) -> None:
    """More than allowed counts as what is allowed, and the person is told."""
    desk.file("etc/policy.yaml", LOCKED)
    named = desk.file("n.yaml", "mode: plan\nsandbox: {memory: 8GiB, pids: 32, masks: [mine]}\nlimits: {turns: 5}\n")
    policy = desk.run(named, max_turns=99)
    assert policy.mode is Mode.PLAN
    assert (policy.sandbox.memory_bytes, policy.sandbox.pids) == (1024**3, 32)
    assert policy.sandbox.masks == ("secret", "mine")
    assert policy.limits == Limits(10, None)
    assert [note.replace(f"{desk.folder}/", "") for note in policy.notes] == [
        "n.yaml:2: sandbox.memory 8GiB counts as 1GiB: etc/policy.yaml:2 locks it",
        "--max-turns: limits.turns 99 counts as 10: etc/policy.yaml:2 locks it",
    ]


def test_every_limit_of_the_container_is_capped_and_the_stricter_profile_is_no_loosening(desk: LayersDesk) -> None:
    """A lock of the whole section holds for what lies in memory, for files and for descriptors, too."""
    desk.file("etc/policy.yaml", "lock: sandbox\nsandbox: {seccomp: debug, nofile: 100, tmp: 32MiB, tmp_files: 200}\n")
    wide = "{seccomp: default, nofile: 9999, fsize: 8GiB, tmp: 2GiB, tmp_files: 999999, home: 2GiB, shm: 2GiB}"
    box = desk.run(desk.file("n.yaml", f"sandbox: {wide}\n")).sandbox
    usual = SandboxSettings()

    assert (box.seccomp, box.nofile, box.tmp_bytes, box.tmp_files) == ("default", 100, 32 * 1024**2, 200)
    assert (box.fsize_bytes, box.home_bytes, box.shm_bytes) == (usual.fsize_bytes, usual.home_bytes, usual.shm_bytes)


def test_shipped_and_saved_rules_do_not_count_where_allow_is_locked(desk: LayersDesk) -> None:
    """They are nobody's attempt, so the run starts; and an answer cannot add one."""
    desk.file("etc/policy.yaml", LOCKED)
    desk.file("config/allowed.yaml", "allow: ['Bash(make x)']\n")
    policy = desk.run("trusted-build")
    assert [rule.text for rule in policy.rules.allow] == ["Bash(make test)"]
    assert policy.mode is Mode.DEFAULT
    assert len(policy.notes) == 3
    with pytest.raises(PolicyError, match=r"no allow rule may be added: .*policy\.yaml:2 locks allow"):
        policy.with_allow("Edit")


def test_a_locked_mode_holds_for_a_mode_that_is_chosen_later(desk: LayersDesk) -> None:
    """No call is judged by a looser one, whatever the session is switched to."""
    desk.file("etc/policy.yaml", "mode: dontAsk\nlock: mode\n")
    assert bash(desk.run(), "make", mode=Mode.BYPASS).verdict is Verdict.DENY


def test_bypass_alone_can_be_forbidden(desk: LayersDesk) -> None:
    """The other modes stay free, and what a file does not say is not changed."""
    desk.file("etc/policy.yaml", "lock: bypassPermissions\n")
    assert desk.refusal(mode=Mode.BYPASS).startswith("--mode: mode bypassPermissions is looser than acceptEdits, which")
    assert desk.run(mode=Mode.ACCEPT_EDITS).mode is Mode.ACCEPT_EDITS
    assert desk.run().mode is Mode.DEFAULT


def test_a_user_s_lock_holds_for_named_policies_and_options(desk: LayersDesk) -> None:
    """A lock binds what is nearer, in any file."""
    desk.file("config/policy.yaml", "mode: plan\nlock: [mode, limits.turns]\nlimits: {turns: 4}\n")
    assert "is looser than plan, which config/policy.yaml:2 locks" in desk.refusal(mode=Mode.DEFAULT)
    policy = desk.run("ci")
    assert (policy.mode, policy.limits.turns, policy.limits.wall_s) == (Mode.PLAN, 4, 1800)


def test_an_administrator_s_file_that_others_can_write_stops_every_run(desk: LayersDesk) -> None:
    """It is never left out silently: unsafe, broken, a pipe, a link to nowhere."""
    path = Path(desk.file("etc/policy.yaml", "mode: plan\n"))
    path.chmod(0o664)
    assert "the administrator's policy is not safe; it must belong to" in desk.refusal()
    path.chmod(0o644)
    path.parent.chmod(0o777)
    assert "etc, which others than" in desk.refusal()
    path.parent.chmod(0o755)
    path.write_text("mode: fast\n")
    assert desk.refusal().startswith("etc/policy.yaml:1: mode: must be")
    path.unlink()
    os.mkfifo(path)
    assert "not a pipe" in desk.refusal()
    path.unlink()
    path.symlink_to("nowhere")
    assert "No such file" in desk.refusal()


def test_an_administrator_s_file_is_checked_as_one(desk: LayersDesk) -> None:
    """It may name hooks for the host, and must be safe; a copy elsewhere is anybody's file."""
    text = "hooks: {stop: [{command: x, place: host}]}\n"
    path = Path(desk.file("etc/policy.yaml", text))
    places = Places(own_folder=desk.own, administrators=path, administrators_uid=os.geteuid())
    assert check_policy(str(path), places=places) == []
    assert [fault.location for fault in check_policy(desk.file("copy.yaml", text), places=places)] == [
        f"{desk.folder}/copy.yaml:1"
    ]
    path.chmod(0o666)
    assert "is not safe" in str(check_policy(str(path), places=places)[0])


def test_limits_of_all_kinds_are_capped_and_prices_follow_the_lock_on_the_cost(desk: LayersDesk) -> None:
    """Whoever may name the price could otherwise spend what they like; without a lock the nearer layer wins."""
    admin = (
        "lock: [limits.cost_usd, limits.subagents.total, limits.tokens, limits.context_tokens]\n"
        "limits: {cost_usd: 2, tokens: 1000, subagents: {total: 5}, prices: {m: {input: 1, output: 1}}}\n"
    )
    near = (
        "limits:\n  cost_usd: null\n  tokens: 2000\n  context_tokens: 9000\n"
        "  subagents: {depth: 9, at_once: 3, total: 7}\n"
        "  prices: {m: {input: 0, output: 0}}\n"
    )
    named = desk.file("n.yaml", near)
    free = desk.run(named)
    assert free.limits == Limits(
        tokens=2000, context_tokens=9000, subagent_depth=9, subagents_at_once=3, subagents_total=7
    )
    assert free.prices == (("m", Price(0, 0, 0, 0, 0)),)

    desk.file("etc/policy.yaml", admin)
    held = desk.run(named, max_cost_usd=9.0, max_tokens=5)
    assert held.limits == Limits(
        cost_usd=2, tokens=5, context_tokens=9000, subagent_depth=9, subagents_at_once=3, subagents_total=5
    )
    assert held.prices == (("m", Price(1, 1, 1.25, 0.1, 2)),)
    told = "\n".join(held.notes)
    assert 'limits.prices {"m": {input: 0, output: 0}} counts as {"m": {input: 1, output: 1}}' in told
    assert "limits.subagents.total 7 counts as 5" in told
    assert "--max-cost: limits.cost_usd 9 counts as 2" in told


ELSEWHERE = """mode: default
lock: [mode, sandbox.memory, sandbox.masks, sandbox.allow_hosts, sandbox.runtime]
rules: {deny: ['Bash(curl:*)'], ask: ['Bash(make:*)']}
sandbox: {memory: 1GiB, masks: [secret], allow_hosts: ['example.org:443']}
"""
AGREED = "rules: {deny: ['Bash(curl:*)', 'Bash(make:*)']}\n"
BORNE = "mode: plan\nsandbox: {memory: 512MiB, masks: [secret, more], allow_hosts: ['example.org:443']}\n" + AGREED


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (BORNE, None),
        (BORNE.replace("curl", "wget"), "etc/policy.yaml:3 denies Bash(curl:*), and the policy of the bundle does not"),
        (BORNE.replace("make", "cake"), "etc/policy.yaml:3 asks about Bash(make:*), and the policy of the bundle does"),
        (BORNE.replace("plan", "acceptEdits"), "mode acceptEdits of the bundle is looser than default, which"),
        (
            BORNE.replace("512MiB", "2GiB"),
            "sandbox.memory 2GiB of the bundle is looser than 1GiB, which etc/policy.yaml:2",
        ),
        (BORNE.replace("secret", "other"), "sandbox.masks ['other', 'more'] of the bundle is looser than"),
        (BORNE.replace("example", "other"), "sandbox.allow_hosts [other.org:443] of the bundle is looser than"),
        (BORNE.replace("sandbox: {", "sandbox: {runtime: x, "), "sandbox.runtime x of the bundle is looser than runc"),
    ],
)
def test_a_policy_that_was_merged_elsewhere_is_held_to_it(desk: LayersDesk, text: str, said: str | None) -> None:
    """That of a bundle: no layer of this machine has been in it."""
    places = Places(own_folder=desk.own, administrators=desk.admin, administrators_uid=os.geteuid())
    assert administrators_policy(places) is None
    desk.file("etc/policy.yaml", ELSEWHERE)
    administrators, policy = administrators_policy(places), load_policy(desk.file("theirs.yaml", text))
    assert administrators is not None
    if said is None:
        refuse_looser(policy, administrators)
        return
    with pytest.raises(PolicyError) as caught:
        refuse_looser(policy, administrators)
    assert said in str(caught.value).replace(f"{desk.folder}/", "")
