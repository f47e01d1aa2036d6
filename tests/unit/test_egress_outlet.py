"""What a session's way out is made of, and how it goes on when a forwarder is lost."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

import anyio
import pytest
from egress_rig import PATIENCE_S, PipeChannel

from sandbox_agent.engine import egress
from sandbox_agent.errors import ConfigError, SandboxDiedError, SandboxStartError, SandboxUnavailableError
from sandbox_agent.hostnames import HostEntry, entry_of
from sandbox_agent.policy.policy import SandboxSettings
from sandbox_agent.sandboxes.egress import ca, outlet
from sandbox_agent.sandboxes.egress.forwarder import FOLDER
from sandbox_agent.sandboxes.egress.ledger import Told
from sandbox_agent.sandboxes.egress.outlet import PORT, GateChanged, Outlet, Plan, plan

PROXY = f"http://127.0.0.1:{PORT}"
PEM = "-----BEGIN CERTIFICATE-----\nQQ==\n-----END CERTIFICATE-----\n"


def planned(folder: Path, *entries: str, **environ: str) -> Plan:
    listed = [entry_of(one) for one in entries]
    return plan(listed, ca_bundle=None, environ={"HOME": str(folder), **environ}, workspace=folder / "work")


def test_clients_are_told_of_the_gate_and_of_the_certificates(tmp_path: Path) -> None:
    """In both cases of the letters; loopback stays beside it; apt by a file of its own."""
    bundle = tmp_path / "ca.pem"
    bundle.write_text(PEM)
    made = planned(tmp_path, "a.org:443", "@node", SSL_CERT_FILE=str(bundle), npm_config_registry="http://n.example/")

    assert made.entries == (HostEntry("a.org", 443), HostEntry("n.example", 80))
    proxies = {name: made.env[name] for name in ("http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY")}
    assert set(proxies.values()) == {PROXY}
    assert made.env["no_proxy"] == made.env["NO_PROXY"] == "localhost,127.0.0.1,::1"
    assert {made.env[name] for name in ca.VARIABLES} == {f"{FOLDER}/ca-bundle.pem"}
    assert made.env["NPM_CONFIG_REGISTRY"] == "http://n.example/"
    assert made.files["ca-bundle.pem"].startswith(PEM.encode())
    assert f'CaInfo "{FOLDER}/ca-bundle.pem"' in made.files["apt.conf"].decode()
    assert made.env["APT_CONFIG"] == f"{FOLDER}/apt.conf"


def test_nothing_of_the_machine_s_environment_goes_in(tmp_path: Path) -> None:
    """Least of all a proxy's password."""
    made = planned(tmp_path, "a.org:443", https_proxy="http://me:s3cret@p.example:1", API_KEY="s3cret")
    assert "s3cret" not in repr(made)


async def test_without_hosts_there_is_no_way_out(tmp_path: Path) -> None:
    """Not even a proxy that refuses everything."""
    assert await egress.prepare(SandboxSettings(), environ={}, workspace=tmp_path) is None


async def test_the_model_is_told_what_is_open(tmp_path: Path) -> None:
    """By the hosts that groups stand for; nothing where there is no network."""
    settings = SandboxSettings(allow_hosts=(entry_of("a.org:443"), entry_of("@node")))
    environ = {"HOME": str(tmp_path), "npm_config_registry": "https://n.example/"}
    way = await egress.prepare(settings, environ=environ, workspace=tmp_path)
    [text] = egress.told_to_model(way)
    assert "and to no others: a.org:443, n.example:443." in text
    assert egress.told_to_model(None) == ()


async def test_a_machine_s_proxy_of_another_kind_stops_the_run(tmp_path: Path) -> None:
    """Before anything is made."""
    settings = SandboxSettings(allow_hosts=(entry_of("a.org:443"),))
    with pytest.raises(ConfigError, match="http_proxy is no http:// or https:// proxy"):
        await egress.prepare(settings, environ={"ALL_PROXY": "socks5://x:1"}, workspace=tmp_path)


class Starts:
    """Forwarders of this machine, one after the other, as the container would start them."""

    def __init__(self, *kinds: str) -> None:
        self.kinds = list(kinds)
        self.made: list[PipeChannel] = []

    async def __call__(self, argv: Sequence[str]) -> PipeChannel:
        kind = self.kinds.pop(0) if self.kinds else "gone"
        if kind == "gone":
            raise SandboxDiedError("the container is gone")
        if kind == "refused":
            raise SandboxUnavailableError("no process to be had")
        command = [sys.executable, *argv[1:]] if kind == "works" else [sys.executable, "-c", "raise SystemExit(1)"]
        channel = PipeChannel(await anyio.open_process(command, stderr=None))
        self.made.append(channel)
        return channel


async def served(starts: Starts, told: list[Told | GateChanged]) -> None:
    """Open, kill what was opened each time, and serve to the end."""
    way = Outlet(Plan(entries=(), env={}, files={}), told.append, environ={})
    await way.open(starts)
    with anyio.fail_after(PATIENCE_S):
        async with anyio.create_task_group() as group:
            group.start_soon(way.serve)
            starts.made[-1].process.kill()


async def test_a_lost_forwarder_is_told_and_replaced_until_the_container_ends() -> None:
    """A start that fails is told with its reason, and tried again."""
    starts, told = Starts("works", "refused", "fails", "works"), list[Told | GateChanged]()
    way = Outlet(Plan(entries=(), env={}, files={}), told.append, environ={})
    await way.open(starts)
    with anyio.fail_after(PATIENCE_S):
        async with anyio.create_task_group() as group:
            group.start_soon(way.serve)
            starts.made[0].process.kill()
            while GateChanged(True) not in told:
                await anyio.lowlevel.checkpoint()
            starts.made[2].process.kill()

    lost = "the forwarder was killed or ended"
    refused = f"{lost}; no process to be had"
    assert told == [
        GateChanged(False, refused),
        GateChanged(False, f"{refused}; the next one was killed or ended"),
        GateChanged(True),
    ]


async def test_the_end_of_the_container_is_not_told_as_a_loss() -> None:
    """Whoever uses the container next says what became of it."""
    told = list[Told | GateChanged]()
    await served(Starts("works"), told)
    assert told == []


async def test_an_image_without_a_python_does_not_start() -> None:
    """With what to do about it."""
    way = Outlet(Plan(entries=(), env={}, files={}), lambda one: None, environ={})
    with pytest.raises(SandboxStartError, match="leave allow_hosts out, or take an image with python3"):
        await way.open(Starts("fails", "fails", "fails"))


def test_the_port_is_not_one_that_the_kernel_gives_away() -> None:
    """A tool that asks for any port gets one from 32768 on, in a network of its own."""
    assert 1024 < outlet.PORT < 32_768
