"""The one gate: every call passes it, in call order, bound to the exact input, and any doubt is a no."""

from __future__ import annotations

import errno
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from engine_session import Named, finished, make_session, make_tool, of, play, read_like, results, use

from sandbox_agent.engine.approval import ApprovalAnswer, ApprovalRequest, Approver
from sandbox_agent.engine.requests import digest
from sandbox_agent.events import PermissionDecided, ToolStarted
from sandbox_agent.policy.load import load_policy
from sandbox_agent.sandboxes.base import PathInfo
from sandbox_agent.sandboxes.fake import FakeSandbox
from sandbox_agent.tools.base import ToolContext
from sandbox_agent.types import Mode, Subject

DONE = {"text": "done"}
WRITE = make_tool("Write", edits=True)


def answering(answer: ApprovalAnswer, asked: list[ApprovalRequest]) -> Approver:
    async def approver(request: ApprovalRequest) -> ApprovalAnswer:
        asked.append(request)
        return answer

    return approver


def write(path: str) -> dict[str, Any]:
    return use("Write", file_path=path)


async def test_without_anyone_to_ask_an_ask_is_a_no(tmp_path: Path) -> None:
    """The call does not run, the run ends as denied, and the denial says how to allow it."""
    async with make_session(
        [{"tools": [write("/workspace/a")]}, DONE], tmp_path, tools=[WRITE], policy=load_policy(None)
    ) as session:
        events = await play(session)

    assert of(events, ToolStarted) == []
    [(text, is_error)] = results(events)
    assert is_error
    assert "--allow" in text
    end = finished(events)
    assert end.status == "denied"
    assert [(d["tool_name"], d["tool_input"]) for d in end.denials] == [("Write", {"file_path": "/workspace/a"})]


async def test_a_call_of_a_hidden_tool_is_a_denial(tmp_path: Path) -> None:
    """Not a slip of the model: it is on record with its rule, and the run ends as denied."""
    policy = load_policy(None, deny=["Edit"])
    turns = [{"tools": [write("/workspace/a")]}, DONE]
    async with make_session(turns, tmp_path, tools=[make_tool("Other")], policy=policy) as session:
        events = await play(session)

    [(text, is_error)] = results(events)
    assert (is_error, "Edit denies Write altogether" in text) == (True, True)
    [decision] = of(events, PermissionDecided)
    assert (decision.verdict, decision.rule, decision.location) == ("deny", "Edit", "--deny")
    assert finished(events).status == "denied"


async def test_questions_come_in_call_order_and_hold_the_exact_input(tmp_path: Path) -> None:
    """One question a call, before anything of the batch runs."""
    asked: list[ApprovalRequest] = []
    turn = {"tools": [write("/workspace/b"), write("/workspace/a")]}
    async with make_session(
        [turn, DONE],
        tmp_path,
        tools=[WRITE],
        policy=load_policy(None),
        approver=answering(ApprovalAnswer(True), asked),
    ) as session:
        events = await play(session)

    assert [request.input for request in asked] == [{"file_path": "/workspace/b"}, {"file_path": "/workspace/a"}]
    decided = of(events, PermissionDecided)
    assert [digest("Write", request.input) for request in asked] == [event.input_sha256 for event in decided]
    assert all(event.asked and event.verdict == "allow" for event in decided)
    assert finished(events).status == "done"


async def test_a_no_reaches_the_model_with_its_reason(tmp_path: Path) -> None:
    """In the words of the person."""
    no = answering(ApprovalAnswer(False, reason="use the other file"), [])
    async with make_session(
        [{"tools": [write("/workspace/a")]}, DONE], tmp_path, tools=[WRITE], policy=load_policy(None), approver=no
    ) as session:
        events = await play(session)
    assert "use the other file" in results(events)[0][0]


@pytest.mark.parametrize(("scope", "questions", "saved"), [("once", 2, 0), ("session", 1, 0), ("always", 1, 1)])
async def test_a_yes_holds_as_long_as_it_was_given_for(tmp_path: Path, scope: str, questions: int, saved: int) -> None:
    """The same call a second time is asked again, or not; "always" is saved as the rule that was shown."""
    asked: list[ApprovalRequest] = []
    rules: list[str] = []
    turns = [{"tools": [write("/workspace/a")]}, {"tools": [write("/workspace/a")]}, DONE]
    async with make_session(
        turns,
        tmp_path,
        tools=[WRITE],
        policy=load_policy(None),
        approver=answering(ApprovalAnswer(True, scope=scope), asked),
    ) as session:
        session.save_rule = rules.append
        await play(session)

    assert questions == len(asked)
    assert list(asked[0].suggested_rules) * saved == rules


async def test_a_yes_for_one_path_is_not_a_yes_for_another(tmp_path: Path) -> None:
    """What is remembered is the narrowest rule."""
    asked: list[ApprovalRequest] = []
    turn = {"tools": [write("/workspace/a"), write("/workspace/b")]}
    async with make_session(
        [turn, DONE],
        tmp_path,
        tools=[WRITE],
        policy=load_policy(None),
        approver=answering(ApprovalAnswer(True, scope="session"), asked),
    ) as session:
        await play(session)
    assert len(asked) == 2


