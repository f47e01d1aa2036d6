"""What a hook of the program may say. A word that is not known is a failure of the hook, and never no opinion: a "Deny"
that means a deny must not let the call run.
"""

from __future__ import annotations

from sandbox_agent.frontends.sdk.wire import NoAnswerError
from sandbox_agent.types import JsonObject


def checked(answer: JsonObject) -> JsonObject:
    """The answer without its nulls, once all that decides something in it is known; other keys mean nothing.

    Raises:
        NoAnswerError: something is not; the text says what.
    """
    answer = _given(answer)
    said = answer.get("hookSpecificOutput", {})
    if not isinstance(said, dict):
        raise NoAnswerError("it gave a hookSpecificOutput that is no object")
    said = _given(said)
    _known("continue", answer, (True, False))
    _known("async", answer, (True, False))
    _known("decision", answer, ("block", "approve"))
    _known("permissionDecision", said, ("allow", "deny", "ask", "defer"))
    on_question = said.get("decision", {})
    if isinstance(on_question, dict) and on_question:
        _known("behavior", {"behavior": "", **on_question}, ("allow", "deny"))
    if not isinstance(said.get("updatedInput", {}), dict):
        raise NoAnswerError("it gave an updatedInput that is no object")
    return {**answer, "hookSpecificOutput": said}


def _given(fields: JsonObject) -> JsonObject:
    return {name: value for name, value in fields.items() if value is not None}


def _known(name: str, fields: JsonObject, values: tuple[object, ...]) -> None:
    value = fields.get(name, values[0])
    if value not in values or type(value) is not type(values[0]):
        said = ", ".join(str(one).lower() for one in values)
        raise NoAnswerError(f"it gave the {name} {value!r}, which is none of {said}")
