"""What a person sees of what happens beside the conversation: lines of their own, whosever doing it is."""

from __future__ import annotations

from collections.abc import Iterator
from functools import singledispatch

from rich.text import Text

from sandbox_agent.engine.budget import amount
from sandbox_agent.events import (
    AgentFinished,
    AgentStarted,
    CheckFinished,
    CheckStarted,
    ConversationCompacted,
    EgressDecided,
    Event,
    FolderDrifted,
    HookRan,
    JobFinished,
    JobStarted,
    LimitReached,
    McpServerChanged,
    ModeChanged,
    ModelRetrying,
    ModelSwitched,
    Notice,
    ResultsTrimmed,
)
from sandbox_agent.frontends import hook_lines, network, words
from sandbox_agent.frontends.drift import drift_line
from sandbox_agent.frontends.sanitise import sanitise
from sandbox_agent.types import Mode

_JOB_ENDS = {
    "exited": "ended",
    "timed_out": "killed at its limit",
    "killed": "stopped",
    "failed": "failed",
    "closed": "ended",
}
CHECK_LINES = 12
"""Of a failed check's output."""

_STYLES = {"done": "green", "denied": "yellow", "limit": "yellow", "interrupted": "yellow"}


@singledispatch
def lines(event: Event, *, verbose: bool) -> Iterator[Text]:
    """The lines for one event, without whose it is; none for most."""
    yield from ()


@lines.register
def _of_agent_started(event: AgentStarted, *, verbose: bool) -> Iterator[Text]:
    yield _started(event)


@lines.register
def _of_agent_finished(event: AgentFinished, *, verbose: bool) -> Iterator[Text]:
    yield _finished(event)
    if event.error:
        yield Text(sanitise(event.error), style="red")


@lines.register
def _of_job_started(event: JobStarted, *, verbose: bool) -> Iterator[Text]:
    if event.kind != "shell":
        return
    what = words.shorten(sanitise(event.what))
    yield Text.assemble(("& ", "bold cyan"), f"{sanitise(event.job_id)} in the background: {what}")


@lines.register
def _of_job_finished(event: JobFinished, *, verbose: bool) -> Iterator[Text]:
    if event.kind != "shell":
        return
    yield _job_finished(event)


@lines.register
def _of_model_retrying(event: ModelRetrying, *, verbose: bool) -> Iterator[Text]:
    text = f"{sanitise(event.reason)}: trying again in {words.duration(event.wait_s)} (retry {event.attempt})"
    yield Text(f"! {text}", style="yellow")


@lines.register
def _of_model_switched(event: ModelSwitched, *, verbose: bool) -> Iterator[Text]:
    names = f"{sanitise(event.before)}: {sanitise(event.reason)}"
    yield Text(f"! {names}; the rest of this run asks {sanitise(event.model)}", style="yellow")


@lines.register
def _of_notice(event: Notice, *, verbose: bool) -> Iterator[Text]:
    mark, style = ("!", "yellow") if event.level == "warning" else ("-", "dim")
    yield Text(f"{mark} {sanitise(event.text)}", style=style)


@lines.register
def _of_check_started(event: CheckStarted, *, verbose: bool) -> Iterator[Text]:
    which = f" {event.number} of {event.count}" if event.count > 1 else ""
    yield Text(f"check{which} in a clean container: {sanitise(event.command)}", style="dim")


@lines.register
def _of_check_finished(event: CheckFinished, *, verbose: bool) -> Iterator[Text]:
    said = f"check {sanitise(event.command)}: {sanitise(event.outcome)}"
    yield Text.assemble(
        (said, "green" if event.passed else "bold red"), (f" · {words.duration(event.duration_s)}", "dim")
    )
    if event.from_base:
        yield Text(f"    with {words.count(len(event.from_base), 'path')} as before the run", style="dim")
    if verbose or not event.passed:
        said_lines = event.output.rstrip().splitlines()
        for line in said_lines if verbose else said_lines[-CHECK_LINES:]:
            yield Text(f"    {sanitise(line, tabs=True)}", style="dim")


@lines.register
def _of_hook_ran(event: HookRan, *, verbose: bool) -> Iterator[Text]:
    yield from hook_lines.lines(event, verbose=verbose)


