"""The model's own questions to the person (AskUserQuestion), put through the program's permission callback: it answers
with the input of that tool, and `answers` in it, by the text of each question.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from sandbox_agent.frontends.sdk.wire import NoAnswerError, Wire
from sandbox_agent.tools.questions import Question, Reply
from sandbox_agent.types import JsonObject

NAME = "AskUserQuestion"


class CallbackQuestions:
    """The `Ask` of a driven session. Whatever is no clear answer is none; MCP servers ask nothing through it."""

    def __init__(self, wire: Wire, state: Callable[[str], None]) -> None:
        self._wire = wire
        self._state = state

    async def __call__(self, questions: Sequence[Question], *, agent_id: str) -> Sequence[Reply] | None:
        """See `Ask`."""
        if any(one.asker for one in questions):
            return None
        given: JsonObject = {"questions": [_as_json(one) for one in questions]}
        asked = {"subtype": "can_use_tool", "tool_name": NAME, "input": given, "tool_use_id": "question"}
        about = {"display_name": NAME, "title": questions[0].header, "description": questions[0].question[:500]}
        self._state("requires_action")
        try:
            answer = await self._wire.ask({**asked, **about})
        except NoAnswerError:
            return None
        finally:
            self._state("running")
        updated = answer.get("updatedInput")
        answers = updated.get("answers") if isinstance(updated, dict) else None
        if answer.get("behavior") != "allow" or not isinstance(answers, dict):
            return None
        return [_reply(one, answers.get(one.question)) for one in questions]


def _as_json(one: Question) -> JsonObject:
    options = [{"label": choice.label, "description": choice.description} for choice in one.choices]
    return {"question": one.question, "header": one.header, "options": options, "multiSelect": one.several}


def _reply(one: Question, answer: object) -> Reply:
    """Labels where they are some, several with commas between or as a list; else the person's own words."""
    labels = [choice.label for choice in one.choices]
    if isinstance(answer, str):
        named = [answer] if answer in labels else [part.strip() for part in answer.split(",")]
    elif isinstance(answer, list) and all(isinstance(part, str) for part in answer):
        named = answer
    else:
        return Reply()
    if named and all(part in labels for part in named) and (one.several or len(named) == 1):
        return Reply(tuple(dict.fromkeys(named)))
    return Reply(text=answer if isinstance(answer, str) else ", ".join(named))
