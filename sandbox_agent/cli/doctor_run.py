"""The checks of `doctor`, each a line with what to do. The last one really starts a container and runs a command."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import AsyncIterator
from dataclasses import asdict

import anyio
import click

from sandbox_agent import __version__
from sandbox_agent.cli.checks import Check, check_image, check_key, check_policy, check_state
from sandbox_agent.cli.egress_check import check_egress
from sandbox_agent.cli.host_checks import check_planted
from sandbox_agent.cli.isolation import check_exposure, describe_isolation
from sandbox_agent.cli.trial import try_sandbox, try_workspace
from sandbox_agent.errors import SandboxAgentError
from sandbox_agent.frontends.printer import Printer, make_console
from sandbox_agent.frontends.sanitise import sanitise
from sandbox_agent.policy.policy import SandboxSettings
from sandbox_agent.sandboxes.egress.outlet import Plan
from sandbox_agent.sandboxes.endpoint import resolve_endpoint
from sandbox_agent.sandboxes.engine import Engine, reach
from sandbox_agent.sandboxes.facts import engine_facts

EXIT_UNUSABLE = 5
_STYLES = {"ok": "green", "warn": "yellow", "fail": "bold red"}


def run_doctor(*, as_json: bool, quick: bool, image: str | None) -> int:
    """Check everything; 0 if a run would work, 5 if not."""
    return anyio.run(_doctor, as_json, quick, image)


async def _doctor(as_json: bool, quick: bool, image: str | None) -> int:
    printer = Printer(make_console(sys.stdout))
    checks: list[Check] = []
    async for check in _checks(quick, image):
        checks.append(check)
        if not as_json:
            _show(printer, check)
    usable = all(check.level != "fail" for check in checks)
    if as_json:
        document = {"version": __version__, "ok": usable, "checks": [asdict(check) for check in checks]}
        click.echo(json.dumps(document, indent=1))
    return 0 if usable else EXIT_UNUSABLE


def _show(printer: Printer, check: Check) -> None:
    printer.stream(f"{check.level:<5}", style=_STYLES[check.level])
    printer.stream(f" {check.name:<11} {sanitise(check.text)}\n")
    if check.todo is not None:
        printer.line(f"{'':<17} -> {sanitise(check.todo)}")


async def _checks(quick: bool, image: str | None) -> AsyncIterator[Check]:
    yield check_key()
    yield check_state()
    policy, settings = check_policy(image)
    yield policy
    egress = check_egress(settings)
    yield egress.check
    for check in check_planted():
        yield check
    try:
        engine = await reach(resolve_endpoint(os.environ))
    except SandboxAgentError as exc:
        yield Check("engine", "fail", str(exc))
        return
    try:
        async for check in _engine_checks(engine, settings, egress.plan, quick):
            yield check
    except SandboxAgentError as exc:
        yield Check("engine", "fail", str(exc))
    finally:
        engine.close()


async def _engine_checks(
    engine: Engine, settings: SandboxSettings, gate: Plan | None, quick: bool
) -> AsyncIterator[Check]:
    facts = await engine_facts(engine)
    text = f"{facts.product} {facts.version}, API {engine.version}, {facts.platform}, at {engine.endpoint}"
    yield Check("engine", "ok", text)
    exposed = check_exposure(engine.endpoint)
    if exposed is not None:
        yield exposed
    usable = True
    for check in describe_isolation(facts, settings):
        usable = usable and check.level != "fail"
        yield check
    found = await check_image(engine, settings.image)
    yield found
    if found.level == "fail" or not usable:
        return
    if quick:
        yield Check("sandbox", "warn", "not tried (--quick)", "leave --quick out to start a container")
        return
    workspace, in_volume = await try_workspace(engine.endpoint, settings.image)
    for check in await try_sandbox(engine, settings, gate=gate, in_volume=in_volume):
        yield check
    for check in workspace:
        yield check
