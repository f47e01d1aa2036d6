"""Calls of a program become turns of a session: side by side, each by itself, judged like any other."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import anyio
import pytest
from engine_session import make_tool, of, read_like, recorded
from served_rig import Rig

from sandbox_agent.engine import served, served_calls
from sandbox_agent.engine.approval import ApprovalAnswer
from sandbox_agent.engine.queue import Priority
from sandbox_agent.engine.served_calls import Call
from sandbox_agent.errors import SandboxError, ToolError
from sandbox_agent.events import AssistantMessage, RunFinished
from sandbox_agent.policy.load import load_policy
from sandbox_agent.testing.api_rules import check_request

pytestmark = pytest.mark.anyio


async def result(call: Call) -> tuple[str, bool]:
    with anyio.fail_after(5):
        await call.news()
    assert call.result is not None
    return str(call.result.content), call.result.is_error


async def test_reads_that_arrive_together_run_side_by_side(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Each waits for the other to have begun; they are one turn of the record, which the API would take."""
    begun = {"a": anyio.Event(), "b": anyio.Event()}

    async def body(value: Any, ctx: Any) -> None:
        begun[value.name].set()
        with anyio.fail_after(5):
            await begun["b" if value.name == "a" else "a"].wait()

    rig = Rig(monkeypatch, tmp_path, [read_like("Read", body)], None)
    async with rig.desk() as desk:
        session_id = (await desk.create(None)).id
        calls = [await desk.submit("Read", {"name": name}, session_id, can_ask=False) for name in "ab"]
        assert [await result(call) for call in calls] == [("Read a", False), ("Read b", False)]
        [tool] = rig.sessions[0].pool.definitions()
        check_request({"model": "m", "max_tokens": 1, "messages": list(rig.sessions[0].messages), "tools": [tool]})
    events = recorded(tmp_path / "session-0")
    [turn] = of(events, AssistantMessage)
    assert (len(turn.content), turn.model) == (2, "mcp client")
    assert of(events, RunFinished)[0].status == "done"


