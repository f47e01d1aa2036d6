"""AskUserQuestion: a few questions with answers to choose from, put to the person."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any

from pydantic import Field, StringConstraints, field_validator, model_validator

from sandbox_agent.errors import ToolError
from sandbox_agent.prompts import prompt
from sandbox_agent.tools.base import ToolContext, ToolInput, build_tool
from sandbox_agent.tools.questions import Choice, Question, Reply
from sandbox_agent.types import JsonObject, Subject, ToolResult

Words = Annotated[str, StringConstraints(min_length=1, max_length=1000)]
MAX_REPLY_CHARS = 10_000


class OptionInput(ToolInput):
    """One answer to choose."""

    label: Annotated[str, StringConstraints(min_length=1, max_length=80)] = Field(description="One to five words.")
    description: Annotated[str, StringConstraints(max_length=1000)] = Field(
        default="", description="What choosing it means."
    )

    @model_validator(mode="before")
    @classmethod
    def _without_preview(cls, value: Any) -> Any:
        """A field that models send from habit; there is no place for previews here."""
        return {key: one for key, one in value.items() if key != "preview"} if isinstance(value, dict) else value


class QuestionInput(ToolInput):
    """One question."""

    question: Words = Field(description="The whole question.")
    header: Annotated[str, StringConstraints(min_length=1, max_length=12)] = Field(
        description="What it is about, at most 12 characters."
    )
    options: list[OptionInput] = Field(min_length=2, max_length=4, description="Answers that exclude each other.")
    multiSelect: bool = Field(default=False, description="More than one may be chosen.")

    @field_validator("options")
    @classmethod
    def _apart(cls, options: list[OptionInput]) -> list[OptionInput]:
        if len({option.label for option in options}) < len(options):
            raise ValueError("options with labels that differ")
        return options


class AskUserQuestionInput(ToolInput):
    """See prompts/tools/ask_user_question.md."""

    questions: list[QuestionInput] = Field(min_length=1, max_length=4)


async def run(value: AskUserQuestionInput, ctx: ToolContext) -> ToolResult:
    """Ask.

    Raises:
        ToolError: nobody is there to ask, or nobody answered; the text says how to go on.
    """
    if ctx.ask is None:
        raise ToolError(prompt("engine/nobody_to_ask"))
    questions = tuple(_question(one) for one in value.questions)
    try:
        replies = await ctx.ask(questions, agent_id=ctx.agent_id)
    except Exception as exc:
        raise ToolError(f"The question failed ({type(exc).__name__}). {prompt('engine/nobody_to_ask')}") from exc
    if replies is None or all(not reply.labels and not reply.text for reply in replies):
        raise ToolError(f"The person did not answer. {prompt('engine/nobody_to_ask')}")
    _check(questions, replies)
    told = [_told(question, reply) for question, reply in zip(questions, replies, strict=True)]
    meta = [_as_json(question, reply) for question, reply in zip(questions, replies, strict=True)]
    return ToolResult("The person answered.\n" + "\n".join(told), meta={"answers": meta})


def _question(value: QuestionInput) -> Question:
    choices = tuple(Choice(option.label, option.description) for option in value.options)
    return Question(value.question, value.header, choices, value.multiSelect)


def _check(questions: Sequence[Question], replies: Sequence[Reply]) -> None:
    """An embedding program may give anything; what does not fit the questions is no answer to them."""
    fits = len(questions) == len(replies) and all(
        {*reply.labels} <= {choice.label for choice in question.choices}
        and (question.several or len(reply.labels) <= 1)
        and len(reply.text or "") <= MAX_REPLY_CHARS
        for question, reply in zip(questions, replies, strict=False)
    )
    if not fits:
        raise ToolError(f"The answer did not fit the questions. {prompt('engine/nobody_to_ask')}")


def _told(question: Question, reply: Reply) -> str:
    chosen = "; ".join(reply.labels)
    words = f"in their own words: {reply.text}" if reply.text else ""
    answer = (
        "; ".join(part for part in (chosen, words) if part) or "(no answer: decide yourself, and name what you took)"
    )
    return f"- {question.header}: {question.question}\n  {answer}"


def _as_json(question: Question, reply: Reply) -> JsonObject:
    return {"question": question.question, "labels": list(reply.labels), "text": reply.text}


def _subject(value: AskUserQuestionInput, ctx: ToolContext) -> Subject:
    return Subject(summary="; ".join(question.header for question in value.questions))


TOOL = build_tool(
    name="AskUserQuestion",
    description=prompt("tools/ask_user_question"),
    input_model=AskUserQuestionInput,
    run=run,
    # It touches nothing, so it never keeps others from writing. Two at once would mix two conversations with a person.
    read_only=True,
    subject=_subject,
    # A person takes as long as it takes.
    timeout_s=None,
)
