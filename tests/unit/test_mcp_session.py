"""The servers of a session: their tools in its requests and under its rules, its person's answers, its secrets."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import anyio
import pytest
from engine_session import make_session, make_tool, of, play, recorded, results, use
from mcp_rig import hostile

from sandbox_agent.engine import servers as engine_servers
from sandbox_agent.engine.approval import ApprovalAnswer, ApprovalRequest, NobodyAnswersError
from sandbox_agent.engine.child import without
from sandbox_agent.engine.servers import start_servers
from sandbox_agent.engine.session import Session
from sandbox_agent.events import McpServerChanged, Notice, ToolsOffered
from sandbox_agent.models.base import ModelRequest
from sandbox_agent.policy.load import load_policy
from sandbox_agent.policy.servers import McpServer
from sandbox_agent.tools.questions import Question, Reply

NO_GROUND: Any = cast(Any, None)
"""For servers with containers of their own; there are none here."""

ECHO = {"tools": [use("mcp__evil__echo", text="hi")]}
DONE = {"text": "done"}


@pytest.fixture(autouse=True)
def _state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))


class Answers:
    """Who answers the questions of a run: yes or no to calls, and these words to servers."""

    def __init__(self, *, allow: bool = True, words: Sequence[str | None] = ()) -> None:
        self.asked: list[ApprovalRequest] = []
        self.questions: list[Question] = []
        self._allow = allow
        self._words = list(words)

    async def approve(self, request: ApprovalRequest) -> ApprovalAnswer:
        self.asked.append(request)
        return ApprovalAnswer(allow=self._allow)

    async def ask(self, questions: Sequence[Question], *, agent_id: str) -> Sequence[Reply] | None:
        self.questions += questions
        return [Reply(text=word) for word in self._words]


async def _played(
    folder: Path,
    model: Any,
    servers: Sequence[McpServer],
    *,
    answers: Answers | None = None,
    allow: Sequence[str] = ("mcp__evil__*", "Own"),
    deny: Sequence[str] = (),
) -> list[Any]:
    (folder / "session").mkdir(exist_ok=True)
    policy = load_policy(None, allow=allow, deny=deny)
    async with make_session(
        model,
        folder / "session",
        tools=[make_tool("Own")],
        policy=policy,
        approver=answers.approve if answers is not None else None,
    ) as session:
        session.ctx.ask = answers.ask if answers is not None else None
        start_servers(session, servers, NO_GROUND)
        try:
            return await play(session)
        finally:
            await _closed(session)


async def _closed(session: Session) -> None:
    assert session.servers is not None
    with anyio.fail_after(5, shield=True):
        await session.servers.close()


async def test_tools_of_servers_come_after_the_others_and_are_run_like_them(tmp_path: Path) -> None:
    """From the first request on; the record says which there are."""
    seen: list[list[str]] = []

    def model(request: ModelRequest) -> Any:
        seen.append([tool["name"] for tool in request.tools])
        return ECHO if len(seen) == 1 else DONE

    events = await _played(tmp_path, model, [hostile(name="a"), hostile()])

    assert seen == [["Own", "mcp__a__echo", "mcp__evil__echo"]] * 2
    assert results(events) == [('echo {"text": "hi"}', False)]
    kept = recorded(tmp_path / "session")
    assert {event.server for event in of(kept, McpServerChanged)} == {"a", "evil"}
    assert of(kept, ToolsOffered)[-1].tools == tuple(seen[0])


@pytest.mark.parametrize(
    ("rules", "verdict"),
    [
        ({"allow": ()}, "permission"),
        ({"deny": ("mcp__evil",)}, "permission"),
        ({"deny": ("mcp__evil__echo",)}, "permission"),
    ],
)
async def test_without_a_rule_a_server_is_asked_about_and_so_denied_here(
    tmp_path: Path, rules: dict[str, Any], verdict: str
) -> None:
    """Nobody is there to ask. The call never reaches the server."""
    events = await _played(tmp_path, [ECHO, DONE], [hostile("die_in_call")], **rules)

    ((content, is_error),) = results(events)
    assert is_error
    assert "exit code" not in content
    assert verdict in content.lower()


async def test_a_server_that_has_no_way_to_the_workspace_holds_nobody_up(tmp_path: Path) -> None:
    """Its call runs though another agent is writing, and it takes no part in who may write next; with the way to it,
    it waits for its turn."""
    (tmp_path / "session").mkdir()
    began = {"Apart": anyio.Event(), "Own": anyio.Event()}

    async def begins(value: Any, ctx: Any) -> None:
        began["Apart" if value.name == "apart" else "Own"].set()

    calls = {"tools": [use("Apart", name="apart"), use("Own")]}
    tools = [make_tool("Apart", begins, parallel_safe=True, apart=True), make_tool("Own", begins)]
    policy = load_policy(None, allow=("Apart", "Own"))
    async with (
        make_session([calls, DONE], tmp_path / "session", tools=tools, policy=policy) as session,
        anyio.create_task_group() as group,
    ):
        await session.rights.lane.acquire()
        group.start_soon(play, session)
        with anyio.fail_after(10):
            await began["Apart"].wait()
            await anyio.wait_all_tasks_blocked()
            assert not began["Own"].is_set()
            session.rights.lane.release()
            await began["Own"].wait()


async def test_an_input_that_does_not_fit_is_refused_here(tmp_path: Path) -> None:
    """With what is wrong; the server hears nothing of it."""
    call = {"tools": [use("mcp__evil__echo", a="x"), use("mcp__evil__echo", a=1)]}

    events = await _played(tmp_path, [call, DONE], [hostile("typed")])

    assert "a: 'x' is not of type 'integer'" in results(events)[0][0]
    assert results(events)[1] == ('echo {"a": 1}', False)


async def test_a_server_that_cannot_be_had_costs_only_its_tools(tmp_path: Path) -> None:
    """The run goes on with what there is."""
    events = await _played(tmp_path, [{"tools": [use("Own")]}, DONE], [hostile("die_at_once")])

    assert results(events) == [("Own", False)]
    (told,) = of(events, McpServerChanged)
    assert (told.state, told.tools) == ("failed", ())
    assert "cannot start" not in told.error  # its standard error goes nowhere
    assert "exit code 1" in told.error


async def test_who_is_waited_for_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """And the first request waits no longer than the slowest server may take."""
    monkeypatch.setattr(engine_servers, "TOLD_AFTER_S", 0.5)

    events = await _played(tmp_path, [DONE], [hostile("hang_in_start", startup_timeout_s=1.5), hostile(name="good")])

    said = [event.text for event in of(events, Notice)]
    assert "waiting for the MCP servers: evil" in said


async def test_a_program_of_the_workspace_on_this_machine_is_warned_of(tmp_path: Path) -> None:
    """The folder itself may be named, as what the server works on; others are shown whole, and that is all."""
    async with make_session([DONE], tmp_path, tools=[make_tool("Own")]) as session:
        inside = session.workspace.host / "server.py"
        servers = [replace(hostile(name="bad"), command=("/nowhere/python3", str(inside)))]
        servers.append(replace(hostile(name="good"), command=("/nowhere/server", str(session.workspace.host))))
        with session.listen() as events:
            start_servers(session, servers, NO_GROUND)
            await _closed(session)
            notices = []
            while events.statistics().current_buffer_used:
                notices.append(events.receive_nowait())
        session.hang_up()
    told = [event.text for event in of(notices, Notice)]
    assert f"bad (/nowhere/python3 {inside}), good (/nowhere/server " in told[0]
    (warned,) = [text for text in told[1:] if "lies in the folder that is worked on" in text]
    assert warned.startswith(f"the MCP server bad runs {inside} on this machine, ")


async def test_a_run_that_waits_for_servers_can_be_interrupted(tmp_path: Path) -> None:
    """At once, and everything of theirs ends with it."""
    (tmp_path / "session").mkdir()
    async with make_session([DONE], tmp_path / "session") as session:
        start_servers(session, [hostile("hang_in_start", startup_timeout_s=60)], NO_GROUND)
        began_s = time.monotonic()
        with anyio.move_on_after(0.3) as scope:
            await play(session)
        assert scope.cancelled_caught
        await _closed(session)
        assert time.monotonic() - began_s < 5


async def test_a_secret_that_a_server_gives_back_is_masked_everywhere(tmp_path: Path) -> None:
    """In what the model reads, in events, and in the record."""
    secret = "sesame-open-1234"
    server = replace(hostile("result_secret"), env={"TOKEN": secret}, secrets=(secret,))
    requests: list[str] = []

    def model(request: ModelRequest) -> Any:
        requests.append(json.dumps(list(request.messages)))
        return ECHO if len(requests) == 1 else DONE

    events = await _played(tmp_path, model, [server])

    assert "[masked: MCP server evil]" in results(events)[0][0]
    assert secret not in repr(events)
    assert secret not in "".join(requests)
    assert secret not in (tmp_path / "session" / "events.jsonl").read_text()


async def test_a_servers_question_goes_to_the_person_and_the_answer_back(tmp_path: Path) -> None:
    """It is said who asks; where there are no words, or nobody is there, the answer is no."""
    evil = hostile("asks=1", "reports=1")
    answers = Answers(words=["blue"])

    events = await _played(tmp_path, [ECHO, DONE], [evil], answers=answers)

    assert answers.questions[0].question.startswith("The MCP server evil asks: \ufffd[2JPassword?")
    assert '"secret": "blue"' in results(events)[0][0]
    for nobody in (Answers(words=[None]), None):
        events = await _played(tmp_path, [ECHO, DONE], [evil], answers=nobody)
        assert '"action": "decline"' in results(events)[0][0]


async def test_a_question_that_fails_is_a_no(tmp_path: Path) -> None:
    """Whoever answers is the program's own code: what it raises costs the server nothing but the answer."""
    answers = Answers()

    async def broken(questions: Sequence[Question], *, agent_id: str) -> Sequence[Reply] | None:
        raise KeyError("x")

    answers.ask = broken  # type: ignore[method-assign]
    events = await _played(tmp_path, [ECHO, DONE], [hostile("asks=1", "reports=1")], answers=answers)

    assert '"action": "decline"' in results(events)[0][0]
    assert any("failed (KeyError), and was answered with no" in event.text for event in of(events, Notice))


