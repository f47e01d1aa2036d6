"""What a person sees of what happens beside the conversation: lines of their own, whosever doing it is."""

from __future__ import annotations

from collections.abc import Iterator

from rich.text import Text

from sandbox_agent.engine.budget import amount
from sandbox_agent.events import (
    AgentFinished,
    AgentStarted,
    ConversationCompacted,
    EgressDecided,
    Event,
    FolderDrifted,
    HookRan,
    JobFinished,
    JobStarted,
    LimitReached,
    ModelRetrying,
    ModelSwitched,
    Notice,
    ResultsTrimmed,
)
from sandbox_agent.frontends import hook_lines, network, words
from sandbox_agent.frontends.drift import drift_line
from sandbox_agent.frontends.sanitise import sanitise

_JOB_ENDS = {
    "exited": "ended",
    "timed_out": "killed at its limit",
    "killed": "stopped",
    "failed": "failed",
    "closed": "ended",
}
_STYLES = {"done": "green", "denied": "yellow", "limit": "yellow", "interrupted": "yellow"}


def lines(event: Event, *, verbose: bool) -> Iterator[Text]:
    """The lines for one event, without whose it is; none for most."""
    match event:
        case AgentStarted():
            yield _started(event)
        case AgentFinished():
            yield _finished(event)
            if event.error:
                yield Text(sanitise(event.error), style="red")
        case JobStarted(kind="shell"):
            what = words.shorten(sanitise(event.what))
            yield Text.assemble(("& ", "bold cyan"), f"{sanitise(event.job_id)} in the background: {what}")
        case JobFinished(kind="shell"):
            yield _job_finished(event)
        case ModelRetrying():
            text = f"{sanitise(event.reason)}: trying again in {words.duration(event.wait_s)} (retry {event.attempt})"
            yield Text(f"! {text}", style="yellow")
        case ModelSwitched():
            names = f"{sanitise(event.before)}: {sanitise(event.reason)}"
            yield Text(f"! {names}; the rest of this run asks {sanitise(event.model)}", style="yellow")
        case Notice():
            mark, style = ("!", "yellow") if event.level == "warning" else ("-", "dim")
            yield Text(f"{mark} {sanitise(event.text)}", style=style)
        case HookRan():
            yield from hook_lines.lines(event, verbose=verbose)
        case EgressDecided():
            told = network.decision_line(event, verbose=verbose)
            if told is not None:
                yield Text(told, style="yellow" if event.verdict == "deny" else "dim")
        case LimitReached():
            yield Text(
                f"! the limit {sanitise(event.limit)} = {amount(event.limit, event.value)} was reached", "yellow"
            )
        case ResultsTrimmed() | ConversationCompacted():
            yield _shorter(event)
        case FolderDrifted():
            yield Text(f"! {drift_line(event.changed, event.changed_count)}", style="yellow")
        case _:
            pass


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
