"""A record folded to a story: who did what, in which order, under which decision, at what cost.

One pass over the entries, no I/O but in `read`. It takes any record there is: of a session that still runs, that was
killed, that is a fork or was gone on with, or of which lines are damaged.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from sandbox_agent.events import (
    AgentFinished,
    AgentStarted,
    AssistantMessage,
    CallDiscarded,
    CallEffects,
    ChangesApplied,
    ConversationCompacted,
    EgressDecided,
    EgressEnded,
    Event,
    HookRan,
    JobFinished,
    JobStarted,
    McpServerChanged,
    ModelSwitched,
    PermissionAsked,
    PermissionDecided,
    ProjectInstructions,
    RequestStarted,
    ReviewReady,
    RunFinished,
    SessionStarted,
    ToolFinished,
    ToolResultsMessage,
    ToolStarted,
    UserMessage,
)
from sandbox_agent.events.checks import CheckFinished
from sandbox_agent.reports.asides import aside_of
from sandbox_agent.reports.parts import Call, Item, Job, Request, Said, Task, Work
from sandbox_agent.reports.story import Story, text_of
from sandbox_agent.tape import Entry, read_tape

MAIN = "main"
OURS = "Note from the program"
"""How the model is told what no person said, such as the end of a job between two tasks."""


def read(path: Path) -> Story:
    """The story that a record tells.

    Raises:
        RecordError: it cannot be read.
    """
    tape = read_tape(path)
    story = tell(tape.entries)
    story.damaged_lines, story.chain_ok, story.head = tape.damaged_lines, tape.chain_ok, tape.head
    return story


def tell(entries: Iterable[Entry]) -> Story:
    """The story of these entries."""
    teller = _Teller()
    for entry in entries:
        teller.feed(entry)
    return teller.story


class _Teller:
    def __init__(self) -> None:
        self.story = Story()
        self._works: dict[str, Work] = {}
        self._asked: dict[str, int] = {}
        self._calls: dict[tuple[str, str], Call] = {}
        self._by_id: dict[str, Call] = {}
        self._jobs: dict[str, Job] = {}
        self._task: Task | None = None
        self._count = 0
        self._inherited = False

    def feed(self, entry: Entry) -> None:
        story, event = self.story, entry.event
        story.entries += 1
        story.first_unix_s = story.first_unix_s or entry.time_unix_s
        story.last_unix_s = max(story.last_unix_s, entry.time_unix_s)
        if self._task is not None:
            self._task.last_unix_s = entry.time_unix_s
        match event:
            case SessionStarted() | UserMessage() | RunFinished() | ReviewReady() | ChangesApplied():
                self._session(entry, event)
            case RequestStarted() | AssistantMessage() | ConversationCompacted() | ModelSwitched():
                self._model(entry, event)
            case PermissionAsked() | PermissionDecided() | ToolStarted() | ToolFinished() | CallDiscarded():
                self._call_event(entry, event)
            case CallEffects() | HookRan():
                self._about_a_call(entry, event)
            case AgentStarted() | AgentFinished() | JobStarted() | JobFinished():
                self._beside(entry, event)
            case EgressDecided() | EgressEnded():
                self._network(entry, event)
            case ToolResultsMessage(content=content):
                said = text_of(block for block in content if block.get("type") == "text")
                if said:
                    self._add(event, Said(seq=entry.seq, time_unix_s=entry.time_unix_s, who="told", text=said))
            case _:
                if isinstance(event, McpServerChanged):
                    story.servers[event.server] = event
                if isinstance(event, CheckFinished):
                    story.checks.append(event)
                self._aside(entry)

    def _items(self, event: Event) -> list[Item]:
        work = self._works.get(event.agent_id)
        return self.story.items if work is None else work.items

    def _add(self, event: Event, item: Item) -> None:
        self._count += 1
        item.number = self._count
        self._items(event).append(item)

    def _aside(self, entry: Entry) -> None:
        aside = aside_of(entry)
        if aside is not None:
            self._add(entry.event, aside)

    def _session(
        self, entry: Entry, event: SessionStarted | UserMessage | RunFinished | ReviewReady | ChangesApplied
    ) -> None:
        story = self.story
        match event:
            case SessionStarted():
                self._inherited = event.forked_from is not None
                story.started = story.started or event
                story.session_id = event.session_id
                story.starts.append(event)
                self._works, self._task = {}, None
                self._aside(entry)
            case ProjectInstructions(content=content):
                self._said(entry, "instructions", text_of(content))
            case UserMessage(content=content):
                text = text_of(content)
                begins = event.agent_id == MAIN and self._task is None
                # What comes later may be the person's or ours; the record does not say. A sub-agent hears its parent.
                self._said(entry, "user" if begins and not text.startswith(OURS) else "told", text)
                if begins:
                    self._task = Task(text=text, time_unix_s=entry.time_unix_s, inherited=self._inherited)
                    self._task.last_unix_s = entry.time_unix_s
                    story.tasks.append(self._task)
                    story.checks = []
            case RunFinished():
                if event.agent_id == MAIN and self._task is not None:
                    self._task.finished, self._task = event, None
                self._aside(entry)
            case ReviewReady():
                story.changes = event.changes
            case ChangesApplied():
                story.applied = event
                self._aside(entry)

    def _said(self, entry: Entry, who: str, text: str) -> None:
        place = {"seq": entry.seq, "time_unix_s": entry.time_unix_s}
        self._add(entry.event, Said(who=who, text=text, **place))  # type: ignore[arg-type]

    def _model(
        self, entry: Entry, event: RequestStarted | AssistantMessage | ConversationCompacted | ModelSwitched
    ) -> None:
        match event:
            case RequestStarted():
                self._asked[event.agent_id] = self._asked.get(event.agent_id, 0) + 1
                request = Request(
                    seq=entry.seq,
                    time_unix_s=entry.time_unix_s,
                    agent_id=event.agent_id,
                    turn=event.turn,
                    inherited=self._inherited,
                )
                self.story.requests.append(request)
                self._add(event, request)
            case AssistantMessage():
                self._answered(entry, event)
            case ConversationCompacted() | ModelSwitched():
                if not self._inherited:
                    self.story.other_usage += event.usage
                self._aside(entry)

    def _answered(self, entry: Entry, event: AssistantMessage) -> None:
        asked = next((one for one in reversed(self.story.requests) if one.agent_id == event.agent_id), None)
        if asked is not None and asked.usage is None:
            asked.usage, asked.model, asked.cost_usd = event.usage, event.model, event.cost_usd
            asked.duration_s = max(0.0, entry.time_unix_s - asked.time_unix_s)
            asked.stop_reason = event.stop_reason
            if self._task is not None:
                self._task.answered(event.usage, event.cost_usd)
        for block in event.content:
            match block.get("type"):
                case "text":
                    self._said(entry, "assistant", str(block.get("text", "")))
                case "thinking":
                    self._said(entry, "thinking", str(block.get("thinking", "")))
                case "tool_use":
                    call = self._call(entry, str(block.get("id")), str(block.get("name")))
                    given = block.get("input")
                    if not call.ran and isinstance(given, dict):
                        call.input = given
                case _:
                    pass

    def _call(self, entry: Entry, call_id: str, tool: str) -> Call:
        """The call that this event is about. An ID that is given again by a later request is another call."""
        agent_id = entry.event.agent_id
        request = self._asked.get(agent_id, 0)
        call = self._calls.get((agent_id, call_id))
        if call is None or call.request != request:
            call = Call(
                seq=entry.seq,
                time_unix_s=entry.time_unix_s,
                agent_id=agent_id,
                call_id=call_id,
                tool=tool,
                request=request,
                inherited=self._inherited,
            )
            self._calls[agent_id, call_id] = self._by_id[call_id] = call
            self.story.calls.append(call)
            self._add(entry.event, call)
        return call

    def _call_event(
        self, entry: Entry, event: PermissionAsked | PermissionDecided | ToolStarted | ToolFinished | CallDiscarded
    ) -> None:
        if isinstance(event, ToolFinished):  # of a call of before a resume, too
            call = self._calls.get((event.agent_id, event.call_id)) or self._call(entry, event.call_id, event.tool)
        else:
            call = self._call(entry, event.call_id, event.tool)
        match event:
            case PermissionAsked():
                call.asked, call.summary = event, event.summary
            case PermissionDecided():
                call.decided = event
            case ToolStarted():
                call.ran, call.started_unix_s = True, entry.time_unix_s
                call.input, call.summary, call.batch = event.input, event.summary, event.batch
            case ToolFinished():
                call.finished = event
            case CallDiscarded():
                call.discarded = event.reason

    def _about_a_call(self, entry: Entry, event: CallEffects | HookRan) -> None:
        call = self._calls.get((event.agent_id, event.call_id)) if event.call_id is not None else None
        if isinstance(event, HookRan):
            self.story.hooks.append(event)
            if call is None:
                self._aside(entry)
            else:
                call.hooks.append(event)
        elif call is not None:
            call.effects = event

    def _beside(self, entry: Entry, event: AgentStarted | AgentFinished | JobStarted | JobFinished) -> None:
        by = self._by_id.get(event.call_id)
        match event:
            case AgentStarted():
                work = Work(
                    agent_id=event.agent_id,
                    agent_type=event.agent_type,
                    description=event.description,
                    model=event.model,
                    background=event.background,
                    continued=event.continued,
                )
                self.story.works.append(work)
                self._works[event.agent_id] = work
                if by is not None:
                    by.works.append(work)
            case AgentFinished():
                done = self._works.get(event.agent_id)
                if done is not None:
                    done.status, done.text, done.error = event.status, event.text, event.error
                    done.turns, done.usage, done.duration_s = event.turns, event.usage, event.duration_s
            case JobStarted():
                job = Job(started=event, time_unix_s=entry.time_unix_s)
                self._jobs[event.job_id] = job
                self.story.jobs.append(job)
                if by is not None:
                    by.jobs.append(job)
            case JobFinished():
                if (started := self._jobs.get(event.job_id)) is not None:
                    started.finished = event
                self._aside(entry)

    def _network(self, entry: Entry, event: EgressDecided | EgressEnded) -> None:
        self.story.hosts.feed(event)
        if isinstance(event, EgressDecided):
            self._aside(entry)
