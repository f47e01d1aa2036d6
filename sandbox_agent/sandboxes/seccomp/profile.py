"""The JSON text of a profile, as the Engine API takes it."""

from __future__ import annotations

from importlib import resources
from typing import Literal

SeccompProfile = Literal["default", "debug"]
"""`debug` allows what a debugger needs, too: a process may trace another of its uid."""

PROFILES: tuple[SeccompProfile, ...] = ("default", "debug")


def profile_text(name: SeccompProfile) -> str:
    """What `SecurityOpt` has after `seccomp=`."""
    return resources.files(__package__).joinpath(f"{name}.json").read_text("utf-8")
