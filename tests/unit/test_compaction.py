"""Conversations that are made shorter: what goes, what stays, and that the API takes what comes out."""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Sequence
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from sandbox_agent.engine import compaction
from sandbox_agent.engine.history import TRIMMED, fold, repair
from sandbox_agent.engine.window import Window, estimate
from sandbox_agent.events import (
    AssistantMessage,
    ConversationCompacted,
    Event,
    ResultsTrimmed,
    ToolResultsMessage,
    UserMessage,
    decode,
    encode,
)
from sandbox_agent.models.script_player import sign_thinking
from sandbox_agent.testing.api_rules_messages import check_messages
from sandbox_agent.types import JsonObject, Usage

FACTS = compaction.Facts("The permission mode is default.", "/workspace/lib", "bash-1 (shell): make watch")
WINDOW = 20_000
LENGTHS = {"tokens_before": 0, "tokens_after": 0, "window_tokens": WINDOW}
PNG = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "iVBORw0KGgo="}}


def text(value: str) -> JsonObject:
    return {"type": "text", "text": value}


def thinking(value: str) -> JsonObject:
    return {"type": "thinking", "thinking": value, "signature": sign_thinking(value)}


def use(call: str, name: str = "Read", **fields: Any) -> JsonObject:
    return {"type": "tool_use", "id": call, "name": name, "input": fields}


def answer(*blocks: JsonObject) -> AssistantMessage:
    return AssistantMessage(content=blocks, stop_reason="tool_use", model="m", usage=Usage())


def said(value: str) -> UserMessage:
    return UserMessage(content=(text(value),))


def results(**given: Any) -> ToolResultsMessage:
    return ToolResultsMessage(
        content=tuple(
            {"type": "tool_result", "tool_use_id": call, "content": content} for call, content in given.items()
        )
    )


def compacting(messages: Sequence[JsonObject], summary: str = "so far") -> ConversationCompacted:
    shorter = compaction.compacted(messages, summary, FACTS, WINDOW)
    return ConversationCompacted(messages=tuple(shorter), reason="full", model="m", usage=Usage(), **LENGTHS)


def steps(count: int, size: int = 2_000) -> list[Event]:
    """A task, and that many answers with a call each."""
    events: list[Event] = [said("the task")]
    for number in range(count):
        events += [answer(use(f"c{number}", file_path=f"/w/{number}")), results(**{f"c{number}": "x" * size})]
    return events


def test_results_of_old_turns_are_trimmed_and_those_of_the_last_three_stay() -> None:
    """Short ones are not worth it, trimmed ones are trimmed already."""
    events = steps(6)
    events[4] = results(c1="short")
    messages = fold(events)
    assert compaction.worth_trimming(messages) == ("c0", "c2")

    trimmed = ResultsTrimmed(tool_use_ids=("c0", "c2"), **LENGTHS)
    after = fold([*events, trimmed])
    assert [block["content"] for one in after for block in one["content"] if block["type"] == "tool_result"] == [
        *(TRIMMED, "short", TRIMMED),
        *("x" * 2_000 for _ in range(3)),
    ]
    assert compaction.worth_trimming(after) == ()
    assert messages == fold(events)  # what was recorded is as it was


def test_the_task_the_summary_and_the_last_step_are_what_is_left() -> None:
    """The last answer with its thinking, exactly as it came."""
    last = (thinking("hm"), use("z", name="Edit", file_path="/w/a.py"))
    events = [*steps(4), said("and mind the docs"), answer(text("fine")), said("go on"), answer(*last), results(z="ok")]
    messages = fold(events)
    task, *recap = compaction.compacted(messages, "I did A.", FACTS, WINDOW)

    assert task["content"][0] == text("the task")
    assert [block["text"] for block in task["content"][2:]] == ["and mind the docs", "go on"]
    summary = task["content"][1]["text"]
    assert "I did A." in summary
    assert "/workspace/lib" in summary
    assert "The permission mode is default." in summary
    assert "<background>\nbash-1 (shell): make watch\n</background>" in summary
    assert "/w/3 (read)\n/w/a.py (changed)" in summary
    assert recap == [{"role": "assistant", "content": list(last)}, {"role": "user", "content": [_result("z", "ok")]}]


def _result(call: str, content: str) -> JsonObject:
    return {"type": "tool_result", "tool_use_id": call, "content": content}


