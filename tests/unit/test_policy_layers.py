"""Layers: what a policy extends, whose word stays, and which files may be policies."""

from __future__ import annotations

from pathlib import Path

import pytest
from layers_desk import LayersDesk
from policy_desk import bash, on_path

from sandbox_agent.errors import PolicyError
from sandbox_agent.policy.load import check_outside_workspace, load_policy, parse_policy
from sandbox_agent.types import Limits, Mode, Verdict


@pytest.fixture
def desk(tmp_path: Path) -> LayersDesk:
    """Nobody has written a policy yet."""
    return LayersDesk(tmp_path)


def test_a_file_adds_rules_to_what_it_extends_and_its_settings_win(desk: LayersDesk) -> None:
    """The denies of a shipped policy stay, its mode and limits do not, and each line knows where it is from."""
    base = desk.file("base.yaml", "extends: readonly\nmode: plan\nrules: {ask: [Task]}\nlimits: {turns: 7}\n")
    top = desk.file("top.yaml", "extends: ./base.yaml\nmode: default\nrules: {allow: ['Bash(make:*)', Edit]}\n")
    policy = load_policy(top)
    assert policy.mode is Mode.DEFAULT
    assert policy.limits == Limits(turns=7, wall_s=1800)
    assert on_path(policy, "Edit", "/workspace/a").rule == "no-edits"
    assert bash(policy, "make").location == f"{top}:3"
    assert [rule.location for rule in policy.rules.ask] == [f"{base}:3"]
    assert policy.files == (Path(base), Path(top))


def test_of_several_extended_ones_the_last_is_the_nearest(desk: LayersDesk) -> None:
    """And what two of them extend is there once."""
    desk.file("a.yaml", "extends: readonly\nlimits: {turns: 1, wall_s: 1}\n")
    desk.file("b.yaml", "extends: readonly\nlimits: {turns: 2}\n")
    policy = load_policy(desk.file("top.yaml", "extends: [a.yaml, b.yaml]\n"))
    assert policy.limits.turns == 2
    assert [rule.label for rule in policy.rules.deny] == ["no-edits"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("\nextends: ./top.yaml\n", "top.yaml:2: extends goes round in a circle: top.yaml -> top.yaml"),
        ("extends: [ci, a.yaml]\n", "a.yaml:1: extends goes round in a circle: top.yaml -> a.yaml -> top.yaml"),
        ("mode: plan\nextends: no.yaml\n", "top.yaml:2: extends no.yaml: "),
        ("\nextends: nope\n", "top.yaml:2: extends nope: there is no policy named 'nope'"),
        ("extends: broken.yaml\n", "broken.yaml:2: unknown key 'mod'; did you mean 'mode'?"),
        ("extends: deep0.yaml\n", "deep6.yaml:1: extends goes deeper than 8 files"),
        ("extends: ''\n", "top.yaml:1: extends: must not be empty"),
        ("extends: 3\n", "top.yaml:1: extends: must be a name, or a list of names, not 3"),
    ],
)
def test_what_cannot_be_extended_is_named_with_its_place(desk: LayersDesk, text: str, message: str) -> None:
    """Circles, missing files, wrong ones and endless chains."""
    desk.file("a.yaml", "extends: top.yaml\n")
    desk.file("broken.yaml", "mode: plan\nmod: plan\n")
    for number in range(12):
        desk.file(f"deep{number}.yaml", f"extends: deep{number + 1}.yaml\n")
    told = desk.refusal(desk.file("top.yaml", text))
    assert message in told
    assert "\n" not in told


def test_a_text_extends_shipped_policies_only() -> None:
    """There is no folder that a file could be relative to."""
    assert parse_policy("extends: readonly\n").mode is Mode.DONT_ASK
    with pytest.raises(PolicyError, match=r"policy:1: extends \./a\.yaml: only a file can extend a file"):
        parse_policy("extends: ./a.yaml\n")


def test_the_user_s_own_policy_is_taken_where_none_is_named(desk: LayersDesk) -> None:
    """Alone: the shipped default is only there if it is extended."""
    own = desk.file("config/policy.yaml", "mode: plan\nrules: {allow: ['Bash(make:*)']}\n")
    policy = desk.run()
    assert (policy.mode, policy.location) == (Mode.PLAN, own)
    assert [rule.text for rule in policy.rules.allow] == ["Bash(make:*)"]
    assert desk.run("default").mode is Mode.DEFAULT


