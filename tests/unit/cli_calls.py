"""Calls the console script's function in this process. Not a test file."""

from __future__ import annotations

import io
from contextlib import redirect_stderr, redirect_stdout
from typing import NamedTuple

import pytest

from sandbox_agent.cli import main


class Ended(NamedTuple):
    """How a call ended."""

    code: int
    out: str
    err: str


def call(*arguments: str) -> Ended:
    """`sandbox-agent ARGUMENTS`."""
    out, err = io.StringIO(), io.StringIO()
    with redirect_stdout(out), redirect_stderr(err), pytest.raises(SystemExit) as ended:
        main(arguments)
    return Ended(int(str(ended.value.code or 0)), out.getvalue(), err.getvalue())


def policy_command(*arguments: str) -> Ended:
    """`sandbox-agent policy ARGUMENTS`."""
    return call("policy", *arguments)
