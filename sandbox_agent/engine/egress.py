"""The way out of a session's container, where its policy lists hosts: made before the container, opened before any
tool, served beside the run, and told as events. Without a list there is none of it.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any, Protocol

import anyio
import anyio.to_thread

from sandbox_agent import registry
from sandbox_agent.engine.session import Session
from sandbox_agent.events import EgressDecided, EgressEnded, Event, Notice
from sandbox_agent.hostnames import HostEntry
from sandbox_agent.policy.policy import SandboxSettings
from sandbox_agent.prompts import prompt
from sandbox_agent.sandboxes.base import Sandbox

_SHOWN_HOSTS = 50


class _Openable(Protocol):
    """What the forwarder needs of a sandbox, beyond its contract."""

    async def open_as_main(self, argv: Any) -> Any: ...


class WayOut:
    """One session's. `open` it when the container runs, `serve` it in the session's task group."""

    def __init__(self, module: Any, made: Any, environ: Mapping[str, str]) -> None:
        """`module` is `sandboxes.egress.outlet`, which is imported only where it is needed; `made` is its plan."""
        self.env: Mapping[str, str] = made.env
        self.notes: tuple[str, ...] = made.notes
        self._entries: tuple[HostEntry, ...] = made.entries
        self.hosts: tuple[str, ...] = tuple(entry.text for entry in made.entries)
        self._kinds = module
        self._outlet = module.Outlet(made, self._tell, environ=environ)
        self._session: Session | None = None
        self._opened = anyio.Event()

    def opens(self, host: str, port: int) -> bool:
        """Whether an entry is about a canonical host at a port."""
        return any(entry.covers(host, port) for entry in self._entries)

    async def open(self, sandbox: Sandbox) -> None:
        """Start the forwarder; returns when it listens.

        Raises:
            SandboxStartError: it does not run.
        """
        openable: _Openable = sandbox  # type: ignore[assignment]  # only the Docker back end has a way out
        await self._outlet.open(openable.open_as_main)
        self._opened.set()

    async def serve(self, session: Session) -> None:
        """Serve the tools' connections until the container ends."""
        self._session = session
        session.effects.traffic = self._outlet.traffic
        for line in self.notes:
            session.emit(Notice(level="info", text=line))
        try:
            await self._opened.wait()
            await self._outlet.serve()
        finally:
            with anyio.CancelScope(shield=True):
                await self._outlet.aclose()

    def _tell(self, told: Any) -> None:
        """Take what the gate has to say."""
        session = self._session
        assert session is not None
        event = self._event(told, session)
        if event is not None:
            session.emit(event)

    def _event(self, told: Any, session: Session) -> Event:
        if isinstance(told, self._kinds.GateChanged):
            return _of_gate(told.open, told.reason)
        asked = told.asked
        host, port = (asked.host, asked.port) if asked is not None else ("", 0)
        if isinstance(told, self._kinds.Ended):
            return EgressEnded(
                host=host,
                port=port,
                sent_bytes=told.sent_bytes,
                received_bytes=told.received_bytes,
                duration_s=told.duration_s,
                total_sent_bytes=told.total_sent_bytes,
                total_received_bytes=told.total_received_bytes,
                reason=told.reason,
            )
        calls = session.effects.asked(asked.text if asked is not None else "", None if told.allowed else told.reason)
        return EgressDecided(
            host=host,
            port=port,
            verdict="allow" if told.allowed else "deny",
            reason=told.reason,
            protocol=told.protocol,
            address=told.address,
            address_range=told.address_range,
            unlisted=told.unlisted,
            call_ids=calls,
            times=told.times,
        )


def told_to_model(way_out: WayOut | None) -> tuple[str, ...]:
    """What the model is told of the network beside the system prompt; nothing where there is none."""
    if way_out is None:
        return ()
    shown = way_out.hosts[:_SHOWN_HOSTS]
    more = (f"and {len(way_out.hosts) - _SHOWN_HOSTS} more",) if len(way_out.hosts) > _SHOWN_HOSTS else ()
    return (prompt("engine/egress_open").format(hosts=", ".join((*shown, *more))),)


def _of_gate(is_open: bool, reason: str) -> Notice:
    if is_open:
        return Notice(level="info", text="the network's gate is open again")
    return Notice(
        level="warning", text=f"the network's gate is closed: {reason}; nothing gets out until it is open again"
    )


async def prepare(settings: SandboxSettings, *, environ: Mapping[str, str], workspace: Path) -> WayOut | None:
    """The way out for these settings; None where they list no host.

    Raises:
        ConfigError: a client's configuration, a certificate bundle or a proxy of this machine cannot be used.
    """
    if not settings.allow_hosts:
        return None
    module = await anyio.to_thread.run_sync(registry.load, "sandboxes.egress", "outlet")
    make = partial(
        module.plan,
        settings.allow_hosts,
        ca_bundle=settings.ca_bundle,
        environ=environ,
        workspace=workspace,
        total_bytes=settings.egress_bytes,
    )
    return WayOut(module, await anyio.to_thread.run_sync(make), environ)
