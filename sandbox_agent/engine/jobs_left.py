"""The jobs of a session before it was resumed: none of them runs any more, which its record and the model must know."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from sandbox_agent.engine.queue import MessageQueue, Priority
from sandbox_agent.events import Event, JobFinished, JobStarted, SessionStarted, ToolResultsMessage, UserMessage
from sandbox_agent.prompts import prompt
from sandbox_agent.tape import Entry, TapeWriter

KILLED_WITH_IT = "the process of the session was killed"
NOT_IN_A_FORK = "no job is carried into a fork"

_SHOWN = 10


@dataclass(frozen=True, slots=True)
class JobsLeft:
    """`gone` are those whose end their agent has not heard of, `ends` is what the record lacks."""

    gone: tuple[JobStarted, ...] = ()
    ends: tuple[JobFinished, ...] = ()

    def settle(self, tape: TapeWriter, queue: MessageQueue) -> None:
        """Write the ends that were never written, and tell the first agent."""
        for event in self.ends:
            tape.append(event)
        self.tell("main", queue)

    def tell(self, agent_id: str, queue: MessageQueue) -> None:
        """Let an agent know with its next request which of its jobs are over."""
        gone = [event for event in self.gone if event.agent_id == agent_id]
        if gone:
            named = [f"{event.job_id} (`{event.what}`)" for event in gone[:_SHOWN]]
            more = [f"{len(gone) - _SHOWN} more"] if len(gone) > _SHOWN else []
            text = prompt("engine/jobs_gone").format(jobs=", ".join([*named, *more]))
            queue.put(text, Priority.NEXT, wakes=False)


def jobs_left(entries: Sequence[Entry], events: Iterable[Event]) -> JobsLeft:
    """What the last run of a session left.

    Args:
        entries: its whole record.
        events: what its conversation goes by.
    """
    begun: dict[str, Entry] = {}
    why = KILLED_WITH_IT
    for entry in entries:
        match entry.event:
            case SessionStarted(forked_from=forked_from):
                why = KILLED_WITH_IT if forked_from is None else NOT_IN_A_FORK
            case JobStarted(job_id=job_id):
                begun[job_id] = entry
            case JobFinished(job_id=job_id):
                begun.pop(job_id, None)
    return JobsLeft(_unheard(events), tuple(_end(entry, entries[-1], why) for entry in begun.values()))


def _unheard(events: Iterable[Event]) -> tuple[JobStarted, ...]:
    """The jobs whose id was not in anything that their agent was told after their end."""
    known: dict[tuple[str, str], JobStarted] = {}
    over: set[tuple[str, str]] = set()
    for event in events:
        match event:
            case SessionStarted():
                over |= known.keys()  # a run that was killed before it told of them may lie between
            case JobStarted(agent_id=agent_id, job_id=job_id):
                known[agent_id, job_id] = event
                over.discard((agent_id, job_id))
            case JobFinished(agent_id=agent_id, job_id=job_id):
                over.add((agent_id, job_id))
            case UserMessage(content=content) | ToolResultsMessage(content=content):
                said = str(content)
                for job in [job for job in over if job[0] == event.agent_id and job[1] in said]:
                    known.pop(job, None)
                    over.discard(job)
    return tuple(known.values())


def _end(begun: Entry, last: Entry, why: str) -> JobFinished:
    """It ran at least as long as the record goes on."""
    event = begun.event
    assert isinstance(event, JobStarted)
    return JobFinished(
        agent_id=event.agent_id,
        job_id=event.job_id,
        kind=event.kind,
        what=event.what,
        call_id=event.call_id,
        state="closed",
        exit_code=None,
        duration_s=max(0.0, last.time_unix_s - begun.time_unix_s),
        note=why,
    )
