"""`sandbox-agent run --repeat N`: one task in N sessions, from the same tree, and where the runs part."""

from __future__ import annotations

import gc
import json
import stat
import sys
from contextlib import aclosing
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import anyio
import anyio.to_thread
import click

from sandbox_agent.cli.conduct import conduct, never_unencodable
from sandbox_agent.cli.job import Job, Screen
from sandbox_agent.cli.signals import Stop
from sandbox_agent.config import RunConfig
from sandbox_agent.engine import acceptance
from sandbox_agent.engine.loop import run
from sandbox_agent.engine.open import bare, open_session
from sandbox_agent.engine.repeating import Comparison, Parting, Trace, compare
from sandbox_agent.engine.session import Session
from sandbox_agent.errors import ConfigError, SandboxAgentError, WorkspaceError
from sandbox_agent.frontends import words
from sandbox_agent.frontends.printer import Printer, make_console
from sandbox_agent.frontends.sanitise import sanitise
from sandbox_agent.frontends.summary import RunSummary, status_of
from sandbox_agent.workspaces.tree import Tree

_COMPARABLE = ("done", "denied", "limit", "failed")
"""Ends after which the tree is worth looking at, as in `finish`."""


@dataclass(slots=True)
class _Repeat:
    """All runs of a task: those that are over, and those under way."""

    config: RunConfig
    task: str
    count: int
    at_once: int
    as_json: bool
    finished: dict[int, Trace] = field(default_factory=dict)
    under_way: dict[int, Session] = field(default_factory=dict)
    stopped: bool = False
    picture: dict[str, tuple[int, ...]] | None = None

    def look(self) -> list[str]:
        """What is otherwise in the person's folder than when the first run began; the first call takes the picture."""
        now = _picture(self.config.workspace.resolve())
        if self.picture is None:
            self.picture = now
        return sorted(path for path in {*now, *self.picture} if now.get(path) != self.picture.get(path))

    def interrupt(self) -> None:
        """The first Ctrl-C: what runs comes to its end, nothing more begins."""
        self.stopped = True
        for session in self.under_way.values():
            session.interrupt()


def repeat(config: RunConfig, task: str, *, count: int, at_once: int, as_json: bool) -> int:
    """Run a task `count` times, `at_once` at a time; nothing is applied. Returns the exit code: 0 where every run was
    done and passed its checks, 1 otherwise; that of a fault which kept all from beginning.
    """
    never_unencodable()
    printer = Printer(make_console(sys.stderr if as_json or not sys.stdout.isatty() else sys.stdout))
    job = Job(config, task, "never", Screen(None, None, printer, None), RunSummary(), Stop())
    whole = _Repeat(config, task, count, at_once, as_json)
    code = conduct(job, partial(_all, whole))
    if whole.finished:
        _report(whole, job, compare([whole.finished[number] for number in sorted(whole.finished)]))
    return code


async def _all(whole: _Repeat, job: Job) -> None:
    gc.freeze()
    gc.enable()
    job.stop.interrupt = whole.interrupt
    turn = anyio.Semaphore(whole.at_once)
    try:
        async with anyio.create_task_group() as group:
            for number in range(1, whole.count + 1):
                await turn.acquire()
                if whole.stopped:
                    break
                group.start_soon(_one, whole, job, number, turn)
    except BaseExceptionGroup as many:
        raise bare(many) from None
    traces = whole.finished.values()
    if len(traces) == whole.count and all(trace.ok for trace in traces):
        job.summary.end("done", None)
    else:
        job.summary.end("interrupted" if whole.stopped else "failed", None)


async def _one(whole: _Repeat, job: Job, number: int, turn: anyio.Semaphore) -> None:
    trace = Trace(number)
    try:
        await _session(whole, trace)
    except (ConfigError, WorkspaceError):
        raise  # it would be the same in every run
    except SandboxAgentError as fault:
        trace.status, trace.error = status_of(fault), str(fault)
    finally:
        whole.under_way.pop(number, None)
        turn.release()
    whole.finished[number] = trace
    job.say(_line(trace))


async def _session(whole: _Repeat, trace: Trace) -> None:
    trace.folder_changed += await anyio.to_thread.run_sync(whole.look)
    async with open_session(whole.config) as session:
        whole.under_way[trace.number] = session
        async with aclosing(run(session, whole.task)) as events:
            async for event in events:
                trace.feed(event)
        if trace.status not in _COMPARABLE:
            return
        await acceptance.ready(session, whole.config)
        await session.changes()
        await acceptance.check(session, whole.config)
        with session.listen() as aside:
            while True:
                try:
                    trace.feed(aside.receive_nowait())
                except anyio.WouldBlock:
                    break
        session.hang_up()


def _picture(folder: Path) -> dict[str, tuple[int, ...]]:
    """Every file by its path, with what changes when it does; nothing is opened but folders."""
    with Tree(folder) as tree:
        return {
            found.path: (info.st_ino, info.st_mode, info.st_size, info.st_mtime_ns, info.st_ctime_ns)
            for found in tree.walk(failed=lambda _path, _error: None)
            if not stat.S_ISDIR((info := found.info).st_mode)
        }


def _line(trace: Trace) -> str:
    parts = [words.count(trace.turns, "turn"), words.tokens(trace.usage), words.cost(trace.cost_usd, trace.usage)]
    parts.append(words.duration(trace.duration_s))
    said = f"run {trace.number:<3} {trace.session_id or ''}  {trace.status}: {', '.join(filter(None, parts))}"
    if trace.tree_sha256:
        said += f", tree {trace.tree_sha256[:12]}"
    if trace.checks:
        said += f", checks {sum(one.passed for one in trace.checks)}/{len(trace.checks)}"
    return said + (f": {trace.error}" if trace.error else "")


def _report(whole: _Repeat, job: Job, found: Comparison) -> None:
    changed = sorted({path for trace in found.runs for path in trace.folder_changed})
    if changed:
        job.say(f"! your folder was changed meanwhile ({', '.join(changed[:5])}): not all began with the same tree")
    if whole.as_json:
        document = found.as_json() | {"task": whole.task, "asked_for": whole.count}
        click.echo(json.dumps(document, default=str))
        return
    for line in _lines(found):
        job.say(line)


def _lines(found: Comparison) -> list[str]:
    count = len(found.runs)
    lines = []
    if found.parting is None:
        lines.append(f"All {count} runs took the same steps." if count > 1 else "One run: there is nothing to compare.")
    else:
        lines += _parting_lines(found.parting, count)
    if len(found.trees) > 1:
        lines.append("They came to different trees:")
        lines += [f"  {_of(runs, count)}: {tree[:12]}" for tree, runs in found.trees.items()]
    lines.append(
        f"passed {found.pass_rate:.0%}, same outcome {found.outcome_agreement:.0%}, "
        f"flake score {found.flake_score:.2f} (0 is none)"
    )
    return lines


def _parting_lines(parting: Parting, count: int) -> list[str]:
    whose = "" if parting.agent_id == "main" else f" of {parting.agent_id}"
    lines = [f"The runs part at step {parting.step}{whose}:"]
    for way, runs in parting.ways:
        lines.append(f"  {_of(runs, count)}: {sanitise(way.what) if way is not None else 'nothing more'}")
    return lines


def _of(runs: tuple[int, ...] | list[int], count: int) -> str:
    return f"{len(runs)} of {count} (run{'s' if len(runs) > 1 else ''} {', '.join(map(str, runs))})"
