"""What each request to the model and each call used, and all together: one table for the terminal and for pages."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass

from sandbox_agent.engine.budget import amount
from sandbox_agent.frontends import words
from sandbox_agent.reports.parts import Call, Request
from sandbox_agent.reports.story import Story, text_of
from sandbox_agent.types import JsonObject, Usage


@dataclass(frozen=True, slots=True)
class Totals:
    """All requests and calls of a session. None where it is known of none."""

    usage: Usage
    cost_usd: float | None
    cpu_s: float | None
    max_rss_bytes: int | None
    sent_bytes: int | None
    received_bytes: int | None

    def as_json(self) -> JsonObject:
        return {
            "kind": "total",
            **asdict(self.usage),
            "cost_usd": self.cost_usd,
            "cpu_s": self.cpu_s,
            "max_rss_bytes": self.max_rss_bytes,
            "sent_bytes": self.sent_bytes,
            "received_bytes": self.received_bytes,
        }


@dataclass(frozen=True, slots=True)
class RequestCost:
    """One request, as a row."""

    seq: int
    agent_id: str
    turn: int
    model: str
    usage: Usage | None
    cost_usd: float | None
    duration_s: float | None

    def cells(self) -> tuple[str, ...]:
        """Tokens read, read from the cache, written; US dollars; time. For people."""
        used = self.usage or Usage()
        read = used.input_tokens + used.cache_creation_input_tokens + used.cache_read_input_tokens
        cost = amount("cost_usd", self.cost_usd) if self.cost_usd is not None else "-"
        took = words.duration(self.duration_s) if self.duration_s is not None else "-"
        return f"{read:,}", f"{used.cache_read_input_tokens:,}", f"{used.output_tokens:,}", cost, took

    def as_json(self) -> JsonObject:
        used = self.usage or Usage()
        return {
            "kind": "request",
            "entry": self.seq,
            "agent_id": self.agent_id,
            "turn": self.turn,
            "model": self.model,
            "input_tokens": used.input_tokens,
            "output_tokens": used.output_tokens,
            "cache_creation_input_tokens": used.cache_creation_input_tokens,
            "cache_read_input_tokens": used.cache_read_input_tokens,
            "cost_usd": self.cost_usd,
            "duration_s": self.duration_s,
        }


@dataclass(frozen=True, slots=True)
class CallCost:
    """One call, as a row. `input_bytes` and `output_bytes` are of what the model wrote and was given, as UTF-8."""

    seq: int
    agent_id: str
    call_id: str
    tool: str
    summary: str
    duration_s: float | None
    cpu_s: float | None
    max_rss_bytes: int | None
    input_bytes: int
    output_bytes: int
    sent_bytes: int | None
    received_bytes: int | None

    def cells(self) -> tuple[str, ...]:
        """Time, CPU time, peak memory, input, output, sent, received. For people."""
        seconds = (self.duration_s, self.cpu_s)
        sizes = (self.max_rss_bytes, self.input_bytes, self.output_bytes, self.sent_bytes, self.received_bytes)
        return (
            *(words.duration(one) if one is not None else "-" for one in seconds),
            *(words.size(one) if one is not None else "-" for one in sizes),
        )

    def as_json(self) -> JsonObject:
        return {
            "kind": "call",
            "entry": self.seq,
            "agent_id": self.agent_id,
            "tool_use_id": self.call_id,
            "tool_name": self.tool,
            "duration_s": self.duration_s,
            "cpu_s": self.cpu_s,
            "max_rss_bytes": self.max_rss_bytes,
            "input_bytes": self.input_bytes,
            "output_bytes": self.output_bytes,
            "sent_bytes": self.sent_bytes,
            "received_bytes": self.received_bytes,
        }


def requests(story: Story) -> Iterator[RequestCost]:
    """Each request of this session, in order."""
    for one in story.requests:
        if not one.inherited:
            yield _request(one)


def calls(story: Story) -> Iterator[CallCost]:
    """Each call of this session, in order."""
    return map(_call, story.own_calls)


def totals(story: Story) -> Totals:
    """All of it together; the peak is that of the largest process."""
    rows = [*calls(story)]
    cpu = [one.cpu_s for one in rows if one.cpu_s is not None]
    peaks = [one.max_rss_bytes for one in rows if one.max_rss_bytes is not None]
    hosts = story.hosts.as_json()
    return Totals(
        usage=story.usage,
        cost_usd=story.cost_usd,
        cpu_s=sum(cpu) if cpu else None,
        max_rss_bytes=max(peaks, default=None),
        sent_bytes=sum(int(host["sent_bytes"]) for host in hosts) if hosts else None,
        received_bytes=sum(int(host["received_bytes"]) for host in hosts) if hosts else None,
    )


def _request(one: Request) -> RequestCost:
    return RequestCost(one.seq, one.agent_id, one.turn, one.model, one.usage, one.cost_usd, one.duration_s)


def _call(call: Call) -> CallCost:
    did, finished = call.effects, call.finished
    return CallCost(
        seq=call.seq,
        agent_id=call.agent_id,
        call_id=call.call_id,
        tool=call.tool,
        summary=call.about,
        duration_s=finished.duration_s if finished is not None and call.ran else None,
        cpu_s=did.cpu_s if did is not None else None,
        max_rss_bytes=did.max_rss_bytes if did is not None else None,
        input_bytes=_size(json.dumps(call.input, ensure_ascii=False, default=str)),
        output_bytes=_size(text_of(finished.content)) if finished is not None else 0,
        sent_bytes=did.sent_bytes if did is not None else None,
        received_bytes=did.received_bytes if did is not None else None,
    )


def _size(text: str) -> int:
    return len(text.encode("utf-8", "surrogatepass"))
