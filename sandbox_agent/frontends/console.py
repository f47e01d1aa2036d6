"""Live output of a run for a person: a header, the streamed answer, every call with its outcome, and a closing line.

The same view serves a terminal (colours) and a pipe or log (plain lines): `printer.make_console` decides. With
`answer` given, the final answer goes there and everything else to the console, so `run ... | less` gets the answer.
"""

from __future__ import annotations

import time
from typing import TextIO

from rich.text import Text

from sandbox_agent.events import (
    AgentFinished,
    AgentStarted,
    AssistantMessage,
    CallDiscarded,
    ChangesApplied,
    Event,
    ModelRetrying,
    ModelSwitched,
    PermissionDecided,
    ProjectInstructions,
    RequestStarted,
    RunFinished,
    SandboxReady,
    SessionStarted,
    TextDelta,
    ThinkingDelta,
    ToolFinished,
    ToolProgress,
    ToolStarted,
    UserMessage,
)
from sandbox_agent.frontends import asides, outcome, words
from sandbox_agent.frontends.printer import Printer
from sandbox_agent.frontends.sanitise import sanitise
from sandbox_agent.types import JsonObject

_STATUS_STYLES = {"done": "bold green", "denied": "bold yellow", "limit": "bold yellow", "interrupted": "bold yellow"}


PROGRESS_EVERY_S = 2.0


