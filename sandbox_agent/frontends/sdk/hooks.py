"""Hooks of the program: each becomes a hook of the session that asks it over the wire.

What the engine has an event for runs as its hooks do, before those of the policy, and is recorded. The start and end of
a sub-agent are told to the program and wait for nothing; the prompt is asked about before it goes in.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sandbox_agent.engine.hook_answers import HookAnswer
from sandbox_agent.engine.hooks import ProgramHook
from sandbox_agent.engine.session import Session
from sandbox_agent.errors import ConfigError, PolicyError
from sandbox_agent.events import Notice
from sandbox_agent.frontends.sdk import updates
from sandbox_agent.frontends.sdk.hook_output import checked
from sandbox_agent.frontends.sdk.lines import Lines
from sandbox_agent.frontends.sdk.wire import NoAnswerError, Wire
from sandbox_agent.policy.hooks import DEFAULT_TIMEOUT_S, HookEvent
from sandbox_agent.types import JsonObject, PermissionRequest, Verdict

MAX_TIMEOUT_S = 3600.0

_EVENTS = {
    "PreToolUse": HookEvent.PRE_TOOL_USE,
    "PostToolUse": HookEvent.POST_TOOL_USE,
    "PostToolUseFailure": HookEvent.POST_TOOL_USE,
    "PermissionRequest": HookEvent.PERMISSION_REQUEST,
    "Stop": HookEvent.STOP,
    "SessionStart": HookEvent.SESSION_START,
    "SessionEnd": HookEvent.SESSION_END,
}
"""Those that the engine runs."""

ASIDE = ("UserPromptSubmit", "SubagentStart", "SubagentStop")
"""Those that are asked for from here."""

NEVER = ("PreCompact", "Notification")
"""Those that never come, which is said at the start."""

CONSENTING = ("PreToolUse", "PermissionRequest")
"""Those whose yes lets a call run."""

_NAMES = re.compile(r"[A-Za-z0-9_|]+\Z")
_VERDICTS = {"allow": Verdict.ALLOW, "ask": Verdict.ASK, "deny": Verdict.DENY}


@dataclass(frozen=True, slots=True)
class ToolMatcher:
    """Which tools a hook is for: exact names with `|` between, or a regular expression; nothing, or `*`, is all."""

    text: str

    def fits(self, request: PermissionRequest) -> bool:
        """See `Fits`."""
        return self.takes(request.tool)

    def takes(self, name: str) -> bool:
        """Whether a name is meant."""
        if self.text in ("", "*"):
            return True
        if _NAMES.match(self.text):
            return name in self.text.split("|")
        return re.search(self.text, name) is not None


@dataclass(frozen=True, slots=True)
class SdkHook:
    """One callback. `goes_on`: where it fails it has no opinion, in place of denying."""

    event: str
    callback_id: str
    matcher: ToolMatcher
    timeout_s: float
    goes_on: bool


def read_hooks(given: object) -> list[SdkHook]:
    """The hooks of an initialize request.

    Raises:
        ConfigError: a matcher or a timeout is wrong, or there is no such event.
    """
    found: list[SdkHook] = []
    for event, entries in given.items() if isinstance(given, dict) else ():
        if event not in (*_EVENTS, *ASIDE, *NEVER):
            raise ConfigError(f"there is no hook event {event!r} here")
        for entry in entries or ():
            found += _read(str(event), entry)
    return found


def _read(event: str, entry: Any) -> Iterator[SdkHook]:
    if not isinstance(entry, dict):
        raise ConfigError(f"a hook of {event} is not an object")
    text, timeout_s = entry.get("matcher") or "", entry.get("timeout", DEFAULT_TIMEOUT_S)
    try:
        re.compile(text)
    except (re.error, TypeError) as exc:
        if text != "*":
            raise ConfigError(f"the matcher {text!r} of a hook of {event} is no regular expression: {exc}") from exc
    if not isinstance(timeout_s, int | float) or timeout_s <= 0:
        raise ConfigError(f"the timeout {timeout_s!r} of a hook of {event} is no number of seconds")
    for callback_id in entry.get("hookCallbackIds") or ():
        goes_on = entry.get("onFailure") == "continue"
        yield SdkHook(event, str(callback_id), ToolMatcher(text), min(float(timeout_s), MAX_TIMEOUT_S), goes_on)


class SdkHooks:
    """The hooks of one session. `stopped` is the reason of one that ended the turn."""

    def __init__(self, hooks: Iterable[SdkHook], wire: Wire, lines: Lines, host: Path) -> None:
        self._hooks = tuple(hooks)
        self._wire = wire
        self._lines = lines
        self._host = str(host)
        self.session: Session | None = None
        self.record = ""
        self.consented = False
        """Whether one has let a call run."""

    def program_hooks(self) -> list[ProgramHook]:
        """Those that the engine runs."""
        return [
            ProgramHook(
                id=f"{hook.event}:{hook.callback_id}",
                event=_EVENTS[hook.event],
                call=self._call_of(hook),
                matcher=hook.matcher,
                timeout_s=hook.timeout_s + 5,
            )
            for hook in self._hooks
            if hook.event in _EVENTS
        ]

    def never(self) -> list[str]:
        """Events that the program wants to hear of and never will."""
        return sorted({hook.event for hook in self._hooks if hook.event in NEVER})

    def _call_of(self, hook: SdkHook) -> Any:
        async def call(told: JsonObject) -> HookAnswer | None:
            about = dict(told)
            if hook.event in ("PostToolUse", "PostToolUseFailure"):
                response = about.get("tool_response") or {}
                if bool(response.get("is_error")) is not (hook.event == "PostToolUseFailure"):
                    return None
                if hook.event == "PostToolUseFailure":
                    about["error"] = _text_of(about.pop("tool_response").get("content"))
            if hook.event == "Stop":
                self._lines.turn.in_tools = False
            try:
                answer = await self._ask(hook, about)
            except NoAnswerError:
                if hook.goes_on:
                    return None
                raise
            return self._answer(hook, answer, about)

        return call

    async def _ask(self, hook: SdkHook, about: JsonObject) -> JsonObject:
        agent = about.pop("agent_id", "main")
        told = {
            **about,
            "session_id": self._lines.session_id,
            "transcript_path": self.record,
            "cwd": self._host,
            "hook_event_name": hook.event,
            **({"agent_id": agent} if agent != "main" else {}),
        }
        request: JsonObject = {"subtype": "hook_callback", "callback_id": hook.callback_id, "input": told}
        if about.get("tool_use_id"):
            request["tool_use_id"] = about["tool_use_id"]
        return checked(await self._wire.ask(request, hook.timeout_s))

    def _answer(self, hook: SdkHook, answer: JsonObject, about: JsonObject) -> HookAnswer | None:
        if answer.get("async") is True:
            return None
        said: JsonObject = answer["hookSpecificOutput"]
        self._tell(answer, said)
        reason = said.get("permissionDecisionReason") or answer.get("reason")
        verdict = _VERDICTS.get(str(said.get("permissionDecision")))
        decision = said.get("decision")
        if hook.event == "PermissionRequest" and isinstance(decision, dict):
            verdict, reason = self._granted(decision, about, reason)
        if answer.get("decision") == "block":
            verdict = Verdict.DENY
        elif answer.get("decision") == "approve" and verdict is None:
            verdict = Verdict.ALLOW
        if answer.get("continue") is False:
            self._end_turn(str(answer.get("stopReason") or reason or "a hook ended the turn"))
            if hook.event == "Stop":
                return None
            verdict, reason = Verdict.DENY, self._lines.turn.stopped_by
        self.consented = self.consented or (verdict is Verdict.ALLOW and hook.event in CONSENTING)
        updated = said.get("updatedInput") if hook.event == "PreToolUse" else None
        context = (
            said.get("additionalContext") if hook.event not in ("Stop", "SessionEnd", "PermissionRequest") else None
        )
        return HookAnswer(
            verdict,
            str(reason) if reason else None,
            updated,
            context if isinstance(context, str) and context else None,
        )

    def _granted(self, decision: JsonObject, about: JsonObject, reason: object) -> tuple[Verdict | None, object]:
        """What a hook on a question decided, and why. It stands for the callback, but for another input: that is for
        PreToolUse, which is judged."""
        verdict = _VERDICTS.get(str(decision.get("behavior")))
        if verdict is Verdict.ALLOW and decision.get("updatedInput") not in (None, about.get("tool_input")):
            return Verdict.DENY, "the hook gave another input, which only a PreToolUse hook can do here"
        if verdict is Verdict.ALLOW and self.session is not None:
            try:
                updates.take(self.session, decision.get("updatedPermissions"))
            except PolicyError as exc:
                return Verdict.DENY, str(exc)
        return verdict, decision.get("message") or reason

    def _tell(self, answer: JsonObject, said: JsonObject) -> None:
        if self.session is None:
            return
        message = answer.get("systemMessage")
        if isinstance(message, str) and message:
            self.session.emit(Notice(level="info", text=message))
        if said.get("updatedToolOutput") is not None:
            text = "a hook gave an updatedToolOutput, which is not known here: the result stays as it is"
            self.session.emit(Notice(level="warning", text=text))

    def _end_turn(self, reason: str) -> None:
        self._lines.turn.stopped_by = reason
        if self.session is not None:
            self.session.interrupt()

    async def prompt(self, text: str) -> tuple[str | None, list[str]]:
        """Ask about what the user says: why it may not go in, None where it may, and what goes with it.

        A hook that fails has no opinion, unless it is to block.
        """
        contexts: list[str] = []
        for hook in self._of("UserPromptSubmit"):
            try:
                answer = await self._ask(hook, {"prompt": text, **self._now()})
            except NoAnswerError as exc:
                if hook.goes_on:
                    continue
                return f"a hook on the prompt failed: {exc}", []
            context = answer["hookSpecificOutput"].get("additionalContext")
            if isinstance(context, str):
                contexts.append(context)
            if answer.get("decision") == "block" or answer.get("continue") is False:
                return str(answer.get("reason") or answer.get("stopReason") or "a hook does not let it in"), []
        return None, contexts

    async def aside(self, event: str, about: JsonObject) -> None:
        """Tell the program of something; what it says to that changes nothing, and is waited for by nobody else."""
        for hook in self._of(event):
            if hook.matcher.takes(str(about.get("agent_type", ""))):
                try:
                    await self._ask(hook, {**self._now(), **about})
                except NoAnswerError as exc:
                    if self.session is not None:
                        text = f"the hook {hook.event}:{hook.callback_id} failed: {exc}"
                        self.session.emit(Notice(level="warning", text=text))

    def has(self, event: str) -> bool:
        """Whether anybody wants to hear of it."""
        return any(True for _ in self._of(event))

    def _of(self, event: str) -> Iterator[SdkHook]:
        return (hook for hook in self._hooks if hook.event == event)

    def _now(self) -> JsonObject:
        return {"permission_mode": self.session.mode.value} if self.session is not None else {}


def _text_of(content: object) -> str:
    if isinstance(content, str):
        return content
    parts = content if isinstance(content, list | tuple) else ()
    return "\n".join(str(one.get("text", "")) for one in parts if isinstance(one, dict))
