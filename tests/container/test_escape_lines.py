"""The published probes, word for word, in a container as a session gets it: only the word OPEN is a breach."""

from __future__ import annotations

import json
import os
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from sandbox_agent.engine.specimen import Specimen, scratch_folder, specimen
from sandbox_agent.policy.load import load_policy
from sandbox_agent.sandboxes.endpoint import resolve_endpoint

pytestmark = pytest.mark.docker

LINES = json.loads((Path(__file__).parent.parent / "data" / "probes.json").read_text())
OF_THE_DISK = ("disk-ws",)
"""Bounded in the container only where the session has a disk of its own."""

POLICY = """
version: 1
name: small
extends: default
sandbox: {memory: 512MiB, cpus: 1, pids: 128, disk: 300MiB, tmp: 128MiB, nofile: 1024, fsize: 1GiB}
"""
"""The probes were written for limits of this size."""


@pytest.fixture(scope="module")
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(scope="module")
async def small(tmp_path_factory: pytest.TempPathFactory, anyio_backend: str) -> AsyncIterator[Specimen]:
    """One container for all of them."""
    place = tmp_path_factory.mktemp("policy") / "small.yaml"
    place.write_text(POLICY)
    with scratch_folder() as host:
        async with specimen(load_policy(str(place)), host, resolve_endpoint(os.environ)) as found:
            yield found


@pytest.mark.parametrize("line", LINES, ids=[line["id"] for line in LINES])
async def test_no_published_probe_finds_a_way(small: Specimen, line: dict[str, str]) -> None:
    """Each alone, as any command of a session is run."""
    ended = await small.sandbox.exec(["bash", "-c", line["line"]], timeout_s=60)
    watched = line["id"] in OF_THE_DISK and not small.own_disk

    assert not ended.timed_out
    assert b"OPEN" not in ended.stdout or watched
