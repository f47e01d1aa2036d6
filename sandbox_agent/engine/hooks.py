"""Running the hooks of a session: which there are for an event, one at a time, each recorded as it ends.

What becomes of an answer is decided where the event happens: `call_hooks` for calls, `session_hooks` for the rest.
A command can only tighten. Hooks in the container are advice, not a boundary: whoever gets at the files they run can
make them say nothing.
"""

from __future__ import annotations

import json
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Protocol

import anyio

from sandbox_agent.engine.hook_answers import MAX_CONTEXT_CHARS, MAX_REASON_CHARS, HookAnswer, checked, cut, read_answer
from sandbox_agent.engine.hook_process import HookEnd, run_in_container, run_on_host
from sandbox_agent.events import Event, HookRan
from sandbox_agent.policy.hooks import DEFAULT_TIMEOUT_S, Hook, HookEvent, Matcher
from sandbox_agent.sandboxes.base import Sandbox
from sandbox_agent.types import JsonObject, PermissionRequest, Verdict

EVERY_CALL = Matcher()


class Fits(Protocol):
    """Which calls a hook is for."""

    def fits(self, request: PermissionRequest) -> bool:
        """Whether it is for this one; True where it cannot be told."""
        ...


@dataclass(frozen=True, slots=True)
class ProgramHook:
    """A function of the embedding program as a hook.

    `call` gets what a command would get as JSON, and returns an answer or None for no opinion. If it raises or takes
    longer than `timeout_s`, it has denied, for the events that decide. Unlike a command it may answer ALLOW: that
    answers a question as the approver would; a deny rule still stands.
    """

    id: str
    event: HookEvent
    call: Callable[[JsonObject], Awaitable[HookAnswer | None]]
    matcher: Fits = EVERY_CALL
    timeout_s: float = DEFAULT_TIMEOUT_S
    location: str | None = None


AnyHook = Hook | ProgramHook


@dataclass(frozen=True, slots=True)
class OfCall:
    """The call that a hook is asked about. `check` says what is wrong with an input that is to replace its own."""

    call_id: str
    tool: str
    input_sha256: str
    check: Callable[[JsonObject], str | None]
    digest: Callable[[JsonObject], str]


class Hooks:
    """The hooks of one session, those of the program first.

    `begun` is set once the session's start was told, `to_end` are the hooks that have yet to be told of its end, and
    `status` is how its last run ended.
    """

    def __init__(
        self,
        hooks: Sequence[AnyHook],
        *,
        sandbox: Sandbox,
        workspace: Path,
        emit: Callable[[Event], None],
    ) -> None:
        self._hooks = tuple(sorted(hooks, key=lambda hook: isinstance(hook, Hook)))
        self._sandbox = sandbox
        self._workspace = workspace
        self._emit = emit
        self.begun = False
        self.to_end = list(self.of(HookEvent.SESSION_END))
        self.status = "closed"

    def of(self, event: HookEvent) -> tuple[AnyHook, ...]:
        """Those for this event, in the order in which they run."""
        return tuple(hook for hook in self._hooks if hook.event is event)

    async def run(
        self,
        hook: AnyHook,
        about: JsonObject,
        *,
        agent_id: str,
        of_call: OfCall | None = None,
        most_s: float | None = None,
    ) -> HookAnswer:
        """Run one hook and record it.

        Args:
            hook: one of `of`.
            about: what it is told, besides the event's name.
            agent_id: whose doing it is about.
            of_call: the call, for the events that are about one.
            most_s: a limit below its own.

        Returns:
            HookAnswer: with `fault` where it failed, and then nothing else.

        Raises:
            SandboxError: the sandbox is gone, and the hook was to run there.
        """
        if most_s is not None and most_s < hook.timeout_s:
            hook = replace(hook, timeout_s=most_s)
        told = {"hook_event_name": hook.event.wire_name, **about}
        started_s = time.monotonic()
        if isinstance(hook, Hook):
            end = await self._end_of(hook, json.dumps(told).encode())
            exit_code, answer = end.exit_code, read_answer(hook.event, end)
        else:
            exit_code, answer = None, await _called(hook, told)
        if of_call is not None:
            answer = _with_usable_input(answer, of_call)
        self._record(hook, answer, exit_code, time.monotonic() - started_s, agent_id, of_call)
        return answer

    async def _end_of(self, hook: Hook, stdin: bytes) -> HookEnd:
        if hook.place == "container":
            return await run_in_container(self._sandbox, hook, stdin)
        return await run_on_host(hook, stdin, without=self._workspace)

    def _record(
        self,
        hook: AnyHook,
        answer: HookAnswer,
        exit_code: int | None,
        duration_s: float,
        agent_id: str,
        of_call: OfCall | None,
    ) -> None:
        rewritten = answer.updated_input
        self._emit(
            HookRan(
                agent_id=agent_id,
                hook=hook.id,
                event=hook.event.value,
                place=place_of(hook),
                exit_code=exit_code,
                duration_s=duration_s,
                decision=answer.verdict.name.lower() if answer.verdict is not None else None,
                reason=answer.reason,
                fault=answer.fault,
                location=hook.location,
                call_id=of_call.call_id if of_call else None,
                tool=of_call.tool if of_call else None,
                input_sha256=of_call.input_sha256 if of_call else None,
                rewritten=rewritten,
                rewritten_sha256=of_call.digest(rewritten) if of_call and rewritten is not None else None,
            )
        )


def place_of(hook: AnyHook) -> str:
    """Where it runs: "container", "host" or "program"."""
    return hook.place if isinstance(hook, Hook) else "program"


def verdict_of(hook: AnyHook, answer: HookAnswer) -> Verdict | None:
    """What an answer amounts to: a fault denies where the hook decides, and a command never allows."""
    if answer.fault is not None:
        return Verdict.DENY if hook.event.decides else None
    if answer.verdict is Verdict.ALLOW and isinstance(hook, Hook):
        return None
    return answer.verdict


def _with_usable_input(answer: HookAnswer, of_call: OfCall) -> HookAnswer:
    if answer.updated_input is None:
        return answer
    wrong = of_call.check(answer.updated_input)
    if wrong is not None:
        return HookAnswer(fault=f"gave an input that cannot be used: {wrong}")
    same = of_call.digest(answer.updated_input) == of_call.input_sha256
    return replace(answer, updated_input=None) if same else answer


async def _called(hook: ProgramHook, told: JsonObject) -> HookAnswer:
    try:
        with anyio.fail_after(hook.timeout_s):
            answer = await hook.call(told)
    except TimeoutError:
        return HookAnswer(fault=f"did not answer within {hook.timeout_s:g} s")
    except Exception as exc:  # noqa: BLE001 - the embedding program's code; a hook that fails has denied, on the record
        return HookAnswer(fault=f"raised {type(exc).__name__}: {exc}")
    if answer is None:
        return HookAnswer()
    if not isinstance(answer, HookAnswer):
        return HookAnswer(fault=f"gave a {type(answer).__name__}, not a HookAnswer")
    reason = cut(answer.reason, MAX_REASON_CHARS) if answer.reason else None
    context = cut(answer.context, MAX_CONTEXT_CHARS) if answer.context else None
    return checked(hook.event, replace(answer, reason=reason, context=context))
