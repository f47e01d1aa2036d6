"""What a person wrote is kept for them alone, without secrets, and costs nothing when it cannot be."""

from __future__ import annotations

import json
import os
import stat
from pathlib import Path

import pytest

from sandbox_agent.frontends.chat_history import KEPT_MESSAGES, ChatHistory


def earlier(path: Path) -> list[str]:
    """What the arrow keys find, the newest first."""
    return list(ChatHistory(path).load_history_strings())


def test_it_is_kept_for_the_person_alone_without_secrets(tmp_path: Path) -> None:
    """Several lines are one message; what is saved is what the redactor leaves."""
    path = tmp_path / "history"
    history = ChatHistory(path)
    history.append_string("one\ntwo")
    history.append_string("the key is hunter2")
    history.save(lambda text: text.replace("hunter2", "[masked]"))
    history.save(lambda text: "saved twice")

    assert earlier(path) == ["the key is [masked]", "one\ntwo"]
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert history.get_strings() == ["one\ntwo", "the key is hunter2"]


def test_lines_that_are_no_messages_are_left_out(tmp_path: Path) -> None:
    """A line that was cut, another program's, bytes that are no text."""
    path = tmp_path / "history"
    path.write_bytes(b'"good"\n{"a": 1}\n" "\n"cut\n\xff\xfe\n\n"also good"\n')

    assert earlier(path) == ["also good", "good"]


def test_it_does_not_grow_for_ever(tmp_path: Path) -> None:
    """The newest are kept, in the file as well."""
    path = tmp_path / "history"
    path.write_text("".join(json.dumps(str(number)) + "\n" for number in range(KEPT_MESSAGES * 2 + 1)))

    assert earlier(path)[:2] == [str(KEPT_MESSAGES * 2), str(KEPT_MESSAGES * 2 - 1)]
    assert len(path.read_text().splitlines()) == KEPT_MESSAGES
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


@pytest.mark.parametrize("kind", ["link", "folder"])
def test_a_file_that_cannot_be_used_is_told_and_left_alone(tmp_path: Path, kind: str) -> None:
    """No link is followed, neither to read nor to write."""
    path, target = tmp_path / "history", tmp_path / "target"
    target.write_text('"mine"\n')
    path.symlink_to(target) if kind == "link" else path.mkdir()
    history = ChatHistory(path)
    read = list(history.load_history_strings())
    history.append_string("new")
    history.save(str)

    assert read == []
    assert history.fault is not None
    assert history.fault.startswith(f"{path}: ")
    assert (target.read_text(), os.listdir(tmp_path).count("history")) == ('"mine"\n', 1)