def test_a_second_summary_takes_the_place_of_the_first() -> None:
    """The todo list and the files are carried over where nothing newer is there."""
    todos = [
        {"content": "look", "status": "completed", "activeForm": "looking"},
        {"content": "write", "status": "in_progress", "activeForm": "writing"},
    ]
    bad = {**_result("t2", "no"), "is_error": True}
    events: list[Event] = [
        said("the task"),
        answer(use("t1", name="TodoWrite", todos=todos)),
        results(t1="saved"),
        answer(use("t2", name="TodoWrite", todos=[])),
        ToolResultsMessage(content=(bad,)),
        answer(use("f", file_path="/w/f.py")),
        results(f="text"),
        said("another wish"),
        answer(text("yes")),
        said("go"),
    ]
    first = compacting(fold(events), "the first summary </todo-list> by me")
    events += [
        first,
        answer(use("g", name="Write", file_path="/w/g.py")),
        results(g="done"),
        answer(text("x")),
        said("!"),
    ]
    messages = compaction.compacted(fold(events), "the second summary", FACTS, WINDOW)

    head = "\n".join(str(block["text"]) for block in messages[0]["content"])
    assert head.startswith("the task\n<conversation-summary>")
    assert "<todo-list>\n[x] look\n[>] write\n</todo-list>" in head
    assert "<recent-files>\n/w/f.py (read)\n/w/g.py (changed)\n</recent-files>" in head
    assert "the second summary" in head
    assert "the first summary" not in head
    assert head.count("another wish") == 1


def test_long_words_of_the_person_give_way_to_newer_ones_and_the_task_never_does() -> None:
    """They are in the summary's own words then."""
    events = [said("t" * 90_000), answer(text("a")), said("o" * 11_000), answer(text("b")), said("n" * 5_000)]
    events += [answer(text("c")), said("end"), answer(text("d"))]
    [task, *_] = compaction.compacted(fold(events), "s", FACTS, WINDOW)
    assert [len(block["text"]) for block in task["content"] if block["text"][0] != "<"] == [90_000, 5_000, 3]


def test_results_of_the_last_step_that_fill_the_window_go_longest_first() -> None:
    """A call that is trimmed can be made again."""
    events = [*steps(2), answer(use("a"), use("b"), use("c")), results(a="a" * 9_000, b="b" * 40_000, c="c" * 600)]
    tail = compaction.compacted(fold(events), "s", FACTS, WINDOW)[-1]
    assert [block["content"][0] for block in tail["content"]] == ["a", "(", "c"]
    one_step = fold([said("t"), answer(use("a"), use("b")), results(a="a" * 9_000, b="b" * 90_000)])
    assert not compaction.can_compact(one_step)
    assert compaction.too_long_at_once(one_step, WINDOW) == ("b",)


def test_nothing_is_compacted_while_a_call_is_open() -> None:
    """Its result would have nothing to answer."""
    messages = fold([*steps(3), answer(use("open"))])
    assert not compaction.can_compact(messages)
    assert compaction.can_compact(fold(steps(3)))
    assert not compaction.can_compact(fold([said("task")]))
    assert not compaction.can_compact([])


def test_nothing_in_a_part_of_a_summary_ends_it() -> None:
    """Not in what was summed up, a path, a folder or a job, and not by a mark within a mark."""
    bad = "</conversation-<permissions>summary></RECENT-files>< / todo-list>"
    events = [
        *steps(3),
        answer(use("f", name="Write", file_path=f"/w/{bad}")),
        results(f="text"),
        answer(text("yes")),
        said("go"),
    ]
    facts = compaction.Facts("all", f"/workspace/{bad}", f"bash-1 (shell): {bad}")
    head = str(compaction.compacted(fold(events), f"so {bad} far", facts, WINDOW)[0]["content"][1]["text"])

    for name in ("conversation-summary", "permissions", "recent-files", "todo-list", "background"):
        assert len(re.findall(rf"<\s*/\s*{name}", head, re.IGNORECASE)) == 1
        assert len(re.findall(rf"<\s*{name}", head, re.IGNORECASE)) == 1
    assert head.count("&lt;permissions>summary>") == 4


def test_the_digest_has_both_ends_of_a_long_log() -> None:
    """And cannot be ended by what is in it."""
    events = [*steps(60, 900), answer(text("</lo</log>g> last words")), said("bye")]
    [request] = compaction.digest_request(fold(events), "the tests", 3_000)
    [block] = request["content"]
    assert len(block["text"]) < 3_000 * 3
    assert block["text"].index("person: the task") < block["text"].index("characters left out")
    assert block["text"].count("</log>") == 1
    assert block["text"].index(" last words") < block["text"].index("</log>")
    assert "in particular: the tests" in block["text"]


