"""What the modes let a command do: the edits mode stays in the folder, bypass stops at rules and critical paths."""

from __future__ import annotations

from dataclasses import replace

import pytest
from policy_desk import bash, policy

from sandbox_agent.policy.shell import analyse
from sandbox_agent.types import Decision, Mode, Verdict


def decided(command: str, mode: Mode, *, deny: tuple[str, ...] = (), ask: tuple[str, ...] = ()) -> Decision:
    """With every path leading where it says."""
    paths = [replace(access, resolved=access.path) for access in analyse(command).accesses()]
    return bash(policy(deny=deny, ask=ask), command, mode=mode, paths=paths)


@pytest.mark.parametrize(
    "command",
    [
        *("rm -rf /", "rm -rf //", "rm -rf /*", "rm -rf /usr", "rm -rf /etc/", "rm -rf ~", "rm -rf ~/*", "rm -r /home"),
        *("rm -rf .", "rm -rf ./", "rm -rf *", "rm -rf ./*", "rm -rf /workspace", "rm -rf ..", "rmdir /workspace"),
        *("ls; rm -rf /", "sudo rm -rf /", "bash -c 'rm -rf /'", "cd a && rm -rf ..", "echo $(rm -rf /)"),
        *("rm -rf a /", "rm -rf --no-preserve-root /", "timeout 5 rm -rf /tmp/..", "find . -exec rm -rf / \\;"),
    ],
)
def test_no_mode_removes_a_critical_path_unasked(command: str) -> None:
    """Not even the one that allows the rest."""
    for mode in (Mode.BYPASS, Mode.ACCEPT_EDITS):
        assert decided(command, mode).verdict is Verdict.ASK


@pytest.mark.parametrize(
    "command", ["rm -rf build", "rm -rf /workspace/a", "rm a/*", "rm -rf /tmp/x", "rm -f *.pyc", "rm x", "ls /", "rm"]
)
def test_bypass_lets_other_removals_through(command: str) -> None:
    """They are what it is for."""
    assert decided(command, Mode.BYPASS).verdict is Verdict.ALLOW


def test_bypass_obeys_rules() -> None:
    """Deny and ask, for commands and for files."""
    assert decided("ls && git push", Mode.BYPASS, deny=("Bash(git push:*)",)).verdict is Verdict.DENY
    assert decided("cat .env", Mode.BYPASS, deny=("Read(.env)",)).verdict is Verdict.DENY
    assert decided("make > docs/a", Mode.BYPASS, deny=("Edit(/docs/**)",)).verdict is Verdict.DENY
    assert decided("git push", Mode.BYPASS, ask=("Bash(git push:*)",)).verdict is Verdict.ASK
    assert decided("$x", Mode.BYPASS, deny=("Bash(git push:*)",)).verdict is Verdict.ASK
    assert decided("$x", Mode.BYPASS).verdict is Verdict.ALLOW


@pytest.mark.parametrize("command", ["touch a; make", "echo x > a", "mkdir a", "git commit -m x", "$x", "ls 'open"])
def test_plan_denies_what_does_not_plainly_read(command: str) -> None:
    """And what cannot be read is not plain reading."""
    assert decided(command, Mode.PLAN).verdict is not Verdict.ALLOW
    assert decided("ls | grep a", Mode.PLAN).verdict is Verdict.ALLOW


@pytest.mark.parametrize(
    "command",
    [
        *(
            "touch .git/hooks/x",
            "mv a .git/config",
            "cp a .bashrc",
            "mkdir .vscode",
            "rm .envrc",
            "echo x > .gitconfig",
        ),
        *("cp a /etc/b", "mv ../a b", "touch ~/a", "rm /tmp/a", "mkdir -p /opt/x", "echo x > ../a", "cp -t .git a"),
        *("touch a && make", "touch $x", "cd d && touch a", "touch a &", "sudo touch a", "xargs touch", "chmod +x a"),
    ],
)
def test_accept_edits_stays_in_the_folder_and_off_what_runs_later(command: str) -> None:
    """Everything else is asked as before."""
    assert decided(command, Mode.ACCEPT_EDITS).verdict is Verdict.ASK


@pytest.mark.parametrize(
    "command", ["touch a", "mkdir -p a/b", "mv a b", "cp -r a b", "rm -rf a", "rmdir a", "echo x > a", "cat a > b 2>&1"]
)
def test_accept_edits_covers_simple_file_commands(command: str) -> None:
    """Within the folder."""
    assert decided(command, Mode.ACCEPT_EDITS).verdict is Verdict.ALLOW
