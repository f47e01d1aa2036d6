"""A chat on a real loop with a scripted model: messages and commands at any time, and what stops what."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest
from chat_rig import CTRL_C, CTRL_D, ENTER, ESC, Desk, at_desk, watch
from engine_session import make_session, make_tool, of, recorded, use
from rich.text import Text

from sandbox_agent.engine.queue import Priority
from sandbox_agent.engine.session import Session
from sandbox_agent.errors import SandboxError
from sandbox_agent.events import ConversationCleared, ModeChanged, ModelChanged, RunFinished
from sandbox_agent.frontends.approve import ConsoleApprover
from sandbox_agent.frontends.chat import Chat
from sandbox_agent.frontends.console import ConsoleView
from sandbox_agent.models.base import ModelRequest
from sandbox_agent.policy.load import load_policy
from sandbox_agent.policy.policy import Policy
from sandbox_agent.tools.base import Tool
from sandbox_agent.types import Mode

Turn = Mapping[str, Any]


class Model:
    """Plays turns and keeps what it was asked."""

    def __init__(self, *turns: Turn) -> None:
        self._turns = list(turns)
        self.asked: list[ModelRequest] = []

    def __call__(self, request: ModelRequest) -> Turn:
        self.asked.append(request)
        return self._turns.pop(0)

    def last(self, number: int) -> str:
        """The last message of a request, as text."""
        return json.dumps(self.asked[number].messages[-1]["content"])


class Held:
    """A tool that waits until it is let go."""

    def __init__(self) -> None:
        self.begun = anyio.Event()
        self.let_go = anyio.Event()

    async def __call__(self, value: object, ctx: object) -> None:
        self.begun.set()
        await self.let_go.wait()


@asynccontextmanager
async def chatting(
    folder: Path,
    model: Callable[[ModelRequest], Any],
    tools: Sequence[Tool] = (),
    *,
    policy: Policy | None = None,
    first: str | None = None,
) -> AsyncIterator[tuple[Desk, Session, Chat]]:
    """A chat that goes on; it is left at the end, and must come to its end then."""
    async with at_desk(folder) as desk:
        approver = ConsoleApprover(desk.screen)
        async with make_session(model, folder, tools=tools, policy=policy, approver=approver) as session:
            chat = Chat(session, desk.screen, desk.history, ConsoleView(desk.screen.printer).feed)
            with anyio.fail_after(20):
                async with anyio.create_task_group() as group:
                    group.start_soon(chat.hold, first)
                    await anyio.wait_all_tasks_blocked()
                    if desk.screen._app is not None:
                        watch(desk)
                    yield desk, session, chat
                    chat.leave()


def runs(folder: Path) -> list[str]:
    """How the runs ended."""
    return [event.status for event in of(recorded(folder), RunFinished)]


async def test_messages_of_one_chat_are_one_conversation(tmp_path: Path) -> None:
    """The first may come with the command line; each begins a run of its own."""
    model = Model({"text": "Hello."}, {"text": "Goodbye."})
    async with chatting(tmp_path, model, first="hi") as (desk, _, _):
        await desk.printed("Hello.\n")
        desk.type(f"bye{ENTER}")
        await desk.printed("Goodbye.\n")

    assert [message["role"] for message in model.asked[1].messages] == ["user", "assistant", "user"]
    assert runs(tmp_path) == ["done", "done"]
    assert (tmp_path / "history").read_text() == '"bye"\n'


async def test_a_message_while_a_call_runs_goes_in_with_its_result(tmp_path: Path) -> None:
    """It is shown as waiting until then."""
    held, model = Held(), Model({"tools": [use("Slow")]}, {"text": "Done."})
    async with chatting(tmp_path, model, [make_tool("Slow", held)], first="go") as (desk, _, _):
        await held.begun.wait()
        desk.type(f"mind the gap{ENTER}")
        await desk.shows("waits: mind the gap\n>")
        held.let_go.set()
        await desk.printed("> mind the gap")
        await desk.printed("Done.\n")
        assert "waits" not in desk.drawn()

    blocks = model.asked[1].messages[-1]["content"]
    assert [block["type"] for block in blocks] == ["tool_result", "text"]
    assert runs(tmp_path) == ["done"]


@pytest.mark.parametrize("key", [ESC, CTRL_C])
async def test_a_stopped_call_has_a_result_and_the_chat_goes_on(tmp_path: Path, key: str) -> None:
    """What is sent next passes the strict check of the API's rules."""
    held, model = Held(), Model({"tools": [use("Slow")]}, {"text": "As you like."})
    async with chatting(tmp_path, model, [make_tool("Slow", held)], first="go") as (desk, _, _):
        await held.begun.wait()
        desk.type(key)
        await desk.printed("interrupted by the person")
        desk.type(f"leave it{ENTER}")
        await desk.printed("As you like.\n")

    assert "Interrupted before this call finished" in model.last(1)
    assert "leave it" in model.last(1)
    assert runs(tmp_path) == ["interrupted", "done"]


