"""Runs one task: opens the session, feeds its events to a front end, reviews, applies, and comes to an exit code."""

from __future__ import annotations

import gc
import json
from collections.abc import Callable, Mapping
from contextlib import aclosing
from pathlib import Path
from types import MappingProxyType
from typing import Any

from sandbox_agent import registry
from sandbox_agent.cli.conduct import conduct, never_unencodable
from sandbox_agent.cli.finish import finish
from sandbox_agent.cli.job import Apply, Job, Screen, make_screen
from sandbox_agent.cli.job_reports import wanted_reports, write_reports
from sandbox_agent.cli.signals import Stop
from sandbox_agent.config import RunConfig
from sandbox_agent.engine.loop import run
from sandbox_agent.engine.open import open_session
from sandbox_agent.engine.recording import Recording, told
from sandbox_agent.engine.session import Session
from sandbox_agent.errors import ConfigError
from sandbox_agent.events import Event
from sandbox_agent.frontends.approve import ConsoleApprover
from sandbox_agent.frontends.headless import OutputFormat
from sandbox_agent.frontends.questions import ConsoleQuestions
from sandbox_agent.frontends.summary import RunSummary
from sandbox_agent.tools.report_findings import NAME as FINDINGS
from sandbox_agent.types import JsonObject, Mode


def run_task(
    task: str,
    *,
    stdin_is_task: bool,
    apply: Apply | None,
    headless: bool,
    output: OutputFormat | None,
    verbose: bool,
    input_format: str = "text",
    repeat: int | None = None,
    jobs: int | None = None,
    report: tuple[str, ...] = (),
    **options: Any,
) -> int:
    """The `run` command; `options` are those of `config_of`. Returns the exit code."""
    reports = wanted_reports(report)
    if "sarif" in reports:
        options["allow"] = (*options["allow"], FINDINGS)
    if input_format == "stream-json":
        if reports:
            raise ConfigError(
                "--report and --input stream-json exclude each other: `sandbox-agent report last` writes it"
            )
        if repeat is not None or jobs is not None:
            raise ConfigError("--repeat and --input stream-json exclude each other: it is one task, many times")
        return talk(config_of(**options), stdin_is_task=stdin_is_task, apply=apply, output=output)
    if repeat is not None or jobs is not None:
        if reports:
            raise ConfigError("--report is of one run: `sandbox-agent report ID` writes that of each")
        check_repeat(repeat, apply, output, options)
        many: int = registry.load("cli", "repeat_run").repeat(
            config_of(**options), task, count=repeat, at_once=jobs or 1, as_json=output == "json"
        )
        return many
    wanted = output or ("text" if headless else None)
    apply = apply or ("never" if wanted else "ask")
    config = config_of(**options)
    return start(
        config, task, apply=apply, output=wanted, stdin_is_task=stdin_is_task, verbose=verbose, reports=reports
    )


def talk(config: RunConfig, *, stdin_is_task: bool, apply: Apply | None, output: OutputFormat | None) -> int:
    """A session whose messages come as JSON lines on standard input, as in `sandbox-agent-sdk`; see docs/sdk.md.

    Raises:
        ConfigError: an option does not go with that.
    """
    if not stdin_is_task or output != "stream-json":
        raise ConfigError("--input stream-json: write - as the TASK, and --output stream-json")
    if apply == "ask":
        raise ConfigError("--apply ask: standard input has messages, so nobody can be asked; write always or never")
    if config.record is not None:
        raise ConfigError("--record and --input stream-json exclude each other: a bundle is of one task")
    if config.checks:
        raise ConfigError("--check and --input stream-json exclude each other: a check is of one task")
    serving = registry.load("cli.sdk", "serving")
    code: int = serving.talk(config, apply="always" if apply == "always" else "never")
    return code


def check_repeat(repeat: int | None, apply: Apply | None, output: OutputFormat | None, options: Any) -> None:
    """Raises ConfigError: an option has no meaning for many runs of one task."""
    if repeat is None:
        raise ConfigError("--jobs: goes with --repeat")
    if apply not in (None, "never"):
        raise ConfigError("--repeat applies nothing: leave out --apply, and apply the run you want with `apply ID`")
    if output == "stream-json":
        raise ConfigError("--repeat has --output json or text; each run's record has its events")
    if options.get("workspace_mode") == "bind":
        raise ConfigError("--repeat needs a tree that each run begins with: --workspace-mode bind changes the folder")
    for name in ("resume", "record"):
        if options.get(name) is not None:
            raise ConfigError(f"--repeat and --{name} exclude each other")