def test_a_named_policy_keeps_the_denies_and_asks_of_the_user_s_own_and_nothing_else(desk: LayersDesk) -> None:
    """Neither allow rules nor settings: the run was to go by the named one."""
    own = desk.file(
        "config/policy.yaml",
        "mode: acceptEdits\nlimits: {turns: 3}\nrules:\n"
        "  deny: ['Bash(rm:*)']\n  ask: [Edit]\n  allow: ['Bash(make:*)']\n",
    )
    named = desk.file("named.yaml", "rules: {allow: [Bash, 'Bash(rm:*)', Edit]}\n")
    policy = desk.run(named, allow=["Bash(rm:*)"])
    decision = bash(policy, "rm x")
    assert (decision.verdict, decision.location, decision.layer) == (Verdict.DENY, f"{own}:4", "user")
    assert on_path(policy, "Edit", "/workspace/a").verdict is Verdict.ASK
    assert (policy.mode, policy.limits.turns) == (Mode.DEFAULT, 200)
    assert bash(desk.run("readonly"), "make").verdict is not Verdict.ALLOW


def test_naming_the_own_policy_is_the_same_as_naming_none(desk: LayersDesk) -> None:
    """Its allow rules count and nothing is there twice."""
    own = desk.file("config/policy.yaml", "rules: {deny: ['Bash(rm:*)'], allow: ['Bash(make:*)']}\n")
    assert desk.run(own) == desk.run()


def test_saved_rules_hold_unless_the_policy_ignores_them(desk: LayersDesk) -> None:
    """Under a named policy as well; the shipped ones for what is not trusted, or must repeat, ignore them."""
    saved = desk.file("config/allowed.yaml", "allow:\n  - 'Bash(make:*)'\n")
    found = bash(desk.run(), "make")
    assert (found.verdict, found.location, found.layer) == (Verdict.ALLOW, f"{saved}:2", "saved")
    assert bash(desk.run(desk.file("n.yaml", "mode: default\n")), "make").verdict is Verdict.ALLOW
    for name in ("readonly", "ci", "untrusted"):
        assert bash(desk.run(name), "make").verdict is Verdict.ASK


def test_the_options_are_the_nearest_layer(desk: LayersDesk) -> None:
    """They set what they say, and cannot take a deny away."""
    policy = desk.run(
        "default", mode=Mode.PLAN, image="img", max_turns=9, timeout_s=60.5, allow=["Bash(git push:*)"], deny=["Task"]
    )
    assert (policy.mode, policy.sandbox.image, policy.limits) == (Mode.PLAN, "img", Limits(9, 60.5))
    assert dict(policy.sources)["limits.turns"] == "--max-turns"
    assert bash(policy, "git push").layer == "shipped"
    assert policy.hidden_tools(["Task"]) == {"Task"}


def test_a_policy_that_others_can_write_is_refused(desk: LayersDesk) -> None:
    """By its own bits, or because it can be exchanged; also one that is extended, and saved rules."""
    named = Path(desk.file("n.yaml", "mode: plan\n"))
    top = desk.file("top.yaml", "extends: n.yaml\n")
    named.chmod(0o646)
    assert desk.refusal(str(named)) == "n.yaml: the policy can be written by others; chmod go-w n.yaml"
    assert (
        desk.refusal(top)
        == "top.yaml:1: extends n.yaml: n.yaml: the policy can be written by others; chmod go-w n.yaml"
    )
    named.chmod(0o644)
    desk.folder.chmod(0o777)
    assert "where others can exchange it" in desk.refusal(str(named))
    desk.folder.chmod(0o1777)
    assert desk.run(str(named)).mode is Mode.PLAN, "a sticky folder, as /tmp is"
    desk.folder.chmod(0o755)
    Path(desk.file("config/allowed.yaml", "allow: [Bash]\n")).chmod(0o666)
    assert "config/allowed.yaml: the policy can be written by others" in desk.refusal()


def test_no_file_of_a_policy_may_lie_in_the_workspace(desk: LayersDesk) -> None:
    """Nor may one that is extended, the saved rules, or a link on the way; a link out of it is one, too."""
    workspace = desk.folder / "work"
    workspace.mkdir()
    inside, out = desk.file("work/base.yaml", "mode: plan\n"), desk.file("out.yaml", "mode: plan\n")
    (workspace / "link.yaml").symlink_to(out)
    (desk.folder / "hop.yaml").symlink_to(workspace / "link.yaml")
    for named in (
        inside,
        desk.file("top.yaml", "extends: work/base.yaml\n"),
        str(workspace / "link.yaml"),
        str(desk.folder / "hop.yaml"),
    ):
        with pytest.raises(PolicyError, match="must not lie in the workspace"):
            check_outside_workspace(desk.run(named), workspace)
    check_outside_workspace(desk.run(out), workspace)
    desk.file("config/allowed.yaml", "allow: [Bash]\n")
    with pytest.raises(PolicyError, match=r"allowed\.yaml: a policy must not lie in the workspace"):
        check_outside_workspace(desk.run(out), desk.folder / "config")