async def test_esc_delivers_at_once_what_waits(tmp_path: Path) -> None:
    """The call is stopped, the run goes on with the messages in their order."""
    held, model = Held(), Model({"tools": [use("Slow")]}, {"text": "At once."})
    async with chatting(tmp_path, model, [make_tool("Slow", held)], first="go") as (desk, _, _):
        await held.begun.wait()
        desk.type(f"not that{ENTER}but this{ENTER}")
        await desk.shows("Esc delivers it now")
        desk.type(ESC)
        await desk.printed("At once.\n")

    texts = [block["text"] for block in model.asked[1].messages[-1]["content"] if block["type"] == "text"]
    assert texts == ["not that", "but this"]
    assert runs(tmp_path) == ["done"]


async def test_commands_run_beside_the_agent_but_for_those_that_need_it_at_rest(tmp_path: Path) -> None:
    """A refused one changes nothing."""
    held, model = Held(), Model({"tools": [use("Slow")]}, {"text": "Done."})
    async with chatting(tmp_path, model, [make_tool("Slow", held)], first="go") as (desk, session, _):
        await held.begun.wait()
        desk.type(f"/todo{ENTER}")
        await desk.printed("There is no todo list.")
        desk.type(f"/clear{ENTER}")
        await desk.printed("The agent is at work")
        assert len(session.messages) == 2
        held.let_go.set()
        await desk.printed("Done.\n")

    assert runs(tmp_path) == ["done"]


async def test_clear_begins_a_conversation_anew(tmp_path: Path) -> None:
    """What the model knew of files is forgotten, and a record tells of it."""
    model = Model({"text": "One."}, {"text": "Two."})
    async with chatting(tmp_path, model, first="first") as (desk, session, _):
        await desk.printed("One.\n")
        session.ctx.known_files["/workspace/a"] = "0"
        desk.type(f"/clear{ENTER}second{ENTER}")
        await desk.printed("Two.\n")

    assert [json.dumps(message["content"]).count("second") for message in model.asked[1].messages] == [1]
    assert session.ctx.known_files == {}
    assert len(of(recorded(tmp_path), ConversationCleared)) == 1


async def test_what_is_no_command_is_said(tmp_path: Path) -> None:
    """A slip is answered with the near name; a path at the beginning of a message is a message."""
    model = Model({"text": "Read."})
    async with chatting(tmp_path, model) as (desk, _, _):
        desk.type(f"/hepl{ENTER}")
        await desk.printed("There is no command /hepl (did you mean /help?).")
        desk.type(f"/workspace/a.py has a bug{ENTER}")
        await desk.printed("Read.\n")

    assert "/workspace/a.py has a bug" in model.last(0)


async def test_a_late_message_wakes_the_agent_unless_the_person_stopped_it(tmp_path: Path) -> None:
    """After a stop it waits for the person's next message, and goes in with that."""
    held = Held()
    model = Model({"text": "I see."}, {"tools": [use("Slow")]}, {"text": "Both."})
    async with chatting(tmp_path, model, [make_tool("Slow", held)]) as (desk, session, _):
        session.queue.put("job 1 ended", Priority.LATER)
        await desk.printed("I see.\n")
        desk.type(f"go{ENTER}")
        await held.begun.wait()
        desk.type(ESC)
        await desk.printed("interrupted by the person")
        session.queue.put("job 2 ended", Priority.LATER)
        await desk.settle()
        assert len(model.asked) == 2
        desk.type(f"and now{ENTER}")
        await desk.printed("Both.\n")

    assert "job 2 ended" in model.last(2)
    assert "and now" in model.last(2)


async def test_a_question_takes_no_message_for_its_answer(tmp_path: Path) -> None:
    """What was being written when it came up is sent as a message; the letter that comes then is the answer."""
    held = Held()
    model = Model({"tools": [use("Slow"), use("Touch", file_path="/workspace/x")]}, {"text": "Done."})
    tools, policy = [make_tool("Slow", held), make_tool("Touch")], load_policy(None, allow=["Slow"])
    async with chatting(tmp_path, model, tools, policy=policy, first="go") as (desk, _, _):
        await held.begun.wait()
        desk.type("no")
        await desk.shows("> no")
        held.let_go.set()
        await desk.shows("a question comes up")
        desk.type(f" wait{ENTER}")
        await desk.shows("[y/s/a/n] >")
        desk.type(f"y{ENTER}")
        await desk.printed("Done.\n")

    assert "no wait" in model.last(1)
    assert "Touch" in model.last(1)
    assert "denied" not in model.last(1)


