"""The scripted model: plays turns, checks what happened, and says where a script is wrong."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from sandbox_agent import registry
from sandbox_agent.errors import ConfigError, ModelError, ModelOverloadedError, ModelRejectedError
from sandbox_agent.models.base import Answer, BlockDone, Model, ModelEvent, ModelRequest, TextPiece, ThinkingPiece
from sandbox_agent.models.scripted import FunctionModel, ScriptedModel, create
from sandbox_agent.types import JsonObject, Usage

TASK: JsonObject = {
    "role": "user",
    "content": [{"type": "text", "text": "a reminder"}, {"type": "text", "text": "fix it"}],
}
REQUEST = ModelRequest(messages=(TASK,))


async def collect(model: Model, request: ModelRequest = REQUEST) -> list[ModelEvent]:
    return [event async for event in model.stream(request)]


async def ask(model: Model, request: ModelRequest = REQUEST) -> Answer:
    answer = (await collect(model, request))[-1]
    assert isinstance(answer, Answer)
    return answer


def after(*results: str | tuple[str, bool] | list[JsonObject]) -> ModelRequest:
    """A request whose last message brings results: text, text with is_error, or content blocks."""
    blocks: list[JsonObject] = []
    for number, said in enumerate(results):
        block: JsonObject = {"type": "tool_result", "tool_use_id": f"t{number}"}
        if isinstance(said, tuple):
            block |= {"content": said[0], "is_error": said[1]}
        else:
            block["content"] = said
        blocks.append(block)
    return ModelRequest(messages=(TASK, {"role": "assistant", "content": "..."}, {"role": "user", "content": blocks}))


def write(folder: Path, text: str) -> str:
    path = folder / "script.yaml"
    path.write_text(text, encoding="utf-8")
    return str(path)


async def test_a_file_of_turns_is_played_in_order(tmp_path: Path) -> None:
    """Long and short form of calls, text, stop reasons and usage, as the registry loads it."""
    path = write(
        tmp_path,
        """
        - text: I look first.
          tools:
            - {name: Read, input: {file_path: a.py}}
            - Grep: {pattern: total}
            - TodoWrite:
        - text: "Done: {{task}}"
          usage: {input_tokens: 5, output_tokens: 7}
        """,
    )
    model = registry.load("models", "scripted").create(path)
    first, second = await ask(model), await ask(model, after("x"))
    assert model.name == f"script:{path}"
    assert first.stop_reason == "tool_use"
    assert first.content == (
        {"type": "text", "text": "I look first."},
        {"type": "tool_use", "id": "toolu_script_0_1_1_1", "name": "Read", "input": {"file_path": "a.py"}},
        {"type": "tool_use", "id": "toolu_script_0_1_1_2", "name": "Grep", "input": {"pattern": "total"}},
        {"type": "tool_use", "id": "toolu_script_0_1_1_3", "name": "TodoWrite", "input": {}},
    )
    assert second.content == ({"type": "text", "text": "Done: fix it"},)
    assert (second.stop_reason, second.usage) == ("end_turn", Usage(input_tokens=5, output_tokens=7))


async def test_the_same_script_plays_the_same_twice() -> None:
    """Ids and all are deterministic."""
    model, again = (ScriptedModel([{"tools": [{"Read": {}}, {"Read": {}}]}]) for _ in range(2))

    assert await collect(model) == await collect(again)


async def test_ids_stay_apart_when_a_resumed_run_plays_a_script_anew() -> None:
    """The history is longer then, and the ids say so."""
    first = await ask(ScriptedModel([{"tools": [{"Read": {}}]}]))
    resumed = await ask(ScriptedModel([{"tools": [{"Read": {}}]}]), after("x"))

    assert first.content[0]["id"] != resumed.content[0]["id"]


async def test_text_streams_in_pieces_with_pauses() -> None:
    """So that live output looks alive: delay before, pace after each piece; what streams is what the answer says."""
    slept_s: list[float] = []

    async def sleep(seconds: float) -> None:
        slept_s.append(seconds)

    turn = {"thinking": "hm", "text": "abcdef", "chunk_chars": 4, "pace_s": 0.5, "delay_s": 2.0}
    *pieces, answer = await collect(ScriptedModel([turn], sleep=sleep))

    assert isinstance(answer, Answer)
    thought, said = answer.content
    assert pieces == [
        ThinkingPiece("hm"),
        BlockDone(0, thought),
        TextPiece("abcd"),
        TextPiece("ef"),
        BlockDone(1, said),
    ]
    assert said == {"type": "text", "text": "abcdef"}
    assert slept_s == [2.0, 0.5, 0.5, 0.5]


async def test_requests_are_kept() -> None:
    """A test can look at all that the model was asked."""
    model = ScriptedModel([{"text": "a"}, {"text": "b"}])
    await ask(model)
    await ask(model, after("x"))

    assert model.requests == [REQUEST, after("x")]
    assert model.turns_left == 0


async def test_a_request_after_the_last_turn_fails() -> None:
    """The error names the file and how many turns it has."""
    model = ScriptedModel([{"text": "a"}], source="demo.yaml")
    await ask(model)

    with pytest.raises(ModelError, match=r"demo.yaml: turn 2 was asked for, but the script has 1 turn;") as caught:
        await ask(model)
    assert caught.value.kind == "script_exhausted"


@pytest.mark.parametrize(
    ("expect", "request_"),
    [
        ("3 passed", after("x", "3 passed")),
        ({"contains": ["1", "2"], "not_contains": "fail", "is_error": False}, after("1", "2")),
        ({"is_error": True}, after("x", ("boom", True))),
        ([{"is_error": False}, {"is_error": True, "contains": "boom"}], after("x", ("boom", True))),
        (["one", "two"], after("one", [{"type": "image"}, {"type": "text", "text": "two"}])),
        ([{"call": 1, "contains": "two"}], after("one", "two")),
    ],
)
async def test_an_expectation_that_holds_lets_the_turn_play(expect: Any, request_: ModelRequest) -> None:
    """One for all results together, or a list by call."""
    assert (await ask(ScriptedModel([{"expect": expect, "text": "on"}]), request_)).content[0]["text"] == "on"


@pytest.mark.parametrize(
    ("expect", "request_", "wrong"),
    [
        ("3 passed", after("2 passed, 1 failed"), "should contain '3 passed': '2 passed, 1 failed'"),
        ({"not_contains": "failed"}, after("1 failed"), "should not contain 'failed'"),
        ({"is_error": False}, after("x", ("boom", True)), "should be no error but an error came"),
        ({"is_error": True}, after("x"), "should be an error but no error came"),
        (["one", "two"], after("two", "one"), "the result of call 0 should contain 'one'"),
        (["one", "two"], after("one"), "no result of call 1, only 1 in all"),
        ("x", REQUEST, "there are no tool results"),
        ({"call": 0, "contains": "two"}, after("one", "two"), "the result of call 0 should contain 'two'"),
    ],
)
async def test_an_expectation_that_does_not_hold_ends_the_run(expect: Any, request_: ModelRequest, wrong: str) -> None:
    """The error says which turn, what was wanted and what came; the model does not play on."""
    model = ScriptedModel([{"text": "first"}, {"expect": expect, "text": "on"}], source="demo.yaml")
    await ask(model)

    with pytest.raises(ModelError) as caught:
        await ask(model, request_)
    assert wrong in str(caught.value)
    assert str(caught.value).startswith("demo.yaml: turn 2: the script does not fit what happened: ")
    assert caught.value.kind == "script_mismatch"


async def test_a_long_result_is_quoted_by_its_ends() -> None:
    """An error stays readable when a result is long."""
    model = ScriptedModel([{"expect": "needle", "text": "on"}])

    with pytest.raises(ModelError, match="the end") as caught:
        await ask(model, after("a" * 50_000 + "the end"))
    assert len(str(caught.value)) < 1000


async def test_captured_text_can_be_used_later() -> None:
    """A job's id from a result goes into the input of the next calls; unknown names stay as they are."""
    model = ScriptedModel(
        [
            {"capture": {"job": r"id: (\w+)"}, "tools": [{"TaskOutput": {"task_id": "{{job}}", "list": ["${{ x }}"]}}]},
            {"text": "{{job}} {{unknown}}"},
        ]
    )
    first, second = await ask(model, after("id: b7")), await ask(model)

    assert first.content[0]["input"] == {"task_id": "b7", "list": ["${{ x }}"]}
    assert second.content[0]["text"] == "b7 {{unknown}}"


