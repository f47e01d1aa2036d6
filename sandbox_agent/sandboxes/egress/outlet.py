"""The way out of one session: forwarder, tunnel and proxy put together, kept going, and what the clients are told.

Without a forwarder nothing gets out: losing it closes the gate, which is said at once, and another is started.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import anyio

from sandbox_agent.errors import SandboxDiedError, SandboxError, SandboxStartError
from sandbox_agent.hostnames import HostEntry
from sandbox_agent.sandboxes.connection import Channel
from sandbox_agent.sandboxes.egress import ca, hosts
from sandbox_agent.sandboxes.egress.dial import Connect, Dialler, Resolve, connect, is_own, resolve, routes_of
from sandbox_agent.sandboxes.egress.forwarder import FOLDER
from sandbox_agent.sandboxes.egress.gate import Gate
from sandbox_agent.sandboxes.egress.ledger import Ended, Ledger, Told
from sandbox_agent.sandboxes.egress.proxy import Caps, Proxy
from sandbox_agent.sandboxes.egress.tunnel import Tunnel, TunnelLostError
from sandbox_agent.sandboxes.program import INTERPRETERS, command

PORT = 18_128
"""Of the container's loopback. Outside what the kernel gives to sockets that ask for no port."""

_CA_FILE, _APT_FILE = "ca-bundle.pem", "apt.conf"
_FIRST_WAIT_S, _LONGEST_WAIT_S = 0.1, 5.0

OpenProgram = Callable[[Sequence[str]], Awaitable[Channel]]
"""Starts a program in the container as its main user."""


@dataclass(frozen=True, slots=True)
class GateChanged:
    """The way out was lost (`reason` says how), or is there again."""

    open: bool
    reason: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What a session's way out is made of, known before its container is: it tells the tools by their environment."""

    entries: tuple[HostEntry, ...]
    env: Mapping[str, str]
    files: Mapping[str, bytes]
    notes: tuple[str, ...] = ()
    caps: Caps = field(default_factory=Caps)


def plan(
    entries: Sequence[HostEntry],
    *,
    ca_bundle: str | None,
    environ: Mapping[str, str],
    workspace: Path,
    total_bytes: int | None = None,
) -> Plan:
    """The plan for an allow-list, from what this machine's clients are configured for.

    Raises:
        ConfigError: something of it cannot be read.
    """
    machine = hosts.Machine(environ=environ, home=Path(environ.get("HOME") or "/"))
    expanded = hosts.expand(entries, machine)
    bundle = ca.gather(ca_bundle, environ, workspace=workspace)
    routes_of(environ)
    apt = 'Acquire::http::Pipeline-Depth "0";\n'
    files, env = {}, {**_proxy_env(), **expanded.env, "APT_CONFIG": f"{FOLDER}/{_APT_FILE}"}
    if bundle.pem:
        files[_CA_FILE] = bundle.pem
        env |= dict.fromkeys(ca.VARIABLES, f"{FOLDER}/{_CA_FILE}")
        apt += f'Acquire::https::CaInfo "{FOLDER}/{_CA_FILE}";\n'
    files[_APT_FILE] = apt.encode()
    caps = Caps(total_bytes=total_bytes)
    return Plan(entries=expanded.entries, env=env, files=files, notes=(*expanded.notes, *bundle.notes), caps=caps)


def _proxy_env() -> dict[str, str]:
    address, local = f"http://127.0.0.1:{PORT}", "localhost,127.0.0.1,::1"
    given = {"HTTP_PROXY": address, "HTTPS_PROXY": address, "NO_PROXY": local}
    # A refusal stays one however often it is asked for, and nobody reads of newer versions of the clients.
    clients = {
        "NODE_USE_ENV_PROXY": "1",
        "PIP_RETRIES": "1",
        "PIP_DISABLE_PIP_VERSION_CHECK": "1",
        "NPM_CONFIG_UPDATE_NOTIFIER": "false",
    }
    return given | {name.lower(): value for name, value in given.items()} | clients


