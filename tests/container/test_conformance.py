"""Both transports of the DockerSandbox do what the contract says."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
from sandbox_rig import Rig, rig

from sandbox_agent.testing.conformance import Check, checks
from sandbox_agent.testing.conformance_check import Need

pytestmark = pytest.mark.docker

WITHOUT_RUNNER = [Need.SPILL, Need.ATOMIC, Need.COUNTS]
"""What one Docker exec per call does not give; see `sandboxes.perexec` and `sandboxes.files`."""


@pytest.fixture(scope="module")
async def with_runner(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Rig]:
    async with rig(tmp_path_factory.mktemp("runner")) as made:
        yield made


@pytest.fixture(scope="module")
async def per_exec(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Rig]:
    async with rig(tmp_path_factory.mktemp("perexec"), transport="exec") as made:
        yield made


@pytest.mark.parametrize("check", checks(), ids=lambda check: check.name)
async def test_the_runner_conforms(with_runner: Rig, check: Check) -> None:
    """Every check."""
    assert with_runner.info.transport == "runner"
    await check.run(with_runner.sandbox)


@pytest.mark.parametrize("check", checks(without=WITHOUT_RUNNER), ids=lambda check: check.name)
async def test_one_exec_per_call_conforms(per_exec: Rig, check: Check) -> None:
    """Every check but for what this transport states it lacks."""
    assert per_exec.info.transport == "exec"
    await check.run(per_exec.sandbox)