async def test_a_client_ends_one_call_and_no_other(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Two run; one is not wanted any more, the other comes to its end, and so does one that waits behind them."""
    begun, go_on, ended = {"a": anyio.Event(), "b": anyio.Event()}, anyio.Event(), anyio.Event()

    async def body(value: Any, ctx: Any) -> None:
        if value.name in begun:
            begun[value.name].set()
            try:
                await go_on.wait()
            except anyio.get_cancelled_exc_class():
                ended.set()
                raise

    rig = Rig(monkeypatch, tmp_path, [read_like("Read", body)], None)
    async with rig.desk() as desk:
        session_id = (await desk.create(None)).id
        first, second = [await desk.submit("Read", {"name": name}, session_id, can_ask=False) for name in "ab"]
        with anyio.fail_after(5):
            await begun["a"].wait()
            await begun["b"].wait()
        later, unwanted = [await desk.submit("Read", {"name": name}, session_id, can_ask=False) for name in "cd"]
        desk.withdraw(unwanted)
        desk.withdraw(first)
        with anyio.fail_after(5):
            await ended.wait()
        go_on.set()
        assert await result(second) == ("Read b", False)
        assert await result(later) == ("Read c", False)
        assert (await result(first))[1]
    inputs = [block["input"]["name"] for turn in of(recorded(tmp_path / "session-0"), AssistantMessage)
              for block in turn.content]  # fmt: skip
    assert inputs == ["a", "b", "c"]


async def test_what_is_asked_is_asked_of_whoever_made_the_call(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Who can ask nobody is denied with the setting's name; a yes runs it, a no does not, nor a call taken back."""
    ran: list[str] = []

    async def body(value: Any, ctx: Any) -> None:
        ran.append(value.name)

    rig = Rig(monkeypatch, tmp_path, [make_tool("Write", body)], load_policy(None))
    async with rig.desk() as desk:
        refused = await desk.submit("Write", {"name": "1"}, None, can_ask=False)
        text, is_error = await result(refused)
        assert is_error
        assert "Nobody is there to ask" in text
        assert "--allow" in text
        for name, answer in (("2", ApprovalAnswer(True)), ("3", ApprovalAnswer(False)), ("4", None)):
            call = await desk.submit("Write", {"name": name}, None, can_ask=True)
            with anyio.fail_after(5):
                await call.news()
            assert call.question is not None
            assert call.question.input == {"name": name}
            if answer is None:
                desk.withdraw(call)
            else:
                call.answer(answer)
            assert (await result(call))[1] is (name != "2")
    assert ran == ["2"]
    assert of(recorded(tmp_path / "session-0"), RunFinished)[0].status == "denied"


async def test_a_question_that_nobody_answers_is_a_no(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Else a client that never comes back would hold the session for good."""
    monkeypatch.setattr(served_calls, "ANSWER_S", 0.01)
    rig = Rig(monkeypatch, tmp_path, [make_tool("Write")], load_policy(None))
    async with rig.desk() as desk:
        call = await desk.submit("Write", {}, None, can_ask=True)
        with anyio.fail_after(5):
            while call.result is None:
                await call.news()
                await anyio.lowlevel.checkpoint()
        assert "nobody answered" in str(call.result.content)


async def test_the_end_of_a_job_is_told_with_the_next_result(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Bash promises it, and a client has no turn of its own in which to hear it. Once."""
    rig = Rig(monkeypatch, tmp_path, [read_like("Read")], None)
    async with rig.desk() as desk:
        assert await result(await desk.submit("Read", {}, None, can_ask=False)) == ("Read", False)
        rig.sessions[0].queue.put("bash_1 has ended", Priority.LATER)
        assert "bash_1 has ended" in (await result(await desk.submit("Read", {}, None, can_ask=False)))[0]
        assert await result(await desk.submit("Read", {}, None, can_ask=False)) == ("Read", False)
        [tool] = rig.sessions[0].pool.definitions()
        check_request({"model": "m", "max_tokens": 1, "messages": list(rig.sessions[0].messages), "tools": [tool]})


async def test_what_a_client_may_not_do(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Folders that were not named, applying, sessions that are not its own, input that is no use, and too much."""
    other, secret = tmp_path / "other", tmp_path / "secret"
    other.mkdir()
    secret.mkdir()
    rig = Rig(monkeypatch, tmp_path, [read_like("Read")], None)
    async with rig.desk(other) as desk:
        for folder in (str(secret), "/", "..", f"{other}/../secret", ""):
            with pytest.raises(ToolError, match="none of the folders"):
                await desk.create(folder)
        made = await desk.create(str(other))
        with pytest.raises(ToolError, match="--allow-apply"):
            await desk.apply(made.id, None)
        with pytest.raises(ToolError, match="no open session 'x'"):
            await desk.submit("Read", {}, "x", can_ask=False)
        deep: dict[str, Any] = {}
        for _ in range(2_000):
            deep = {"a": deep}
        with pytest.raises(ToolError, match="levels deep"):
            await desk.submit("Read", deep, made.id, can_ask=False)
        while len(desk.sessions) < served.MAX_SESSIONS:
            await desk.create(None)
        with pytest.raises(ToolError, match="close one first"):
            await desk.create(None)
        await desk.end(made.id)
        assert made.id not in [one.id for one in desk.sessions]


async def test_a_folder_that_is_worked_on_directly_has_one_writer(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Two sessions of mode bind would write over each other."""
    rig = Rig(monkeypatch, tmp_path, [read_like("Read")], None)
    async with rig.desk(mode="bind") as desk:
        await desk.create(None)
        monkeypatch.setattr(rig.sessions[0].workspace, "host", tmp_path)
        with pytest.raises(ToolError, match="one writer"):
            await desk.create(None)


async def test_the_end_interrupts_what_runs(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Nothing keeps the desk from closing, and every call has an answer."""
    begun = anyio.Event()

    async def body(value: Any, ctx: Any) -> None:
        begun.set()
        await anyio.sleep_forever()

    rig = Rig(monkeypatch, tmp_path, [read_like("Read", body)], None)
    with anyio.fail_after(5):
        async with rig.desk() as desk:
            running = await desk.submit("Read", {}, None, can_ask=False)
            await begun.wait()
            waiting = await desk.submit("Read", {}, None, can_ask=False)
    assert [(await result(call))[1] for call in (running, waiting)] == [True, True]


async def test_a_session_that_is_lost_is_told_of_and_the_next_call_opens_another(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The container died under a call."""
    begun = anyio.Event()

    async def body(value: Any, ctx: Any) -> None:
        if value.name == "last":
            begun.set()
            await anyio.sleep_forever()

    rig = Rig(monkeypatch, tmp_path, [read_like("Read", body)], None)
    async with rig.desk() as desk:
        call = await desk.submit("Read", {"name": "last"}, None, can_ask=False)
        with anyio.fail_after(5):
            await begun.wait()
        rig.sessions[0].fail(SandboxError("it is gone"))
        assert (await result(call))[1]
        with anyio.fail_after(5):
            while desk.default is not None:
                await anyio.lowlevel.checkpoint()
        assert await result(await desk.submit("Read", {"name": "x"}, None, can_ask=False)) == ("Read x", False)
    assert len(rig.sessions) == 2
    assert of(recorded(tmp_path / "session-0"), RunFinished)[0].status == "sandbox_error"