def config_of(
    *,
    workspace: Path,
    policy: str | None,
    mode: str | None,
    allow: tuple[str, ...],
    deny: tuple[str, ...],
    model: str,
    fallback_model: str | None,
    image: str | None,
    workspace_mode: str,
    max_turns: int | None,
    max_tokens: int | None,
    max_cost_usd: float | None,
    timeout_s: float | None,
    project_instructions: bool | None,
    mcp_config: tuple[Path, ...],
    resume: str | None,
    answer_schema: str | None = None,
    checks: tuple[str, ...] = (),
    check_files: tuple[str, ...] = (),
    check_timeout_s: float = 600.0,
    record: Path | None = None,
    record_tree: bool = False,
    deterministic: bool = True,
) -> RunConfig:
    """What the options say that `run` and `chat` have in common."""
    return RunConfig(
        workspace=workspace,
        model=model,
        fallback_model=fallback_model,
        policy=policy,
        mode=Mode(mode) if mode else None,
        allow=allow,
        deny=deny,
        image=image,
        workspace_mode=workspace_mode,
        max_turns=max_turns,
        max_tokens=max_tokens,
        max_cost_usd=max_cost_usd,
        timeout_s=timeout_s,
        project_instructions=project_instructions,
        mcp_config=mcp_config,
        resume=resume,
        answer_schema=None if answer_schema is None else read_schema(answer_schema),
        checks=checks,
        check_files=check_files,
        check_timeout_s=check_timeout_s,
        record=record,
        record_tree=record_tree,
        deterministic=deterministic,
    )


def read_schema(given: str) -> JsonObject:
    """The JSON Schema of `--json-schema`, which is one, or names its file.

    Raises:
        ConfigError: it cannot be read, or is no JSON object.
    """
    inline = given.lstrip().startswith("{")
    try:
        schema = json.loads(given if inline else Path(given).read_bytes())
    except (ValueError, RecursionError) as exc:
        raise ConfigError(f"--json-schema{'' if inline else f' {given}'}: it is not JSON ({exc})") from exc
    except OSError as exc:
        raise ConfigError(f"--json-schema {given}: it cannot be read: {exc.strerror}") from exc
    if not isinstance(schema, dict):
        raise ConfigError("--json-schema: a JSON Schema is an object here")
    return schema


def start(
    config: RunConfig,
    task: str,
    *,
    apply: Apply,
    output: OutputFormat | None = None,
    stdin_is_task: bool = False,
    verbose: bool = False,
    watch: Callable[[Event], None] | None = None,
    screen: Screen | None = None,
    reports: Mapping[str, Path] = MappingProxyType({}),
) -> int:
    """Run a task in this process; returns the exit code.

    `output` None is for people, on a terminal or in a pipe. `watch` sees every event besides. `screen` is where it
    shows itself, in place of our own streams. `reports` are written when it has ended, however it has.
    """
    never_unencodable()
    if screen is None:
        screen = make_screen(output, stdin_is_task=stdin_is_task, verbose=verbose)
    job = Job(config, task, apply, screen, RunSummary(changes_expected=apply == "always"), Stop(), verbose, watch)
    code = conduct(job, _session)
    return write_reports(job, reports, code) if reports else code


async def _session(job: Job) -> None:
    terminal = job.screen.terminal
    approver = ConsoleApprover(terminal) if terminal is not None else None
    ask = ConsoleQuestions(terminal) if terminal is not None else None
    session: Session | None = None
    try:
        async with open_session(job.config, approver=approver, ask=ask) as session:
            gc.freeze()  # what was imported stays; `main` had collecting off meanwhile
            gc.enable()
            job.stop.interrupt = session.interrupt
            async with aclosing(run(session, job.task or None)) as events:
                async for event in events:
                    job.feed(event)
            job.stop.interrupt = None
            if job.stop.cause is None:
                await finish(job, session)
    finally:
        if session is not None:
            job.summary.record_head = session.tape.head
            if isinstance(session.proof, Recording):
                notice = told(session.proof)
                job.say(notice.text, "yellow" if notice.level == "warning" else "dim")
