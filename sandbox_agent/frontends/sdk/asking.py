"""Questions of the gate, answered by the program's permission callback."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass

from sandbox_agent.engine.approval import ApprovalAnswer, ApprovalRequest
from sandbox_agent.engine.session import Session
from sandbox_agent.errors import PolicyError
from sandbox_agent.frontends.sdk import updates
from sandbox_agent.frontends.sdk.wire import NoAnswerError, Wire
from sandbox_agent.types import JsonObject


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
        if self.session is not None:
            try:
                updates.take(self.session, answer.get("updatedPermissions"))
            except PolicyError as exc:
                return ApprovalAnswer(False, reason=str(exc))
        self.consented = True
        # It always comes; what is as it was shown is no other input.
        return ApprovalAnswer(True, updated_input=None if _same(updated, question.input) else updated)


def _same(one: object, other: object) -> bool:
    """As JSON: 1 and true are not."""
    return json.dumps(one, sort_keys=True) == json.dumps(other, sort_keys=True)


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
    if question.agent_id != "main":
        asked["agent_id"] = question.agent_id
    if question.suggested_rules:
        rules = [_rule_parts(rule) for rule in question.suggested_rules]
        update = {"type": "addRules", "rules": rules, "behavior": "allow", "destination": "session"}
        asked["permission_suggestions"] = [update]
    return asked


def _rule_parts(rule: str) -> JsonObject:
    tool, bracket, inner = rule.partition("(")
    return {"toolName": tool, "ruleContent": inner.removesuffix(")")} if bracket else {"toolName": tool}
