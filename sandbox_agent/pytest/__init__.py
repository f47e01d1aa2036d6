"""A plugin for pytest: what an agent does as a regression test, with no key. Documented in docs/pytest.md.

Installed with the package, it is loaded by every run of pytest on the machine: so this module imports pytest and
nothing else, and what a fixture needs is imported by the first test that asks for it.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, cast

import pytest

from sandbox_agent import registry

if TYPE_CHECKING:
    from sandbox_agent.pytest.outcome import Call, Outcome
    from sandbox_agent.pytest.playing import Frozen, Scripts, Sessions

__all__ = ["Call", "Outcome", "frozen_bundle", "sandbox_session", "scripted"]


def __getattr__(name: str) -> object:
    if name in ("Call", "Outcome"):
        return getattr(registry.load("pytest", "outcome"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


@pytest.fixture(scope="session")
def sandbox_agent_home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where sessions of the tests are kept, and where a policy of the user would be: nothing of yours is used."""
    return tmp_path_factory.mktemp("sandbox-agent")


@pytest.fixture
def sandbox_agent_environment(sandbox_agent_home: Path) -> Iterator[None]:
    """Point state and configuration there for the time of one test."""
    ours = {"XDG_STATE_HOME": str(sandbox_agent_home / "state"), "XDG_CONFIG_HOME": str(sandbox_agent_home / "config")}
    before = {name: os.environ.get(name) for name in ours}
    os.environ.update(ours)
    yield
    for name, value in before.items():
        if value is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = value


@pytest.fixture
def scripted(request: pytest.FixtureRequest, tmp_path: Path) -> Scripts:
    """Makes models that play a script: `scripted("fix.yaml")`, beside the test, or `scripted([{...}, ...])`."""
    return cast("Scripts", registry.load("pytest", "playing").Scripts(request.path.parent, tmp_path))


@pytest.fixture
def sandbox_session(request: pytest.FixtureRequest, sandbox_agent_environment: None) -> Sessions:
    """Runs an agent in a real container: `sandbox_session(workspace, model, task=...)` gives what it did."""
    return cast("Sessions", registry.load("pytest", "playing").Sessions(request.path.parent))


@pytest.fixture
def frozen_bundle(request: pytest.FixtureRequest, sandbox_agent_environment: None) -> Frozen:
    """Replays a recorded bundle with no engine and no network: `frozen_bundle("fix.bundle")`, beside the test."""
    return cast("Frozen", registry.load("pytest", "playing").Frozen(request.path.parent))