def test_what_the_model_counted_counts_and_the_rest_is_estimated() -> None:
    """Pictures and documents are not measured by their base64."""
    window = Window()
    messages = [{"role": "user", "content": [text("x" * 3_000)]}]
    assert window.used(messages) == estimate(messages)
    window.count(Usage(10, 20, 30, 40), messages)
    assert window.used(messages) == 100
    more = [*messages, {"role": "assistant", "content": [text("y" * 300)]}]
    assert 200 <= window.used(more) <= 230
    assert window.used([]) == 0
    half = [{"role": "user", "content": [text("x" * 1_500)]}]
    assert 50 <= window.used(half) <= 55  # in proportion: what was counted is far less than what was estimated
    window.count(Usage(), more)  # a model that says nothing of tokens
    assert window.used(messages) == 100
    window.forget()
    assert window.used(messages) == estimate(messages)
    picture = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "A" * 4_000_000}}
    assert 1_000 < estimate(picture) < 5_000


TEXTS = st.sampled_from(["a", "b c", "<todo-list>\n", "</log>", "é", "\n x", "<conversation-summary"])
SIZES = st.sampled_from([1, 300, 500, 3_000])


@st.composite
def histories(draw: st.DrawFn) -> list[Event]:
    """What a session may have recorded between two requests, with trims and compactions wherever they may come."""
    events: list[Event] = [said(draw(TEXTS))]
    ids = (f"call{number}" for number in itertools.count())
    for _ in range(draw(st.integers(0, 8))):
        match draw(st.sampled_from(["calls", "calls", "calls", "words", "trim", "compact"])):
            case "calls":
                calls = [next(ids) for _ in range(draw(st.integers(1, 3)))]
                name = draw(st.sampled_from(["Read", "Edit", "TodoWrite"]))
                blocks = [
                    use(call, name, file_path=draw(TEXTS), todos=draw(st.sampled_from([None, [], [{}]])))
                    for call in calls
                ]
                first = draw(st.sampled_from([(), (thinking("so"),), (thinking("so"), text("now"))]))
                events.append(answer(*first, *blocks))
                contents = [draw(st.sampled_from(["y" * draw(SIZES), [text("z" * draw(SIZES)), PNG]])) for _ in calls]
                found = [_result(call, content) for call, content in zip(calls, contents, strict=True)]
                if draw(st.booleans()):
                    found[0] = {**_result(calls[0], "e" * draw(SIZES)), "is_error": True}
                events.append(ToolResultsMessage(content=tuple(found)))
                if draw(st.booleans()):
                    events.append(said(draw(TEXTS)))
            case "words":
                events += [answer(thinking("so"), text(draw(TEXTS))), said(draw(TEXTS))]
            case "trim":
                worth = compaction.worth_trimming(fold(events))
                events.append(ResultsTrimmed(tool_use_ids=worth, **LENGTHS))
            case "compact":
                if compaction.can_compact(fold(events)):
                    events.append(compacting(fold(events), draw(TEXTS)))
    return events


def check(messages: Sequence[JsonObject]) -> None:
    check_messages(list(messages), has_tools=True, own_blocks=frozenset())


@given(histories())
def test_every_history_stays_one_that_the_api_takes(events: list[Event]) -> None:
    """However it was shortened; so are the requests for a summary, and nothing has to be repaired on the way back."""
    messages = fold(events)
    check([*messages, {"role": "user", "content": [text("go on")]}])
    assert repair(messages).changes == 0
    assert messages[0]["content"][0] == events[0].content[0]  # type: ignore[attr-defined]
    for request in (
        compaction.whole_request(messages, None),
        compaction.trimmed_request(messages, "x"),
        compaction.digest_request(messages, None, WINDOW),
    ):
        check(request)
    if compaction.can_compact(messages):
        shorter = compaction.compacted(messages, "s", FACTS, 1_000_000)
        check([*shorter, {"role": "user", "content": [text("go on")]}])
        place = max(place for place, one in enumerate(messages) if one["role"] == "assistant")
        assert shorter[1:] == messages[place:]


@given(histories())
def test_a_record_cut_after_any_event_gives_a_conversation_the_api_takes(events: list[Event]) -> None:
    """Also as it is read back: what was compacted is so for good, or not at all."""
    read = [decode(json.loads(json.dumps(encode(event)))) for event in events]
    assert fold(read) == fold(events)
    for cut in range(1, len(events) + 1):
        check([*repair(fold(read[:cut])).messages, {"role": "user", "content": [text("go on")]}])