async def test_the_mode_changes_within_what_is_locked(tmp_path: Path) -> None:
    """And the record says so."""
    async with chatting(tmp_path, Model()) as (desk, session, _):
        session.rights.policy = load_policy(None)
        desk.type(f"/mode bogus{ENTER}/mode acceptEdits{ENTER}/mode{ENTER}")
        await desk.printed("The mode is acceptEdits; there are default, acceptEdits")

        assert session.mode is Mode.ACCEPT_EDITS
        assert "there is no mode 'bogus'" in desk.paper.getvalue()

    [changed] = of(recorded(tmp_path), ModeChanged)
    assert (changed.before, changed.mode, changed.by) == ("default", "acceptEdits", "person")


async def test_another_model_answers_from_the_next_message_on(tmp_path: Path) -> None:
    """One that cannot be had leaves the one there is."""
    script = tmp_path / "other.yaml"
    script.write_text("name: other\nturns:\n  - text: I am another.\n")
    async with chatting(tmp_path, Model({"text": "First."}), first="hi") as (desk, _, _):
        await desk.printed("First.\n")
        desk.type(f"/model nonsense{ENTER}/model script:{script}{ENTER}")
        await desk.printed("The model is script:other from now on.")
        assert "/model: --model 'nonsense': write anthropic:NAME" in desk.paper.getvalue()
        desk.type(f"who?{ENTER}")
        await desk.printed("I am another.\n")

    assert [changed.model for changed in of(recorded(tmp_path), ModelChanged)] == ["script:other"]


async def test_a_conversation_that_goes_on_is_recalled(tmp_path: Path) -> None:
    """The last words of both sides, shown harmless and not at any length; calls are no words."""
    answer = "\n".join(["It is\x1b[2J done.", *(f"line {number}" for number in range(20))])
    async with make_session(Model(), tmp_path) as session, at_desk(tmp_path) as desk:
        session.messages.append({"role": "user", "content": [{"type": "text", "text": "do it"}]})
        session.messages.append({"role": "assistant", "content": [{"type": "text", "text": answer}, use("Bash")]})
        session.messages.append({"role": "user", "content": [{"type": "tool_result", "content": "x"}]})
        chat = Chat(session, desk.screen, desk.history, ConsoleView(desk.screen.printer).feed)
        chat.leave()
        with anyio.fail_after(10):
            await chat.hold()

    lines = ["> do it", "It is\\x1b[2J done.", *(f"line {number}" for number in range(11)), "... 9 lines more"]
    assert Text.from_ansi(desk.paper.getvalue()).plain.splitlines() == lines


@pytest.mark.parametrize("keys", [f"/quit{ENTER}", CTRL_D, CTRL_C + CTRL_C])
async def test_leaving_ends_what_runs(tmp_path: Path, keys: str) -> None:
    """A message that was not delivered is said to be so."""
    held, model = Held(), Model({"tools": [use("Slow")]})
    async with chatting(tmp_path, model, [make_tool("Slow", held)], first="go") as (desk, _, chat):
        await held.begun.wait()
        if keys != CTRL_C + CTRL_C:
            desk.type(f"one more thing{ENTER}")
            await desk.shows("waits: one more thing")
        desk.type(keys)
        await chat._left.wait()

    said = "not delivered: one more thing" in desk.paper.getvalue()
    assert (chat.interrupted, said) == ((True, False) if keys == CTRL_C + CTRL_C else (False, True))
    assert runs(tmp_path) == ["interrupted"]


@pytest.mark.parametrize("meanwhile", [True, False])
async def test_a_sandbox_that_is_gone_is_the_end(tmp_path: Path, meanwhile: bool) -> None:
    """There is nothing left to talk about, whether it was lost between runs or within one."""

    def dying(request: ModelRequest) -> Turn:
        raise SandboxError("the container died")

    with anyio.fail_after(20):
        async with at_desk(tmp_path) as desk, make_session(dying, tmp_path) as session:
            chat = Chat(session, desk.screen, desk.history, ConsoleView(desk.screen.printer).feed)
            async with anyio.create_task_group() as group:
                group.start_soon(chat.hold, None if meanwhile else "hi")
                await anyio.wait_all_tasks_blocked()
                if meanwhile:
                    session.fail(SandboxError("the container died"))

    assert runs(tmp_path) == ([] if meanwhile else ["sandbox_error"])
