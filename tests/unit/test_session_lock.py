"""One process at a time has a session, and only a living one."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from sandbox_agent.engine.lock import SessionLock, in_use
from sandbox_agent.errors import ConfigError

HOLD = """
import sys
from pathlib import Path
from sandbox_agent.engine.lock import SessionLock
lock = SessionLock(Path(sys.argv[1]))
print("held", flush=True)
sys.stdin.read()
"""


def test_a_session_nobody_opened_is_free(tmp_path: Path) -> None:
    """And looking at it makes no file."""
    assert not in_use(tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_a_second_taker_is_told_who_has_it(tmp_path: Path) -> None:
    """The name of the session is in the text; after the release it is free."""
    lock = SessionLock(tmp_path)
    assert in_use(tmp_path)
    with pytest.raises(ConfigError, match=tmp_path.name):
        SessionLock(tmp_path)
    lock.release()
    lock.release()
    assert not in_use(tmp_path)
    SessionLock(tmp_path).release()


def test_a_killed_owner_holds_nothing(tmp_path: Path) -> None:
    """SIGKILL leaves the file and gives the lock back."""
    with subprocess.Popen(
        [sys.executable, "-c", HOLD, str(tmp_path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as owner:
        assert owner.stdout is not None
        assert owner.stdout.readline() == "held\n"
        assert in_use(tmp_path)
        owner.kill()
        owner.wait()
    assert not in_use(tmp_path)
