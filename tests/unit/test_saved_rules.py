"""What "always" writes, and what it means next time."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest

from sandbox_agent.errors import PolicyError
from sandbox_agent.policy.load import Places, run_policy
from sandbox_agent.policy.policy import Policy
from sandbox_agent.policy.saved import save


def under(folder: Path) -> Policy:
    """The policy of a run of a user whose configuration is in this folder, on a machine without an administrator."""
    return run_policy(None, places=Places(own_folder=folder, administrators=folder / "none"))


def test_a_saved_rule_is_there_next_time_with_its_line(tmp_path: Path) -> None:
    """Twice is once, odd characters survive, and the location leads a person to the line."""
    path = tmp_path / "new" / "allowed.yaml"
    for rule in ["Edit(/a.py)", 'Bash(echo "x: y" # z)', "Edit(/a.py)"]:
        save(path, rule)

    rules = under(path.parent).rules.allow[-2:]
    assert [(rule.text, rule.location) for rule in rules] == [
        ("Edit(/a.py)", f"{path}:3"),
        ('Bash(echo "x: y" # z)', f"{path}:4"),
    ]
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


@pytest.mark.parametrize("name", ["\U0001f600.py", "gr\u00fcn.py", "a\u202eb.py", "a\u2028b.py", "\U000e0041.py"])
def test_every_character_survives_and_is_seen_in_the_file(tmp_path: Path, name: str) -> None:
    """One answer of "always" must not make the next run fail, nor hide in the file what it allows."""
    path = tmp_path / "allowed.yaml"
    save(path, f"Edit(/{name})")

    assert under(tmp_path).rules.allow[-1].text == f"Edit(/{name})"
    assert all(line.isprintable() for line in path.read_text().split("\n"))


def test_nothing_saved_changes_nothing(tmp_path: Path) -> None:
    """No file, an empty file, an empty list."""
    policy = under(tmp_path)
    for text in (None, "", "# only a comment\n", "allow:\n"):
        path = tmp_path / "allowed.yaml"
        if text is not None:
            path.write_text(text)
        assert under(tmp_path) == policy


@pytest.mark.parametrize(
    "text", ["[", "deny: [Bash]", "allow: {a: b}", "allow: [[x]]", "allow: [a]\nmore: [b]", "allow: x"]
)
def test_a_file_that_is_something_else_is_named(tmp_path: Path, text: str) -> None:
    """Nothing is guessed: the run does not start."""
    path = tmp_path / "allowed.yaml"
    path.write_text(text)
    with pytest.raises(PolicyError, match=r"allowed\.yaml"):
        under(tmp_path)


def test_a_link_is_not_written_through(tmp_path: Path) -> None:
    """The file another program planted a link at stays as it was."""
    target = tmp_path / "target"
    target.write_text("")
    (tmp_path / "allowed.yaml").symlink_to(target)
    with pytest.raises(PolicyError, match="could not be saved"):
        save(tmp_path / "allowed.yaml", "Bash(ls)")
    assert target.read_text() == ""
