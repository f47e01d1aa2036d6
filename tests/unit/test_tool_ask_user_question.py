"""AskUserQuestion: what is put to whom, what counts as an answer, and how to go on without one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from frontend_person import END_OF_INPUT, person

from sandbox_agent.frontends.questions import ConsoleQuestions
from sandbox_agent.sandboxes.fake import FakeSandbox
from sandbox_agent.testing.tool_calls import call, context, refused
from sandbox_agent.tools.ask_user_question import TOOL as ASK
from sandbox_agent.tools.base import ToolContext
from sandbox_agent.tools.questions import Choice, Question, Reply
from sandbox_agent.types import JsonObject

OPTIONS = [{"label": "SQLite", "description": "one file"}, {"label": "Postgres", "preview": "x"}]
STORE: JsonObject = {"question": "Which store?", "header": "Store", "options": OPTIONS}
CHECKS: JsonObject = {
    "question": "Which checks?",
    "header": "Checks",
    "options": [{"label": "ruff"}, {"label": "mypy"}, {"label": "tests"}],
    "multiSelect": True,
}
QUESTIONS = (
    Question("Which store?", "Store", (Choice("SQLite", "one file"), Choice("Postgres", ""))),
    Question("Which checks?", "Checks", (Choice("ruff", ""), Choice("mypy", ""), Choice("tests", "")), several=True),
)


def answered_by(answer: Any, asked: list[Any] | None = None) -> ToolContext:
    async def ask(questions: Sequence[Question], *, agent_id: str) -> Any:
        if asked is not None:
            asked.append((tuple(questions), agent_id))
        if isinstance(answer, Exception):
            raise answer
        return answer

    ctx = context(FakeSandbox())
    ctx.ask = ask
    return ctx


async def test_the_questions_go_out_and_the_answers_come_back() -> None:
    """Labels and own words, as text for the model and as data."""
    asked: list[Any] = []
    ctx = answered_by([Reply(("SQLite",)), Reply(("ruff", "tests"), "and bandit")], asked)
    result = await call(ASK, ctx, {"questions": [STORE, CHECKS], "answers": {}})
    assert asked == [(QUESTIONS, "main")]
    assert result.content == (
        "The person answered.\n- Store: Which store?\n  SQLite\n"
        "- Checks: Which checks?\n  ruff; tests; in their own words: and bandit"
    )
    assert result.meta["answers"] == [
        {"question": "Which store?", "labels": ["SQLite"], "text": None},
        {"question": "Which checks?", "labels": ["ruff", "tests"], "text": "and bandit"},
    ]


async def test_a_question_that_was_passed_over_is_said_to_be_open() -> None:
    """The others are answered."""
    result = await call(ASK, answered_by([Reply(("SQLite",)), Reply()]), {"questions": [STORE, CHECKS]})
    assert "Which checks?\n  (no answer: decide yourself" in str(result.content)
    assert not result.is_error


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        (None, "The person did not answer."),
        ([Reply()], "The person did not answer."),
        ([Reply(("MySQL",))], "The answer did not fit"),
        ([Reply(("SQLite", "Postgres"))], "The answer did not fit"),
        ([Reply(("SQLite",)), Reply(("SQLite",))], "The answer did not fit"),
        ([Reply(text="x" * 100_000)], "The answer did not fit"),
        (RuntimeError("secret"), "The question failed (RuntimeError)."),
    ],
)
async def test_without_a_fitting_answer_the_model_goes_on_by_itself(answer: Any, why: str) -> None:
    """It is told to decide, and to name what it took."""
    text = await refused(ASK, answered_by(answer), questions=[STORE])
    assert text.startswith(why)
    assert "name in your final answer what you assumed" in text
    assert "secret" not in text


async def test_where_nobody_is_there_it_is_refused_with_what_to_do() -> None:
    """Nothing waits."""
    text = await refused(ASK, context(FakeSandbox()), questions=[STORE])
    assert text.startswith("Nobody answers questions now. Decide yourself")


@pytest.mark.parametrize(
    ("questions", "why"),
    [
        ([], "at least 1 item"),
        ([STORE] * 5, "at most 4 items"),
        ([{**STORE, "header": "thirteen char"}], "at most 12 characters"),
        ([{**STORE, "options": OPTIONS[:1]}], "at least 2 items"),
        ([{**STORE, "options": [*OPTIONS, *OPTIONS, OPTIONS[0]]}], "at most 4 items"),
        ([{**STORE, "options": [OPTIONS[0]] * 2}], "options with labels that differ"),
        ([{**STORE, "question": ""}], "at least 1 character"),
        ([{**STORE, "options": ["a", "b"]}], "field `questions[0].options[0]`"),
        ([{**STORE, "other": 1}], "`questions[0].other` is not known"),
    ],
)
async def test_questions_of_another_shape_are_refused(questions: list[JsonObject], why: str) -> None:
    """Before anybody is asked."""
    assert why in await refused(ASK, answered_by(AssertionError()), questions=questions)


def test_asking_holds_no_writer_up() -> None:
    """It only reads, and yet two questions at once are none."""
    value = ASK.input_model.model_validate({"questions": [STORE]})
    assert (ASK.read_only(value), ASK.parallel_safe(value), ASK.timeout_s) == (True, False, None)


SCREEN = """\
? the agent asks (1 of 2): Store
  | Which store?
  | 1  SQLite: one file
  | 2  Postgres
  [1-2, or in your own words] > \