class ConsoleView:
    """Shows events as they come. `verbose` adds thinking, and whole outputs and diffs."""

    def __init__(self, printer: Printer, *, answer: TextIO | None = None, verbose: bool = False) -> None:
        self._printer = printer
        self._answer = answer
        self._verbose = verbose
        self._streamed = False
        self._open: dict[tuple[str, str], ToolStarted] = {}
        self._uses: dict[tuple[str, str], JsonObject] = {}
        self._refused: set[tuple[str, str]] = set()
        self._last_started: tuple[str, str] | None = None
        self._held: SandboxReady | None = None
        self._in_place = False
        self._batch: tuple[str, int] | None = None
        self._next_progress_s = 0.0

    def feed(self, event: Event) -> None:
        """Show one event."""
        if isinstance(event, ToolProgress):
            self._progress(event)
            return
        if isinstance(event, SandboxReady) and self._printer.line_open:
            self._held = event  # not into the middle of a sentence that is still streaming
            return
        last_started, self._last_started = self._last_started, None
        match event:
            case TextDelta() | ThinkingDelta():
                self._delta(event)
            case RequestStarted():
                self._batch = None
                if event.agent_id == "main":
                    self._streamed = False
            case AssistantMessage():
                self._assistant(event)
            case PermissionDecided():
                self._permission(event)
            case ToolStarted():
                self._started(event)
            case ToolFinished():
                self._finished(event, follows_start=last_started == (event.agent_id, event.call_id))
            case CallDiscarded():
                self._discarded(event)
            case SessionStarted():
                self._header(event)
            case RunFinished():
                self._end(event)
            case _:
                self._aside(event)
        if self._held is not None and not self._printer.line_open:
            held, self._held = self._held, None
            self._aside(held)

    def _aside(self, event: Event) -> None:
        match event:
            case SandboxReady():
                how = f"{event.transport}, ready in {words.duration(event.start_s)}"
                self._fact("container", f"{event.isolation} ({how})")
            case ProjectInstructions():
                pass  # a notice says which files; the model reads them, not the person
            case UserMessage() if event.agent_id != "main" and not self._verbose:
                pass  # what its parent told it; the line of its start says what it is about
            case UserMessage():
                self._printer.line()
                self._printer.line(
                    self._who(event) + "> " + sanitise(outcome.plain_text(event.content), newlines=True), "bold"
                )
                self._printer.gap()
            case ChangesApplied():
                self._changes(event)
            case _:
                if isinstance(event, ModelRetrying | ModelSwitched) and event.agent_id == "main":
                    self._streamed = False
                if isinstance(event, AgentStarted | AgentFinished):
                    self._printer.gap()
                for line in asides.lines(event, verbose=self._verbose):
                    self._printer.line(Text(self._who(event)).append(line))

    def _progress(self, event: ToolProgress) -> None:
        """How far a call is, now and then: a server may say so all the time."""
        now_s = time.monotonic()
        if now_s < self._next_progress_s or self._printer.line_open:
            return
        self._next_progress_s = now_s + PROGRESS_EVERY_S
        self._last_started = None
        far = f"{event.progress:g}" + (f" of {event.total:g}" if event.total is not None else "")
        said = f": {words.shorten(sanitise(event.message))}" if event.message else ""
        self._printer.line(f"{self._who(event)}  {sanitise(event.server)} is at {far}{said}", "dim")

    def _who(self, event: Event) -> str:
        return "" if event.agent_id == "main" else f"[{sanitise(event.agent_id)}] "

    def _fact(self, name: str, value: str) -> None:
        self._printer.line(Text.assemble((f"{name:<10}", "dim"), " ", sanitise(value)))

    def _header(self, event: SessionStarted) -> None:
        self._printer.line(
            f"sandbox-agent {sanitise(event.version)}  session {sanitise(event.session_id)}", style="bold"
        )
        self._in_place = event.workspace_mode == "bind"
        meaning = {
            "overlay": "worked on through an overlay, changed only when you apply",
            "copy": "worked on as a copy, changed only when you apply",
            "bind": "changed directly",
        }
        self._fact("folder", f"{event.workspace} ({meaning.get(event.workspace_mode, event.workspace_mode)})")
        self._fact("model", event.model)
        self._fact("policy", f"{event.policy}, mode {event.mode}")
        self._fact("image", event.image)
        if event.resumed_from:
            self._fact("resumes", event.resumed_from)

    def _delta(self, event: TextDelta | ThinkingDelta) -> None:
        if event.agent_id != "main":
            return  # several agents at once would write into each other's lines; their whole answers follow
        if isinstance(event, TextDelta):
            if not self._streamed:
                self._printer.gap()
            self._streamed = True
            self._printer.stream(sanitise(event.text, newlines=True, tabs=True))
        elif self._verbose:
            self._printer.stream(sanitise(event.text, newlines=True, tabs=True), style="dim italic")

    def _assistant(self, event: AssistantMessage) -> None:
        uses = [block for block in event.content if block.get("type") == "tool_use"]
        self._uses |= {(event.agent_id, str(block.get("id"))): block for block in uses}
        streams = event.agent_id == "main"
        if not (streams and self._streamed):
            text = "\n".join(str(block.get("text", "")) for block in event.content if block.get("type") == "text")
            if text.strip():
                self._printer.gap()
                self._printer.line(self._who(event) + sanitise(text.strip("\n"), newlines=True, tabs=True))
        if streams:
            self._streamed = False
        self._printer.break_line()

    def _permission(self, event: PermissionDecided) -> None:
        if event.verdict != "deny":
            return
        self._refused.add((event.agent_id, event.call_id))
        where = ", ".join(sanitise(part) for part in (event.rule, event.location) if part)
        text = Text.assemble(
            self._who(event),
            ("x ", "bold red"),
            (sanitise(event.tool), "bold"),
            " " + self._target(event),
        )
        self._printer.gap()
        self._printer.line(text.append("\n  denied: ", style="red").append(sanitise(event.reason)))
        if where:
            self._printer.line(f"  by {where}", style="dim")

    def _target(self, event: PermissionDecided | ToolFinished) -> str:
        """What a call that never started was about, from the model's own input."""
        given = self._uses.get((event.agent_id, event.call_id), {}).get("input")
        first = next(iter(given.values()), "") if isinstance(given, dict) else ""
        return words.shorten(sanitise(str(first)))

    def _started(self, event: ToolStarted) -> None:
        batch = (event.agent_id, event.batch)
        if batch != self._batch:
            self._printer.gap()
        self._batch = batch
        self._open[event.agent_id, event.call_id] = event
        self._printer.line(Text.assemble(self._who(event), ("* ", "bold cyan"), self._name(event)))
        self._last_started = (event.agent_id, event.call_id)

    def _name(self, event: ToolStarted) -> Text:
        return Text.assemble((sanitise(event.tool), "bold"), " ", self._cut(sanitise(event.summary)))

    def _cut(self, line: str) -> str:
        return line if self._verbose else words.shorten(line)

    def _finished(self, event: ToolFinished, *, follows_start: bool) -> None:
        if (event.agent_id, event.call_id) in self._refused:
            return
        started = self._open.pop((event.agent_id, event.call_id), None)
        line = Text("  " + self._who(event))
        if started is None:
            line.append(sanitise(event.tool), style="bold").append(f" {self._target(event)}".rstrip() + ": ")
        elif self._open or not follows_start:
            line.append(self._name(started)).append(": ")
        self._printer.line(line.append(outcome.headline(event)))
        below = outcome.details(event, verbose=self._verbose)
        if below is not None:
            self._printer.line(below)

    def _discarded(self, event: CallDiscarded) -> None:
        started = self._open.pop((event.agent_id, event.call_id), None)
        name = self._name(started) if started is not None else Text(sanitise(event.tool), "bold")
        self._printer.line(
            Text("  " + self._who(event), "dim").append(name).append(f": discarded, {sanitise(event.reason)}")
        )

    def _changes(self, event: ChangesApplied) -> None:
        if event.applied:
            files = words.count(len(event.applied), "file")
            done = f"{files} changed in your folder" if self._in_place else f"applied {files} to your folder"
            self._printer.line(done, style="green")
        for path, reason in sorted(event.conflicts.items()):
            self._printer.line(f"not applied: {sanitise(path)} ({sanitise(reason)})", style="red")

    def _end(self, event: RunFinished) -> None:
        if event.agent_id != "main":
            return
        self._printer.gap()
        parts = [words.count(event.turns, "turn"), words.tokens(event.usage), words.duration(event.duration_s)]
        spent = ", ".join(filter(None, [*parts, words.cost(event.cost_usd, event.usage)]))
        line = Text(event.status.replace("_", " "), style=_STATUS_STYLES.get(event.status, "bold red"))
        self._printer.line(line.append(f" · {spent}", style="not bold dim"))
        if event.error:
            self._printer.line(sanitise(event.error), style="red")
        if self._answer is not None and event.text:
            self._answer.write(sanitise(event.text, newlines=True, tabs=True) + "\n")
            self._answer.flush()