async def test_a_capture_that_finds_nothing_ends_the_run() -> None:
    """Playing on with an empty name would be blind."""
    with pytest.raises(ModelError, match=r"capture job: nothing matches 'id: "):
        await ask(ScriptedModel([{"capture": {"job": "id: "}, "text": "x"}]), after("nothing"))


async def test_agents_have_turns_of_their_own(tmp_path: Path) -> None:
    """A request whose task contains the key is served from that list, and ids do not clash."""
    script = """
    turns:
      - tools: [{Task: {prompt: count files}}]
      - text: main again
    agents:
      count files:
        - tools: [{Glob: {pattern: "*"}}]
    """
    model = create(write(tmp_path, script))
    sub = ModelRequest(messages=({"role": "user", "content": "please count files"},))
    answers = [await ask(model), await ask(model, sub), await ask(model, after("x"))]

    assert [answer.content[0].get("name", "text") for answer in answers] == ["Task", "Glob", "text"]
    assert answers[0].content[0]["id"] != answers[1].content[0]["id"]
    with pytest.raises(ModelError, match="turn 2 of agent 'count files'"):
        await ask(model, sub)


async def test_input_that_does_not_parse_can_be_played() -> None:
    """Input given as text is what a model sends when its JSON is broken."""
    answer = await ask(ScriptedModel([{"tools": [{"name": "Write", "input": '{"a": '}], "stop_reason": "max_tokens"}]))

    assert answer.content[0]["input"] == {}
    assert answer.malformed == {answer.content[0]["id"]: '{"a": '}
    assert answer.stop_reason == "max_tokens"


