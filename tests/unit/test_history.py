"""The conversation folded from events, and its repair."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from sandbox_agent.engine.history import INTERRUPTED, NO_OUTPUT, fold, repair, result_block
from sandbox_agent.events import AssistantMessage, Notice, ToolResultsMessage, UserMessage
from sandbox_agent.types import JsonObject, ToolResult, Usage


def text(value: str) -> JsonObject:
    return {"type": "text", "text": value}


def use(call: str) -> JsonObject:
    return {"type": "tool_use", "id": call, "name": "Read", "input": {}}


def result(call: str) -> JsonObject:
    return {"type": "tool_result", "tool_use_id": call, "content": "ok"}


def user(*blocks: JsonObject) -> JsonObject:
    return {"role": "user", "content": list(blocks)}


def assistant(*blocks: JsonObject) -> JsonObject:
    return {"role": "assistant", "content": list(blocks)}


def answer(*blocks: JsonObject) -> AssistantMessage:
    return AssistantMessage(content=blocks, stop_reason="tool_use", model="m", usage=Usage())


INTERRUPTED_A = {"type": "tool_result", "tool_use_id": "a", "content": INTERRUPTED, "is_error": True}


def test_events_fold_to_messages() -> None:
    """Only what was said and answered counts, and queued text joins the results before it."""
    events = [
        UserMessage(content=(text("do it"),)),
        Notice(level="info", text="x"),
        answer(text("ok"), use("a")),
        ToolResultsMessage(content=(result("a"),)),
        UserMessage(content=(text("also this"),)),
    ]

    assert [user(text("do it")), assistant(text("ok"), use("a")), user(result("a"), text("also this"))] == fold(events)


def test_sub_agents_do_not_show_in_their_parents_conversation() -> None:
    """Events of another agent are left out."""
    other = UserMessage(agent_id="a1", content=(text("mine"),))
    assert [user(text("do it"))] == fold([UserMessage(content=(text("do it"),)), other])


def test_empty_text_never_enters_the_conversation() -> None:
    """White space alone is not a block, and a message of nothing else is not a message."""
    events = [UserMessage(content=(text("x"),)), answer(text(" \n"), use("a")), answer(text("")), answer()]
    assert [user(text("x")), assistant(use("a"))] == fold(events)


def test_unknown_blocks_stay_as_they_came() -> None:
    """Thinking with its signature, and blocks of the future, go back unchanged and in order."""
    blocks = ({"type": "thinking", "thinking": "", "signature": "s"}, {"type": "from_2030", "x": [1]}, use("a"))
    assert [assistant(*blocks)] == fold([answer(*blocks)])


def test_thinking_alone_is_not_an_answer() -> None:
    """The API refuses an assistant message that ends in thinking."""
    thought = answer({"type": "thinking", "thinking": "hm", "signature": "s"})
    events = [UserMessage(content=(text("x"),)), thought, UserMessage(content=(text("y"),))]
    assert fold(events) == [user(text("x"), text("y"))]


def test_an_answer_cut_in_the_middle_of_thinking_ends_with_its_last_word() -> None:
    """What stands before is kept, thinking included."""
    thought = {"type": "thinking", "thinking": "hm", "signature": "s"}
    cut = {"type": "thinking", "thinking": "and th"}
    assert fold([answer(thought, text("a"), text(" "), cut)]) == [assistant(thought, text("a"))]


def test_results_are_never_empty() -> None:
    """An empty result gets a placeholder; empty text among blocks goes."""
    image = {"type": "image", "source": {}}
    assert result_block("a", ToolResult(" \n"))["content"] == NO_OUTPUT
    assert result_block("a", ToolResult((text(""),)))["content"] == NO_OUTPUT
    assert [image] == result_block("a", ToolResult((text(""), image)))["content"]


def test_a_missing_result_becomes_interrupted() -> None:
    """The call without a result is answered, its sibling keeps its own, in call order."""
    cut = [user(text("x")), assistant(use("a"), use("b")), user(result("b"))]
    fixed = repair(cut)

    assert [user(text("x")), assistant(use("a"), use("b")), user(INTERRUPTED_A, result("b"))] == fixed.messages
    assert fixed.changes == 1


def test_a_cut_at_the_end_is_answered() -> None:
    """No results at all after the last calls."""
    assert user(INTERRUPTED_A) == repair([user(text("x")), assistant(use("a"))]).messages[-1]


def test_orphans_and_strangers_go() -> None:
    """Results nobody asked for are dropped; results behind text move to the front."""
    messages = [user(text("x"), result("z")), assistant(use("a")), user(text("and"), result("a"), result("y"))]
    fixed = repair(messages)

    assert [user(text("x")), assistant(use("a")), user(result("a"), text("and"))] == fixed.messages
    assert fixed.changes >= 2


BLOCKS = st.one_of(
    st.sampled_from(["", " ", "hello"]).map(text),
    st.sampled_from("abcd").map(use),
    st.sampled_from("abcdz").map(result),
)


def _unique_uses(messages: list[JsonObject]) -> list[JsonObject]:
    """Ids are unique in a real record, and each role only holds its own kind of block."""
    count = 0
    for message in messages:
        kept = []
        for block in message["content"]:
            if block["type"] == "tool_use":
                count += 1
                block = block | {"id": f"{block['id']}{count}"}
            wrong = "tool_use" if message["role"] == "user" else "tool_result"
            if block["type"] != wrong:
                kept.append(block)
        message["content"] = kept
    return messages


@given(
    st.lists(
        st.builds(lambda r, c: {"role": r, "content": c}, st.sampled_from(["user", "assistant"]), st.lists(BLOCKS)),
        max_size=12,
    ).map(_unique_uses)
)
def test_whatever_was_recorded_repairs_to_something_valid(messages: list[JsonObject]) -> None:
    """Roles alternate from user on, nothing is empty, each call is answered next and in order, and repair is stable."""
    fixed = repair(messages).messages

    roles = [message["role"] for message in fixed]
    assert roles == ["user", "assistant"] * (len(roles) // 2) + ["user"] * (len(roles) % 2)
    for place, message in enumerate(fixed):
        assert message["content"]
        assert all(b["type"] != "text" or b["text"].strip() for b in message["content"])
        wanted = [b["id"] for b in message["content"] if b["type"] == "tool_use"]
        if message["role"] == "assistant":
            answered = fixed[place + 1]["content"] if place + 1 < len(fixed) else []
            assert wanted == [b["tool_use_id"] for b in answered if b["type"] == "tool_result"]
            assert wanted == [b["tool_use_id"] for b in answered[: len(wanted)]]
    assert (fixed, 0) == tuple(repair(fixed))
