"""Questions of the gate, answered by the program's permission callback."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from sandbox_agent.engine.session import ApprovalAnswer, ApprovalRequest, Session
from sandbox_agent.engine.steering import set_mode
from sandbox_agent.errors import PolicyError
from sandbox_agent.events import Notice
from sandbox_agent.frontends.sdk.wire import NoAnswerError, Wire
from sandbox_agent.policy.importing import as_rule
from sandbox_agent.types import JsonObject, Mode, Verdict


@dataclass(slots=True)
class Callback:
    """The approver of a session. `consented` is True once it has let something run."""

    wire: Wire
    state: Callable[[str], None]
    """Told `requires_action` while a question is open, and `running` after it."""
    session: Session | None = None
    consented: bool = False

    async def __call__(self, question: ApprovalRequest) -> ApprovalAnswer:
        """Ask; whatever is no clear yes is a no."""
        self.state("requires_action")
        try:
            answer = await self.wire.ask(_asked(question))
        except NoAnswerError as exc:
            return ApprovalAnswer(False, reason=f"nobody could be asked: {exc}")
        finally:
            self.state("running")
        if answer.get("behavior") == "allow":
            return self._allowed(question, answer)
        message = answer.get("message")
        reason = message if isinstance(message, str) and message else "the program gave no reason"
        if answer.get("behavior") != "deny":
            reason = "the program gave an answer that is neither allow nor deny"
        elif answer.get("interrupt") is True and self.session is not None:
            self.session.interrupt()
        return ApprovalAnswer(False, reason=reason)

    def _allowed(self, question: ApprovalRequest, answer: JsonObject) -> ApprovalAnswer:
        updated = answer.get("updatedInput")
        if updated is not None and not isinstance(updated, dict):
            return ApprovalAnswer(False, reason="the program gave an updated input that is no object")
        updates = answer.get("updatedPermissions")
        for update in updates if isinstance(updates, list) else ():
            self._update(update)
        self.consented = True
        # It always comes; what is as it was shown is no other input.
        return ApprovalAnswer(True, updated_input=None if updated == question.input else updated)

    def _update(self, update: object) -> None:
        """What the program wants to hold from now on. It holds for this session, wherever it was meant to be kept."""
        session = self.session
        if session is None or not isinstance(update, dict):
            return
        try:
            match update.get("type"), update.get("behavior"):
                case "setMode", _:
                    set_mode(session, Mode(str(update.get("mode"))))
                    return
                case "addRules", "allow":
                    for rule in update.get("rules") or ():
                        taken = as_rule(_rule_text(rule), Verdict.ALLOW)
                        if taken.rule is None:
                            raise PolicyError(taken.note or "it is not known here")
                        session.rights.policy = session.policy.with_allow(taken.rule)
                    if update.get("destination") in (None, "session"):
                        return
                    text = "rules of the program hold for this session only; nothing is written to settings"
                case kind, behavior:
                    text = f"the program's update {kind} {behavior or ''}".rstrip() + " is not known here; left out"
        except (PolicyError, ValueError) as exc:
            text = f"a permission update of the program was left out: {exc}"
        session.emit(Notice(level="warning", text=text))


def _asked(question: ApprovalRequest) -> JsonObject:
    asked: JsonObject = {
        "subtype": "can_use_tool",
        "tool_name": question.tool,
        "input": question.input,
        "tool_use_id": question.call_id or "none",
        "decision_reason": question.decision.reason,
        "title": f"{question.tool}: {question.subject.summary}"[:500],
        "display_name": question.tool,
        "description": question.decision.reason,
    }
    if question.suggested_rules:
        rules = [_rule_parts(rule) for rule in question.suggested_rules]
        update = {"type": "addRules", "rules": rules, "behavior": "allow", "destination": "session"}
        asked["permission_suggestions"] = [update]
    return asked


def _rule_parts(rule: str) -> JsonObject:
    tool, bracket, inner = rule.partition("(")
    return {"toolName": tool, "ruleContent": inner.removesuffix(")")} if bracket else {"toolName": tool}


def _rule_text(rule: object) -> str:
    if not isinstance(rule, Mapping):
        return ""
    content = rule.get("ruleContent")
    return f"{rule.get('toolName')}({content})" if content else str(rule.get("toolName"))