async def test_an_approver_that_fails_has_not_approved(tmp_path: Path) -> None:
    """Its exception is a no, and the run goes on."""

    async def broken(_: ApprovalRequest) -> ApprovalAnswer:
        raise RuntimeError("terminal went away")

    async with make_session(
        [{"tools": [write("/workspace/a")]}, DONE], tmp_path, tools=[WRITE], policy=load_policy(None), approver=broken
    ) as session:
        events = await play(session)
    assert of(events, ToolStarted) == []
    assert "terminal went away" in results(events)[0][0]


async def test_a_tool_that_cannot_say_what_it_touches_is_not_run(tmp_path: Path) -> None:
    """Even under bypassPermissions."""

    def broken(value: Named, ctx: ToolContext) -> Subject:
        raise KeyError("path")

    tool = make_tool("Odd", subject=broken)
    policy = load_policy(None, allow=["Odd"], mode=Mode.BYPASS)
    async with make_session([{"tools": [use("Odd")]}, DONE], tmp_path, tools=[tool], policy=policy) as session:
        events = await play(session)
    assert of(events, ToolStarted) == []
    assert finished(events).status == "denied"


async def test_a_link_is_judged_by_where_it_leads(tmp_path: Path) -> None:
    """In the sandbox: a deny rule on the target speaks for the link."""
    box = FakeSandbox({"/workspace/secret/key": b"k"})
    box.files.symlink("/workspace/notes.txt", "/workspace/secret/key")
    read = make_tool("Read", read_only=True)
    policy = load_policy(None, deny=["Read(/secret/**)"])
    async with make_session(
        [{"tools": [use("Read", file_path="/workspace/notes.txt")]}, DONE],
        tmp_path,
        tools=[read],
        policy=policy,
        sandbox=box,
    ) as session:
        events = await play(session)
    assert of(events, ToolStarted) == []
    [decided] = of(events, PermissionDecided)
    assert decided.rule == "Read(/secret/**)"


async def test_reads_of_a_batch_are_resolved_in_one_round_trip(tmp_path: Path) -> None:
    """Ten reads, one question to the sandbox, and each tool learns where its path led."""
    box = FakeSandbox({f"/workspace/{i}": b"" for i in range(10)})
    seen: list[str | None] = []

    async def body(value: Named, ctx: ToolContext) -> None:
        assert value.file_path is not None
        seen.append(ctx.resolved.get(value.file_path))

    turn = {"tools": [use("Read", file_path=f"/workspace/{i}") for i in range(10)]}
    async with make_session([turn, DONE], tmp_path, tools=[read_like("Read", body)], sandbox=box) as session:
        await play(session)
    assert [call.verb for call in box.calls] == ["resolve"]
    assert sorted(f"/workspace/{i}" for i in range(10)) == sorted(path or "" for path in seen)


async def test_a_denied_call_leaves_its_siblings_alone(tmp_path: Path) -> None:
    """The batch goes on without it."""
    turn = {"tools": [use("Read", file_path="/workspace/ok"), use("Read", file_path="/workspace/no")]}
    policy = load_policy(None, deny=["Read(/no)"])
    async with make_session([turn, DONE], tmp_path, tools=[read_like("Read")], policy=policy) as session:
        events = await play(session)
    assert [Path(event.input["file_path"]).name for event in of(events, ToolStarted)] == ["ok"]


def test_a_digest_tells_inputs_apart() -> None:
    """Same input, same digest; order of keys does not matter, anything else does."""
    assert digest("Bash", {"a": 1, "b": 2}) == digest("Bash", {"b": 2, "a": 1})
    others = [("Bash", {"a": 1}), ("Bash", {"a": "1"}), ("Read", {"a": 1}), ("Bash", {"a": 1, "b": None})]
    assert len({digest(name, value) for name, value in others}) == len(others)


async def test_a_search_is_told_what_it_must_not_show(tmp_path: Path) -> None:
    """A rule about some files below a folder does not deny the search of it, so the tool leaves them out."""
    told: list[bool] = []

    async def body(value: Named, ctx: ToolContext) -> None:
        withheld = ctx.withheld("/workspace", "/workspace")
        told.append(withheld is not None and withheld.covers("secret/key"))

    turn = {"tools": [use("Grep", file_path="/workspace")]}
    policy = load_policy(None, deny=["Read(/secret/**)"])
    async with make_session([turn, DONE], tmp_path, tools=[read_like("Grep", body)], policy=policy) as session:
        await play(session)

    assert told == [True]


class Attacked(FakeSandbox):
    """Whatever would say where a path leads is killed, the first `kills` times."""

    def __init__(self, kills: int) -> None:
        super().__init__()
        self.kills = kills

    async def resolve(self, paths: Sequence[str]) -> list[PathInfo]:
        self.kills -= 1
        if self.kills >= 0:
            raise OSError(errno.EIO, "the runner was killed")
        return await super().resolve(paths)


@pytest.mark.parametrize(("kills", "status"), [(1, "done"), (99, "denied")])
async def test_a_killed_runner_ends_no_run(tmp_path: Path, kills: int, status: str) -> None:
    """It is asked again; a path that leads nobody knows where is covered by no allow rule."""
    policy = load_policy(None, allow=["Edit(/src/**)"])
    turn = {"tools": [write("/workspace/src/a")]}
    async with make_session([turn, DONE], tmp_path, tools=[WRITE], policy=policy, sandbox=Attacked(kills)) as session:
        events = await play(session)

    assert finished(events).status == status