async def test_ready_blocks_are_played_as_they_are() -> None:
    """For blocks that the short forms do not cover."""
    content = [{"type": "redacted_thinking", "data": "x"}, {"type": "tool_use", "id": "t", "name": "Read", "input": {}}]
    answer = await ask(ScriptedModel([{"content": content}]))
    assert (list(answer.content), answer.stop_reason) == (content, "tool_use")


@pytest.mark.parametrize(("passing", "kind"), [(True, ModelOverloadedError), (False, ModelRejectedError)])
async def test_an_error_can_be_played(passing: bool, kind: type[ModelError]) -> None:
    """For what an engine does when the model gives up."""
    model = ScriptedModel([{"error": {"message": "no", "kind": "x", "status": 529, "passing": passing}}])
    with pytest.raises(kind, match="no") as caught:
        await ask(model)
    assert (caught.value.kind, caught.value.status) == ("x", 529)


@pytest.mark.parametrize(
    ("text", "where", "what"),
    [
        ("- text: [", ":1: ", "not YAML"),
        ("- text: ok\n- text: b\n\tc: d\n", ":3: ", "not YAML"),
        ("- text: \x1b[2J", ":1: ", "not YAML"),
        ("[" * 3000 + "]" * 3000, ":1: ", "nested too deeply"),
        ("", ":1: ", "list of turns"),
        ("just words", ":1: ", "list of turns"),
        ("[]", ":1: ", "turns"),
        ("- text: ok\n- text: b\n  colour: red\n", ":3: ", "colour"),
        ("turns:\n  - text: ok\nturn: 1\n", ":3: ", "turn: there is no such key; did you mean 'turns'?"),
        ("- text: ok\n- delay_s: 1\n", ":2: ", "a turn needs text, tools, content or error"),
        ("- text: ok\n- tools:\n    - Read: {a: 1}\n    - Read: [1]\n", ":4: ", "tools.1"),
        ("- text: ok\n  expect:\n    - contains: x\n    - contain: y\n", ":4: ", "contain"),
        ("- text: ok\n  capture: {job: '('}\n", ":2: ", "not a regular expression"),
        ("- text: ok\n  content: [{type: text}]\n", ":1: ", "content cannot stand beside"),
        ("- !!python/object/apply:os.system ['true']\n", ":1: ", "not YAML"),
    ],
)
def test_a_wrong_script_is_refused_with_file_and_line(tmp_path: Path, text: str, where: str, what: str) -> None:
    """Before the run starts, not in its middle."""
    path = write(tmp_path, text)

    with pytest.raises(ConfigError) as caught:
        create(path)
    assert str(caught.value).startswith(path + where)
    assert what in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_missing_script_is_one_clear_line(tmp_path: Path) -> None:
    """It names the file and the reason."""
    with pytest.raises(ConfigError, match=r"nowhere\.yaml: cannot read the model script: No such file"):
        create(str(tmp_path / "nowhere.yaml"))


def test_wrong_turns_from_python_are_a_config_error() -> None:
    """The same check as for a file."""
    with pytest.raises(ConfigError, match=r"script: turns.0.colour"):
        ScriptedModel([{"text": "x", "colour": "red"}])


async def test_a_function_can_be_the_model() -> None:
    """It may return a turn or an answer, now or later; ids are deterministic and requests are kept."""
    ready = Answer(content=({"type": "text", "text": "ready"},), stop_reason="end_turn", usage=Usage(), model="m")

    async def later(request: ModelRequest) -> Answer | JsonObject:
        return ready if len(request.messages) > 1 else {"text": "now", "tools": [{"Read": {}}]}

    model = FunctionModel(later, name="mine")
    first, second = await collect(model), await collect(model, after("x"))
    assert isinstance(first[-1], Answer)
    text, call = first[-1].content
    assert first[:-1] == [TextPiece("now"), BlockDone(0, text), BlockDone(1, call)]
    assert call["id"] == "toolu_function_1_1_1"
    assert second == [TextPiece("ready"), BlockDone(0, ready.content[0]), ready]
    assert (model.name, model.requests) == ("mine", [REQUEST, after("x")])