async def test_other_tools_than_were_approved_are_asked_about_or_refused(tmp_path: Path) -> None:
    """By whoever answers; the question names the server and the tools, and nobody is a no."""
    evil = hostile("rug_pull", f"STATE={tmp_path / 'starts'}")
    await _played(tmp_path, [DONE], [evil])

    async def nobody(request: ApprovalRequest) -> ApprovalAnswer:
        raise NobodyAnswersError

    away = Answers()
    away.approve = nobody  # type: ignore[method-assign]
    for answers in (None, Answers(allow=False), away):
        events = await _played(tmp_path, [DONE], [evil], answers=answers)
        assert of(events, McpServerChanged)[-1].tools == ()
    yes = Answers()
    events = await _played(tmp_path, [DONE], [evil], answers=yes)
    assert of(events, McpServerChanged)[-1].tools == ("mcp__evil__echo", "mcp__evil__more")
    assert "has other tools than were approved (new: more; changed: echo)" in (yes.asked[0].decision.reason or "")


async def test_what_was_taken_from_a_session_does_not_come_back_with_a_server(tmp_path: Path) -> None:
    """A tool that was taken out while the servers started stays out."""
    (tmp_path / "session").mkdir()
    async with make_session([DONE], tmp_path / "session", tools=[make_tool("Own"), make_tool("Task")]) as session:
        start_servers(session, [hostile()], NO_GROUND)
        session.pool = without(session.pool, {"Task"}, "enough")
        await play(session)
        assert session.pool.names() == ("Own", "mcp__evil__echo")
        assert session.pool.absent == {"Task": "enough"}
        await _closed(session)
