"""What an agent did, as a value that tests ask, with assertions whose messages say what was done instead."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from sandbox_agent.embedding.result import Result
from sandbox_agent.events import (
    Event,
    PermissionDecided,
    RunFinished,
    ToolFinished,
    ToolStarted,
)
from sandbox_agent.frontends.outcome import plain_text
from sandbox_agent.types import JsonObject

_ANY = object()
SHOWN_CHARS = 200


@dataclass(slots=True)
class Call:
    """One tool call. `input` is what it was called with, {} where it was denied before that was known; `result` is the
    text that the model got, None where it got none. `reason` is why it was denied."""

    call_id: str
    tool: str
    agent_id: str = "main"
    input: JsonObject = field(default_factory=dict)
    result: str | None = None
    is_error: bool = False
    denied: bool = False
    reason: str | None = None

    def fits(self, tool: str, fields: JsonObject) -> bool:
        """Whether it is of this tool, and its input has these fields: equal, or true for a function."""
        if self.tool != tool:
            return False
        for name, wanted in fields.items():
            given = self.input.get(name, _ANY)
            if not (wanted(given) if callable(wanted) and given is not _ANY else given == wanted):
                return False
        return True

    def __str__(self) -> str:
        said = f"{self.tool} {self.input}"[:SHOWN_CHARS]
        if self.denied:
            return f"{said}: denied, {self.reason}"
        return said + (": failed" if self.is_error else "")


@dataclass(frozen=True, slots=True)
class Outcome:
    """A run that has ended. `events` is everything that happened; `result` is as of `sandbox_agent.run`, None for a
    frozen replay, in which no tool ran and nothing was changed."""

    events: tuple[Event, ...]
    result: Result | None = None

    @property
    def status(self) -> str:
        """`done`, `denied`, `failed` (also by a check), `limit`, `sandbox_error`, `model_error`, `interrupted`."""
        if self.result is not None:
            return self.result.status
        return self._finished.status

    @property
    def text(self) -> str:
        """The agent's last answer."""
        return self._finished.text

    @property
    def calls(self) -> tuple[Call, ...]:
        """All calls, of sub-agents too, in the order they began; denied ones where they were denied."""
        return tuple(_calls(self.events))

    @property
    def changed(self) -> tuple[str, ...]:
        """The paths that the run changed, in order."""
        return tuple(sorted(change.path for change in self.result.changes)) if self.result is not None else ()

    def diff(self, path: str) -> str:
        """What was changed in a file.

        Raises:
            AssertionError: it was not changed.
        """
        __tracebackhide__ = True
        found = [change for change in (self.result.changes if self.result else ()) if change.path == path]
        if not found:
            raise AssertionError(f"{path} was not changed; changed were: {_listed(self.changed)}")
        return found[0].diff or ""

    def called(self, tool: str, **fields: Any) -> tuple[Call, ...]:
        """The calls of a tool that were not denied and whose input has these fields; a function says itself whether a
        value fits."""
        return tuple(call for call in self.calls if not call.denied and call.fits(tool, fields))

    def assert_done(self) -> None:
        """It was done, and nothing was denied; every check passed."""
        __tracebackhide__ = True
        if self.status != "done":
            error = self.result.error if self.result is not None else self._finished.error
            denied = [str(call) for call in self.calls if call.denied]
            raise AssertionError("\n".join([f"the run ended as {self.status}: {error or self.text!r}", *denied]))

    def assert_called(self, tool: str, times: int | None = None, **fields: Any) -> None:
        """A call of this tool with these fields ran; `times` says how many did."""
        __tracebackhide__ = True
        found = self.called(tool, **fields)
        if len(found) != times if times is not None else not found:
            wanted = "no such call" if not found else f"{len(found)} such calls and not {times}"
            raise AssertionError(f"{wanted}: {tool} {fields}\nthe calls were:\n{_listed(self.calls)}")

    def assert_not_called(self, tool: str, **fields: Any) -> None:
        """None did; a denied call is no call."""
        __tracebackhide__ = True
        found = self.called(tool, **fields)
        if found:
            raise AssertionError(f"this was called:\n{_listed(found)}")

    def assert_denied(self, tool: str, reason: str = "", **fields: Any) -> None:
        """A call of this tool with these fields was denied, for a reason with this in it."""
        __tracebackhide__ = True
        denied = [call for call in self.calls if call.denied]
        if not any(call.fits(tool, fields) and reason in (call.reason or "") for call in denied):
            raise AssertionError(f"no such denial: {tool} {fields} {reason!r}\ndenied were:\n{_listed(denied)}")

    def assert_nothing_denied(self) -> None:
        """Every call was allowed."""
        __tracebackhide__ = True
        denied = [call for call in self.calls if call.denied]
        if denied:
            raise AssertionError(f"denied were:\n{_listed(denied)}")

    def assert_changed(self, *paths: str) -> None:
        """Exactly these paths were changed; none for nothing."""
        __tracebackhide__ = True
        if self.result is None:
            raise AssertionError("a frozen replay changes nothing; replay it live, or run it, to see the changes")
        if self.changed != tuple(sorted(paths)):
            raise AssertionError(f"changed were {_listed(self.changed)}\nand not {_listed(sorted(paths))}")

    @property
    def _finished(self) -> RunFinished:
        return next(e for e in reversed(self.events) if isinstance(e, RunFinished) and e.agent_id == "main")


def _calls(events: Sequence[Event]) -> Iterable[Call]:
    found: dict[tuple[str, str], Call] = {}
    inputs: dict[tuple[str, str], JsonObject] = {}
    for event in events:
        content = getattr(event, "content", None) if event.type == "assistant_message" else None
        for block in content or ():
            if block.get("type") == "tool_use" and isinstance(block.get("input"), dict):
                inputs[event.agent_id, str(block.get("id"))] = block["input"]
        match event:
            case PermissionDecided(verdict="deny"):
                key = event.agent_id, event.call_id
                call = found.setdefault(key, Call(event.call_id, event.tool, event.agent_id, inputs.get(key, {})))
                call.denied, call.reason = True, event.reason
            case ToolStarted():
                key = event.agent_id, event.call_id
                found[key] = Call(event.call_id, event.tool, event.agent_id, event.input)
            case ToolFinished():
                key = event.agent_id, event.call_id
                known = Call(event.call_id, event.tool, event.agent_id, inputs.get(key, {}))
                call = found.setdefault(key, known)
                call.result, call.is_error = plain_text(event.content), event.is_error
            case _:
                pass
    return found.values()


def _listed(values: Iterable[object]) -> str:
    return "\n".join(f"  {value}" for value in values) or "  nothing"