@lines.register
def _of_egress_decided(event: EgressDecided, *, verbose: bool) -> Iterator[Text]:
    told = network.decision_line(event, verbose=verbose)
    if told is not None:
        yield Text(told, style="yellow" if event.verdict == "deny" else "dim")


@lines.register
def _of_mcp_server_changed(event: McpServerChanged, *, verbose: bool) -> Iterator[Text]:
    yield from _server(event)


@lines.register
def _of_mode_changed(event: ModeChanged, *, verbose: bool) -> Iterator[Text]:
    if event.by == "model":
        yield Text("- plan mode: nothing may be changed until you say yes to a plan", style="yellow")
    elif event.before == Mode.PLAN:
        yield Text(f"- plan mode is over, the mode is {sanitise(event.mode)}", style="yellow")


@lines.register
def _of_limit_reached(event: LimitReached, *, verbose: bool) -> Iterator[Text]:
    yield Text(f"! the limit {sanitise(event.limit)} = {amount(event.limit, event.value)} was reached", "yellow")


@lines.register
def _of_results_trimmed(event: ResultsTrimmed | ConversationCompacted, *, verbose: bool) -> Iterator[Text]:
    yield _shorter(event)


@lines.register
def _of_folder_drifted(event: FolderDrifted, *, verbose: bool) -> Iterator[Text]:
    yield Text(f"! {drift_line(event.changed, event.changed_count)}", style="yellow")


def _shorter(event: ResultsTrimmed | ConversationCompacted) -> Text:
    how = f"about {event.tokens_before:,} tokens became {event.tokens_after:,}, of {event.window_tokens:,}"
    if isinstance(event, ConversationCompacted):
        return Text(f"~ the conversation was summarised: {how}", style="cyan")
    return Text(f"~ {words.count(len(event.tool_use_ids), 'old result')} taken out to make room: {how}", style="dim")


def _started(event: AgentStarted) -> Text:
    what = f"{sanitise(event.agent_type)}: {words.shorten(sanitise(event.description))}"
    more = ["goes on"] if event.continued else []
    more += [f"model {sanitise(event.model)}"] if event.model else []
    more += ["in the background"] if event.background else []
    line = Text.assemble(("+ ", "bold cyan"), what)
    return line.append(f" ({', '.join(more)})" if more else "", style="dim")


def _finished(event: AgentFinished) -> Text:
    parts = (words.count(event.turns, "turn"), words.count(event.calls, "tool call"), words.tokens(event.usage))
    spent = f" · {', '.join(parts)}, {words.duration(event.duration_s)}"
    style = _STYLES.get(event.status, "red")
    return Text.assemble(("= ", "bold cyan"), (event.status.replace("_", " "), style), (spent, "dim"))


def _job_finished(event: JobFinished) -> Text:
    how = _JOB_ENDS.get(event.state, sanitise(event.state))
    if event.exit_code is not None and event.state == "exited":
        how = f"exit code {event.exit_code}"
    style = "green" if event.exit_code == 0 and event.state == "exited" else "yellow"
    line = Text.assemble(("& ", "bold cyan"), f"{sanitise(event.job_id)} {words.shorten(sanitise(event.what))}: ")
    line.append(how, style=style).append(f" · {words.duration(event.duration_s)}", style="dim")
    return line.append(f" ({sanitise(event.note)})" if event.note else "", style="dim")


def _server(event: McpServerChanged) -> Iterator[Text]:
    where = {"session": "in the container", "own": "in its own container", "host": "outside"}[event.place]
    name = f"MCP server {sanitise(event.server)} ({sanitise(event.shown)}, {where})"
    if event.state != "connected":
        yield Text(f"! {name} could not be had: {sanitise(event.error)}", style="yellow")
    else:
        yield Text(f"- {name}: {words.count(len(event.tools), 'tool')}", style="dim")
    for one in event.left_out:
        yield Text(f"! {name}: the tool {sanitise(one['tool'])} is left out: {sanitise(one['reason'])}", style="yellow")
    if event.note:
        yield Text(f"! {name}: {sanitise(event.note)}", style="yellow" if "not used" in event.note else "dim")