class Outlet:
    """The way out of one session. `open` it once the container runs and before any tool, then `serve`."""

    def __init__(
        self,
        made: Plan,
        tell: Callable[[Told | GateChanged], None],
        *,
        environ: Mapping[str, str],
        resolve: Resolve = resolve,
        connect: Connect = connect,
    ) -> None:
        """`environ` may name a proxy of this machine; `resolve` and `connect` are the ways to names and addresses."""
        self.gate = Gate(made.entries, is_own=is_own)
        self._plan = made
        self._tell = tell
        routes, bypassed = routes_of(environ)
        dialler = Dialler(self.gate, routes, bypassed=bypassed, resolve=resolve, connect=connect)
        self._ledger = Ledger(tell)
        self._proxy = Proxy(self.gate, dialler, self._ledger, made.caps)
        self._tunnel: Tunnel | None = None
        self._start: OpenProgram | None = None
        self._interpreter: str | None = None

    def traffic(self) -> tuple[int, int]:
        """Bytes that were sent and received so far, over all connections."""
        return self._ledger.total_sent_bytes, self._ledger.total_received_bytes

    async def open(self, start: OpenProgram) -> None:
        """Start the forwarder; returns when it listens.

        Raises:
            SandboxStartError: it does not run, for example in an image without Python.
            SandboxError: the container is gone.
        """
        self._start = start
        try:
            self._tunnel = await self._opened(start)
        except TunnelLostError as exc:
            raise SandboxStartError(
                f"the gate that sandbox.allow_hosts needs does not open: the forwarder {exc}; "
                "leave allow_hosts out, or take an image with python3"
            ) from exc

    async def serve(self) -> None:
        """Serve the tools' connections; ends when the container has."""
        while self._tunnel is not None:
            lost = ""
            try:
                await self._tunnel.run(self._proxy.serve)
            except TunnelLostError as exc:
                lost = f"the forwarder {exc}"
            finally:
                with anyio.CancelScope(shield=True):
                    await self._tunnel.aclose()
            self._tunnel = await self._reopened(lost)

    async def aclose(self) -> None:
        """End the forwarder, and tell what is left to tell."""
        self._ledger.flush()
        if self._tunnel is not None:
            await self._tunnel.aclose()

    async def _reopened(self, lost: str) -> Tunnel | None:
        """Another forwarder; None when there is no container for it any more."""
        assert self._start is not None
        reasons, told = [lost], ""
        tunnel, wait_s = None, _FIRST_WAIT_S
        while tunnel is None:
            try:
                tunnel = await self._opened(self._start)
            except SandboxDiedError:
                return None  # it was closed, or whoever uses it next is told how it died
            except SandboxError as exc:
                reasons.append(str(exc))  # for want of processes, for example, which are soon there again
            except TunnelLostError as exc:
                reasons.append(f"the next one {exc}")
            if (now := "; ".join(dict.fromkeys(reasons))) != told:
                told = now
                self._tell(GateChanged(False, now))
            if tunnel is None:
                await anyio.sleep(wait_s)
                wait_s = min(2 * wait_s, _LONGEST_WAIT_S)
        self._tell(GateChanged(True))
        return tunnel

    async def _opened(self, start: OpenProgram) -> Tunnel:
        known = (self._interpreter,) if self._interpreter else INTERPRETERS
        reasons = []
        for interpreter in known:
            tunnel = Tunnel(await start(command(interpreter)))
            try:
                await tunnel.open(PORT, self._plan.files)
            except TunnelLostError as exc:
                await tunnel.aclose()
                reasons.append(str(exc))
            except BaseException:
                with anyio.CancelScope(shield=True):
                    await tunnel.aclose()
                raise
            else:
                self._interpreter = interpreter
                return tunnel
        raise TunnelLostError(reasons[0])


__all__ = ["PORT", "Ended", "GateChanged", "Outlet", "Plan", "plan"]
