"""A look at what an engine has mounted, through one of its processes: only through the right one."""

from __future__ import annotations

import subprocess
import sys

import pytest

from sandbox_agent.sandboxes.view import open_root

WORD = "60.123456789012"


def test_a_process_that_is_not_the_engine_s_is_not_looked_into() -> None:
    """An engine counts processes of its own machine: the same number can be anybody's here."""
    other = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    try:
        with pytest.raises(ProcessLookupError, match="not this machine's"):
            open_root(other.pid, WORD, within_s=0)
    finally:
        other.communicate(b"\n")


def test_a_process_that_is_gone_is_an_error_at_once() -> None:
    """Whatever the time given."""
    gone = subprocess.Popen([sys.executable, "-c", ""])
    gone.wait()
    with pytest.raises(OSError, match=r"No such (?:file|process)"):
        open_root(gone.pid, WORD)