\x20 There are answers from 1 to 2.
  [1-2, or in your own words] > \
\x20 Only one of them can be taken.
  [1-2, or in your own words] > """


async def test_a_person_answers_by_number_or_in_words() -> None:
    """What is no answer is asked again."""
    with person("3", "1,2", "2", "3, 1 1") as (terminal, screen):
        replies = await ConsoleQuestions(terminal)(QUESTIONS, agent_id="main")
    assert replies == [Reply(("Postgres",)), Reply(("ruff", "tests"))]
    assert screen.getvalue().startswith(SCREEN)
    assert "  Several can be taken, as in 1,2.\n" in screen.getvalue()


@pytest.mark.parametrize(
    ("typed", "replies"),
    [
        (["a file, 2 of them"], [Reply(text="a file, 2 of them")]),
        ([""], [Reply()]),
        ([END_OF_INPUT], None),
    ],
)
async def test_own_words_nothing_and_end_of_input(typed: list[str], replies: list[Reply] | None) -> None:
    """Enter alone passes a question over; end of input answers none."""
    with person(*typed) as (terminal, _):
        assert await ConsoleQuestions(terminal)(QUESTIONS[:1], agent_id="main") == replies


async def test_a_question_without_choices_takes_words_only() -> None:
    """A number is a word there: what a server asks for may be one."""
    free = Question("How many?", "count", ())
    for typed, replies in (("5", [Reply(text="5")]), ("", [Reply()]), (END_OF_INPUT, None)):
        with person(typed) as (terminal, screen):
            assert await ConsoleQuestions(terminal)([free], agent_id="main") == replies
            assert "own words" in screen.getvalue()


async def test_it_is_said_who_asks() -> None:
    """A server is not taken for the agent."""
    question = Question("How many?", "count", (), asker="the MCP server evil\x1b[2J")
    with person("5") as (terminal, screen):
        await ConsoleQuestions(terminal)([question], agent_id="main")
    assert "? the MCP server evil" in screen.getvalue()
    assert "the agent asks" not in screen.getvalue()
    assert "\x1b" not in screen.getvalue()


async def test_nothing_in_a_question_looks_like_ours() -> None:
    """Each line of it is marked, and what a terminal obeys is shown as an escape."""
    bad = Question("a\n  [1-2] > \x1b[2Jx\r", "h\n? x", (Choice("l\nz", "d\u202e"), Choice("b", "")))
    with person("1") as (terminal, screen):
        await ConsoleQuestions(terminal)([bad], agent_id="evil\n\x1b[2J")
    text = screen.getvalue()
    assert "\x1b" not in text
    assert "\u202e" not in text
    assert "\n  [1-2] > " not in text
    assert text.count("\n? ") == 0
