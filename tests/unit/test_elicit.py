"""What a server asks of the person: every kind of field, and what counts as an answer to it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from sandbox_agent.engine.elicit import MAX_CHOICES, MAX_FIELDS, elicited
from sandbox_agent.tools.questions import Question, Reply

TITLED = [{"const": "r", "title": "Red"}, {"const": "g", "title": "Green"}]


class Person:
    """Who answers with these replies, one after the other; None is nobody."""

    def __init__(self, *replies: Reply | None) -> None:
        self.asked: list[list[Question]] = []
        self._replies = list(replies)

    async def __call__(self, questions: Sequence[Question], *, agent_id: str) -> Sequence[Reply] | None:
        self.asked.append(list(questions))
        found = [self._replies.pop(0) for _ in questions]
        return None if None in found else [one for one in found if one is not None]


async def _asked(person: Person, message: str = "Which?", **fields: Any) -> Any:
    schema = {"type": "object", "properties": fields, "required": list(fields)}
    return await elicited("evil", message, schema, person, "main")


@pytest.mark.parametrize(
    ("field", "reply", "value"),
    [
        ({"type": "string"}, Reply(text="my own words"), "my own words"),
        ({"type": "string", "minLength": 3}, Reply(text="ab"), None),
        ({"type": "string", "maxLength": 1}, Reply(text="ab"), None),
        ({"type": "integer"}, Reply(text="5"), 5),
        ({"type": "integer"}, Reply(text="5.5"), None),
        ({"type": "integer", "minimum": 6}, Reply(text="5"), None),
        ({"type": "number"}, Reply(text="5.5"), 5.5),
        ({"type": "number", "maximum": 5}, Reply(text="5.5"), None),
        ({"type": "number"}, Reply(text="nan"), None),
        ({"type": "number"}, Reply(text="1e999"), None),
        ({"type": "boolean"}, Reply(labels=("yes",)), True),
        ({"type": "boolean"}, Reply(text="No"), False),
        ({"type": "boolean"}, Reply(text="perhaps"), None),
        ({"type": "string", "enum": ["r", "g"]}, Reply(labels=("g",)), "g"),
        ({"type": "string", "enum": ["r", "g"]}, Reply(text="blue"), None),
        ({"type": "string", "enum": ["r", "g"], "enumNames": ["Red", "Green"]}, Reply(labels=("Green",)), "g"),
        ({"type": "string", "oneOf": TITLED}, Reply(labels=("Red",)), "r"),
        ({"type": "string", "oneOf": TITLED}, Reply(text="green"), "g"),
        ({"type": "array", "items": {"enum": ["a", "b", "c"]}}, Reply(labels=("a", "c")), ["a", "c"]),
        ({"type": "array", "items": {"anyOf": TITLED}}, Reply(labels=("Red", "Green")), ["r", "g"]),
        ({"type": "array", "items": {"anyOf": TITLED}, "minItems": 2}, Reply(labels=("Red",)), None),
        ({"type": "array", "items": {"type": "string"}}, Reply(text="x"), None),
        ({"type": "string"}, Reply(), None),
    ],
)
async def test_an_answer_is_of_the_kind_that_was_asked_for(field: Any, reply: Reply, value: Any) -> None:
    """What is none, is no answer, and then the whole form has none."""
    found = await _asked(Person(reply), one=field)

    assert found == (None if value is None else {"one": value})


async def test_choices_are_shown_by_their_titles() -> None:
    """Several may be taken where the server takes several."""
    person = Person(Reply(labels=("Red",)), Reply(labels=("Red",)))

    await _asked(person, one={"oneOf": TITLED}, more={"type": "array", "items": {"anyOf": TITLED}})

    (questions,) = person.asked
    assert [[choice.label for choice in question.choices] for question in questions] == [["Red", "Green"]] * 2
    assert [question.several for question in questions] == [False, True]
    assert questions[0].asker == "the MCP server evil"


async def test_a_long_form_is_put_in_parts_and_too_long_a_one_is_not_put() -> None:
    """Four questions at once; a server that asks for more than anybody reads gets a no."""
    person = Person(*[Reply(text="x")] * 6)

    six: dict[str, Any] = {f"f{n}": {"type": "string"} for n in range(6)}
    assert await _asked(person, **six) == dict.fromkeys(six, "x")
    assert [len(questions) for questions in person.asked] == [4, 2]
    too_much: list[dict[str, Any]] = [
        {f"f{n}": {"type": "string"} for n in range(MAX_FIELDS + 1)},
        {"one": {"enum": [str(n) for n in range(MAX_CHOICES + 1)]}},
        {},
    ]
    for fields in too_much:
        nobody = Person()
        assert await _asked(nobody, **fields) is None
        assert nobody.asked == []


async def test_a_long_message_does_not_hide_what_is_asked_for() -> None:
    """It is cut, and says so; the field and the server are there."""
    person = Person(Reply(text="x"))

    await _asked(person, "m" * 10_000, key={"type": "string", "title": "Your door code", "default": "d"})

    text = person.asked[0][0].question
    assert text.startswith("The MCP server evil asks: mmm")
    assert text.endswith("[... 10,000 characters]\nYour door code (without an answer: d)")


async def test_a_default_may_stand_for_an_answer_and_nothing_else_may() -> None:
    """Nobody there is a no, whatever has a default."""
    fields: dict[str, Any] = {"one": {"type": "string", "default": "d"}, "two": {"type": "string"}}

    assert await _asked(Person(Reply(), Reply(text="x")), **fields) == {"two": "x"}
    assert await _asked(Person(Reply(text="x"), Reply()), **fields) is None
    assert await _asked(Person(None, None), **fields) is None
