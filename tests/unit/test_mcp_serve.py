"""What a client of our MCP server sees: the package's own client, on a desk whose sessions are in memory."""

from __future__ import annotations

import base64
from pathlib import Path
from typing import Any, Literal

import anyio
import mcp_types as types
import pytest
from engine_session import make_tool, read_like
from mcp import Client, MCPError
from served_rig import Rig

from sandbox_agent.cli.mcp.serving import answer
from sandbox_agent.engine import served
from sandbox_agent.frontends.sanitise import sanitise
from sandbox_agent.mcp import listening, serve
from sandbox_agent.mcp.serve import Service
from sandbox_agent.policy.load import load_policy
from sandbox_agent.types import ToolResult

pytestmark = pytest.mark.anyio

Era = Literal["auto", "legacy"]
ERAS: tuple[Era, ...] = ("auto", "legacy")


def service(desk: served.Desk) -> Service:
    return Service(desk, answer, lambda text: sanitise(text, newlines=True, tabs=True))


def text_of(result: types.CallToolResult) -> str:
    [block] = result.content
    assert isinstance(block, types.TextContent)
    return block.text


async def test_the_tools_are_ours_with_a_session_beside_their_input(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Those of the policy, sessions, and applying only where it is allowed; only what reads says so."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    rig = Rig(monkeypatch, tmp_path, [], None)
    async with rig.desk() as desk, Client(service(desk).server) as client:
        tools = {tool.name: tool for tool in (await client.list_tools()).tools}
    assert list(tools) == [*served.TOOLS, "SessionList", "SessionCreate", "SessionFork", "SessionDiff", "SessionClose"]
    for name in served.TOOLS:
        assert {"session_id"} < tools[name].input_schema["properties"].keys()
        assert "session_id" not in tools[name].input_schema.get("required", ())
    read_only = {name for name, tool in tools.items() if tool.annotations and tool.annotations.read_only_hint}
    assert read_only == {"Read", "Grep", "Glob", "TaskOutput", "SessionList", "SessionDiff"}
    assert tools["SessionCreate"].input_schema["properties"]["folder"]["enum"] == [str(tmp_path)]
    async with rig.desk(allow_apply=True) as desk, Client(service(desk).server) as client:
        assert "SessionApply" in [tool.name for tool in (await client.list_tools()).tools]


@pytest.mark.parametrize("era", ERAS)
async def test_calls_and_questions(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, era: Era) -> None:
    """A question shows exactly what would run, and yes is nothing but yes. In both ways that the protocol has."""
    asked: list[str] = []
    answers: list[types.ElicitResult] = [
        types.ElicitResult(action="accept", content={"answer": "once"}),
        types.ElicitResult(action="accept", content={"answer": "no"}),
        types.ElicitResult(action="accept", content={"answer": "yes please"}),
        types.ElicitResult(action="decline"),
        types.ElicitResult(action="cancel"),
        types.ElicitResult(action="accept", content={"answer": "session"}),
    ]

    async def elicit(context: Any, params: Any) -> types.ElicitResult:
        asked.append(params.message)
        return answers.pop(0)

    rig = Rig(monkeypatch, tmp_path, [make_tool("Write"), read_like("Read")], load_policy(None))
    async with rig.desk() as desk, Client(service(desk).server, mode=era, elicitation_callback=elicit) as client:
        assert text_of(await client.call_tool("Read", {"name": "a"})) == "Read a"
        long = await client.call_tool("Write", {"name": "x" * serve.MAX_QUESTION_CHARS})
        assert long.is_error
        assert "more than 20,000 characters" in text_of(long)
        assert asked == []
        allowed = [not (await client.call_tool("Write", {"name": "b\x1b[2J"})).is_error for _ in range(6)]
        assert allowed == [True, False, False, False, False, True]
        assert not (await client.call_tool("Write", {"name": "b\x1b[2J"})).is_error  # it was for the session
        assert not answers
        assert "\x1b" not in asked[0]
        assert '"name": "b\\u001b[2J"' in asked[0]
        assert asked[0].endswith("For the session means: Write")


@pytest.mark.parametrize("era", ERAS)
async def test_a_client_that_can_ask_nobody(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, era: Era) -> None:
    """It is told which setting would allow the call."""
    rig = Rig(monkeypatch, tmp_path, [make_tool("Write")], load_policy(None))
    async with rig.desk() as desk, Client(service(desk).server, mode=era) as client:
        refused = await client.call_tool("Write", {"name": "b"})
        assert refused.is_error
        assert "--allow" in text_of(refused)


@pytest.mark.parametrize("era", ERAS)
async def test_a_long_call_says_that_it_runs(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, era: Era) -> None:
    """The call ends here only once the client has heard of it."""
    monkeypatch.setattr(serve, "PROGRESS_S", 0.01)
    heard = anyio.Event()
    said: list[str | None] = []

    async def body(value: Any, ctx: Any) -> None:
        with anyio.fail_after(5):
            await heard.wait()

    async def progressed(progress: float, total: float | None, message: str | None) -> None:
        said.append(message)
        heard.set()

    rig = Rig(monkeypatch, tmp_path, [read_like("Read", body)], None)
    async with rig.desk() as desk, Client(service(desk).server, mode=era) as client:
        assert text_of(await client.call_tool("Read", {"name": "a"}, progress_callback=progressed)) == "Read a"
    assert said[0] == "running for 0 s"


@pytest.mark.parametrize("era", ERAS)
async def test_a_request_that_is_cancelled_ends_its_call(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, era: Era
) -> None:
    """Else it would run on for nobody, and hold up whatever is called next."""
    begun, ended = anyio.Event(), anyio.Event()

    async def body(value: Any, ctx: Any) -> None:
        if value.name == "unwanted":
            begun.set()
            try:
                await anyio.sleep_forever()
            finally:
                ended.set()

    rig = Rig(monkeypatch, tmp_path, [read_like("Read", body)], None)
    async with rig.desk() as desk, Client(service(desk).server, mode=era) as client:
        async with anyio.create_task_group() as group:
            group.start_soon(client.call_tool, "Read", {"name": "unwanted"})
            with anyio.fail_after(5):
                await begun.wait()
            group.cancel_scope.cancel()
        with anyio.fail_after(5):
            await ended.wait()
            assert text_of(await client.call_tool("Read", {"name": "next"})) == "Read next"


async def test_an_answer_to_no_question(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A state that we did not give runs nothing, and neither does one that was used already."""
    rig = Rig(monkeypatch, tmp_path, [make_tool("Write")], load_policy(None))
    async with rig.desk() as desk:
        yes: dict[str, Any] = {"answer": types.ElicitResult(action="accept", content={"answer": "once"})}

        async def elicit(context: Any, params: Any) -> types.ElicitResult:
            raise AssertionError("nothing is asked here")

        async with Client(service(desk).server, elicitation_callback=elicit) as client:
            guessed = await client.call_tool("Write", {"name": "b"}, input_responses=yes, request_state="guessed")
            assert guessed.is_error
            assert "not open any more" in text_of(guessed)


async def test_what_is_wrong_is_told(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Tools that there are not, input that does not fit, sessions that there are not."""
    rig = Rig(monkeypatch, tmp_path, [read_like("Read")], None)
    async with rig.desk() as desk, Client(service(desk).server) as client:
        with pytest.raises(MCPError, match="no tool 'Task'"):
            await client.call_tool("Task", {})
        for name, given, told in (
            ("Read", {"session_id": 3}, "session_id is a string"),
            ("Read", {"session_id": "x"}, "no open session 'x'"),
            ("Read", {"what": 1}, "field `what` is not known"),
            ("SessionCreate", {"folder": "/"}, "none of the folders"),
            ("SessionCreate", {"workspace": "/"}, "no input 'workspace'"),
            ("SessionClose", {}, "needs session_id"),
            ("SessionFork", {"step": -1}, "a number from 0 on"),
            ("SessionDiff", {}, "no checkpoints"),
        ):
            result = await client.call_tool(name, given)
            assert (result.is_error, told in text_of(result)) == (True, True), text_of(result)
        with pytest.raises(MCPError, match="no tool 'SessionApply'"):
            await client.call_tool("SessionApply", {})


@pytest.mark.parametrize(
    ("line", "answered"),
    [
        (b'{"jsonrpc":"2.0","id":6,"method":"tools/call","params":{"name":"\\ud800"}}', 6),  # half a character
        (b'{"jsonrpc":"2.0","id":"a","method":"x","params":[1]}', "a"),
        (b'{"jsonrpc":"2.0","id":"\\ud800","method":"x"}', None),
        (b'{"jsonrpc":"2.0","id":true,"method":"x"}', None),
        (b'{"jsonrpc":"2.0","id":1,"result":"\\ud800"}', None),  # an answer is not answered
        (b"[1]", None),
        (b"noise", None),
        (b"[" * 100_000, None),
    ],
)
def test_a_line_that_is_no_message_is_answered_where_it_says_to_what(line: bytes, answered: Any) -> None:
    """Else a client would wait for its answer for good."""
    told = listening.refusal(line)
    assert (None if told is None else told.message.id) == answered  # type: ignore[union-attr]


async def test_sessions_come_and_go(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Calls go to the session that they name."""
    rig = Rig(monkeypatch, tmp_path, [read_like("Read")], None)
    async with rig.desk() as desk, Client(service(desk).server) as client:
        assert "No session is open" in text_of(await client.call_tool("SessionList", {}))
        made = text_of(await client.call_tool("SessionCreate", {})).removeprefix("session_id: ")
        await client.call_tool("Read", {"session_id": made})
        await client.call_tool("Read", {})
        listed = text_of(await client.call_tool("SessionList", {})).splitlines()
        assert [made in line and "1 calls" in line for line in listed] == [True, False]
        assert "has ended" in text_of(await client.call_tool("SessionClose", {"session_id": made}))
        assert len(desk.sessions) == 1


async def test_pictures_and_documents(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """What Read shows of them comes to the client as the protocol has it."""
    data = base64.b64encode(b"data").decode()

    async def body(value: Any, ctx: Any) -> ToolResult:
        kinds = (("image", "image/png"), ("document", "application/pdf"))
        blocks = tuple(
            {"type": kind, "source": {"type": "base64", "media_type": media, "data": data}} for kind, media in kinds
        )
        return ToolResult(blocks)

    rig = Rig(monkeypatch, tmp_path, [read_like("Read", body)], None)
    async with rig.desk() as desk, Client(service(desk).server) as client:
        picture, document = (await client.call_tool("Read", {})).content
    assert isinstance(picture, types.ImageContent)
    assert (picture.data, picture.mime_type) == (data, "image/png")
    assert isinstance(document, types.EmbeddedResource)
    assert isinstance(document.resource, types.BlobResourceContents)
    assert (document.resource.blob, document.resource.mime_type) == (data, "application/pdf")
