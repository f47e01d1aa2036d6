"""Whether the owner named on a container has ended: in doubt it lives."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace

import pytest

from sandbox_agent.sandboxes.owner import is_dead, this_process


def test_this_process_lives() -> None:
    """Its label says so."""
    assert not is_dead(this_process().label())


def test_a_process_that_has_ended_is_dead() -> None:
    """Also while nobody has reaped it."""
    program = (
        "from sandbox_agent.sandboxes.owner import this_process; print(this_process().label(), flush=True); input()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as child:
        assert child.stdout is not None
        label = child.stdout.readline().strip()
        assert not is_dead(label)
        child.kill()
        os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
        assert is_dead(label)
    assert is_dead(label)


def test_a_pid_that_is_used_again_is_another_owner() -> None:
    """The start time tells them apart."""
    owner = this_process()

    assert is_dead(replace(owner, started_ticks=owner.started_ticks - 1).label())


def test_an_owner_before_the_last_boot_is_dead() -> None:
    """On this machine."""
    assert is_dead(replace(this_process(), boot="00000000-0000-0000-0000-000000000000").label())


def test_an_owner_elsewhere_is_left_alone() -> None:
    """Another machine's, and one in another pid namespace, cannot be seen from here."""
    owner = this_process()

    assert not is_dead(replace(owner, machine="000000000000", started_ticks=1).label())
    assert not is_dead(replace(owner, namespace="1", started_ticks=1).label())


@pytest.mark.parametrize("label", ["", "x", "1/2/3", "a/b/c/d/e", "a/b/c/-1/5"])
def test_a_label_that_is_not_ours_is_left_alone(label: str) -> None:
    """Whoever wrote it."""
    assert not is_dead(label)
