"""What `doctor` says of the way out: what the policy opens, and whether the gate for it can work."""

from __future__ import annotations

import os
from pathlib import Path
from typing import NamedTuple

import anyio

from sandbox_agent.cli.checks import Check
from sandbox_agent.errors import ConfigError, SandboxAgentError
from sandbox_agent.frontends import words
from sandbox_agent.policy.policy import SandboxSettings
from sandbox_agent.sandboxes.docker import DockerSandbox
from sandbox_agent.sandboxes.egress.outlet import Outlet, Plan, plan

SHOWN_HOSTS = 10
OPEN_S = 30.0


class Egress(NamedTuple):
    """`plan` is what the gate of a session would be made of; None where it opens nothing, or cannot be planned."""

    check: Check
    plan: Plan | None


def check_egress(settings: SandboxSettings) -> Egress:
    """What a run under these settings can reach, groups written out. Asks no other machine."""
    if not settings.allow_hosts:
        return Egress(Check("egress", "ok", "no network: the policy lists no host (sandbox.allow_hosts)"), None)
    try:
        made = plan(
            settings.allow_hosts,
            ca_bundle=settings.ca_bundle,
            environ=os.environ,
            workspace=Path.cwd(),
            total_bytes=settings.egress_bytes,
        )
    except ConfigError as exc:
        return Egress(Check("egress", "fail", f"the policy's gate cannot be made: {exc}"), None)
    hosts = [entry.text + (" (private)" if entry.allow_private else "") for entry in made.entries]
    more = f" and {len(hosts) - SHOWN_HOSTS} more" if len(hosts) > SHOWN_HOSTS else ""
    limit = "no limit on bytes" if settings.egress_bytes is None else f"{settings.egress_bytes} bytes in all"
    certificates = ", certificates of this machine given to the clients" if "ca-bundle.pem" in made.files else ""
    notes = "".join(f"; {note}" for note in made.notes)
    opened = f"open through the gate: {', '.join(hosts[:SHOWN_HOSTS])}{more} ({limit}{certificates}){notes}"
    return Egress(Check("egress", "ok", opened), made)


async def try_forwarder(sandbox: DockerSandbox, made: Plan) -> Check:
    """Start the forwarder in a trial container as a session would, and end it."""
    outlet = Outlet(made, lambda told: None, environ=os.environ)
    todo = "until then runs under this policy do not start; take an image with python3"
    try:
        with anyio.fail_after(OPEN_S):
            await outlet.open(sandbox.open_as_main)
    except SandboxAgentError as exc:
        return Check("forwarder", "fail", str(exc))
    except TimeoutError:
        return Check("forwarder", "fail", f"it does not listen after {words.duration(OPEN_S)}", todo)
    finally:
        await outlet.aclose()
    return Check("forwarder", "ok", "the gate's forwarder listens in the container, out of the tools' reach")
