"""What the program wants to hold from now on: rules and the mode, as they come with an answer to a question.

It holds for this session, wherever it was meant to be kept: nothing is written to settings.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from sandbox_agent.engine.session import Session
from sandbox_agent.engine.steering import set_mode
from sandbox_agent.errors import PolicyError
from sandbox_agent.events import Notice
from sandbox_agent.policy.importing import NO_SUCH_TOOL, as_rule
from sandbox_agent.types import JsonObject, Mode, Verdict

LOCATION = "the program"
_VERDICTS = {"allow": Verdict.ALLOW, "ask": Verdict.ASK, "deny": Verdict.DENY}
_KINDS = ("addRules", "replaceRules", "removeRules")


def take(session: Session, updates: object) -> None:
    """Do what the updates say. One that would only widen what runs is left out, and said, where it cannot be had.

    Raises:
        PolicyError: one that would forbid something, or have it asked, cannot be had: what came with it must not run.
    """
    for update in updates if isinstance(updates, list) else ():
        if not isinstance(update, dict):
            continue
        try:
            _one(session, update)
        except (PolicyError, ValueError) as exc:
            if update.get("behavior") in ("deny", "ask") and update.get("type") != "removeRules":
                raise PolicyError(f"a permission update of the program cannot be had: {exc}") from exc
            _tell(session, f"a permission update of the program was left out: {exc}", "warning")


def _one(session: Session, update: JsonObject) -> None:
    kind, behavior = str(update.get("type")), str(update.get("behavior"))
    if kind == "setMode":
        set_mode(session, Mode(str(update.get("mode"))))
        return
    verdict = _VERDICTS.get(behavior)
    if kind not in _KINDS or verdict is None:
        raise PolicyError(f"there is no {kind} {behavior if verdict is None else ''}".rstrip() + " here")
    policy, rules = session.policy, list(_rules(session, update, verdict))
    if kind == "replaceRules":
        policy = policy.without_rules(verdict, location=LOCATION)
    for rule in rules:
        if kind == "removeRules":
            policy = policy.without_rules(verdict, location=LOCATION, rule=rule)
        else:
            policy = policy.with_rule(rule, verdict, location=LOCATION)
    session.rights.policy = policy
    done = {"addRules": "added", "replaceRules": "replaced its", "removeRules": "took back"}[kind]
    _tell(session, f"the program {done} {behavior} rules for this session: {', '.join(rules) or 'none'}", "info")


def _rules(session: Session, update: JsonObject, verdict: Verdict) -> Iterator[str]:
    given = update.get("rules")
    for rule in given if isinstance(given, list) else ():
        taken = as_rule(_text(rule), verdict)
        if taken.rule is not None:
            yield taken.rule
        elif taken.note == NO_SUCH_TOOL:
            _tell(session, f"the rule {taken.entry!r} of the program is left out: {taken.note}", "warning")
        else:
            raise PolicyError(f"the rule {taken.entry!r}: {taken.note}")


def _text(rule: object) -> str:
    if not isinstance(rule, Mapping):
        return ""
    content = rule.get("ruleContent")
    return f"{rule.get('toolName')}({content})" if content else str(rule.get("toolName"))


def _tell(session: Session, text: str, level: str) -> None:
    session.emit(Notice(level="warning" if level == "warning" else "info", text=text))
