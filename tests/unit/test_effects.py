"""Whose doing a change is: by what ran between two looks, what wrote it itself, and what only may have."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from engine_session import NoWorkspace

from sandbox_agent.engine import metering
from sandbox_agent.engine.effects import Doing, Effects
from sandbox_agent.events import CallEffects, Event, Notice
from sandbox_agent.sandboxes.base import ExecResult
from sandbox_agent.types import ToolResult
from sandbox_agent.workspaces.base import Kind
from sandbox_agent.workspaces.snapshot import Delta, Node


def delta(path: str) -> Delta:
    return Delta(path, "modified", Node(Kind.FILE, 0o644), Node(Kind.FILE, 0o644, sha256="a"))


def doing(call_id: str, **fields: Any) -> Doing:
    """A call that runs programs and may change something, unless said otherwise."""
    usual = {"tool": "Bash", "summary": f"run {call_id}", "agent_id": "main", "parent_id": None, "batch": 0}
    return Doing(call_id=call_id, **{**usual, "read_only": False, "runs_programs": True, **fields})


def looking(call_id: str, **fields: Any) -> Doing:
    return doing(call_id, read_only=True, **fields)


def editing(call_id: str, **fields: Any) -> Doing:
    return doing(call_id, tool="Edit", runs_programs=False, **fields)


class Desk:
    """Effects of calls that have ended, unless they are left open."""

    def __init__(self, *doings: Doing, wrote: dict[str, list[str]] | None = None, mode: str = "copy") -> None:
        self.events: list[Event] = []
        workspace = NoWorkspace()
        workspace.mode = mode
        self.effects = Effects(self.events.append, workspace)
        for one in doings:
            self.effects.begin(one)
            self.effects.end(one, ToolResult("", meta={"changed": (wrote or {}).get(one.call_id)}))

    async def look(self, *paths: str) -> list[str]:
        return await self.effects.looked(self.effects.look_begins(), [delta(path) for path in paths])

    @property
    def told(self) -> dict[str, CallEffects]:
        return {event.call_id: event for event in self.events if isinstance(event, CallEffects)}

    @property
    def notices(self) -> list[tuple[str, str]]:
        return [(event.level, event.text) for event in self.events if isinstance(event, Notice)]

    def changed(self, call_id: str) -> list[str]:
        return [one["path"] for one in self.told[call_id].changed or ()]


async def test_a_change_is_the_doing_of_the_call_that_ran() -> None:
    """And a call that declared it is accused of nothing."""
    desk = Desk(doing("a"))
    assert await desk.look("x", "y") == ["a"]
    assert desk.changed("a") == ["x", "y"]
    assert (desk.told["a"].contradictions, desk.told["a"].shared_with, desk.notices) == ((), (), [])


@pytest.mark.parametrize(
    "accused",
    [looking("a"), looking("a", tool="Read", runs_programs=False), looking("a", tool="mcp__x__y")],
)
async def test_a_call_that_was_to_read_only_and_changed_something_is_flagged(accused: Doing) -> None:
    """A command, a tool of ours, or somebody else's; the person is told what."""
    desk = Desk(accused)
    assert await desk.look("x") == ["a"]
    assert desk.told["a"].contradictions == ("changed_files",)
    [(level, text)] = desk.notices
    assert (level, "run a" in text, "changed x" in text) == ("warning", True, True)


async def test_several_that_may_have_done_it_name_each_other() -> None:
    """One line for the person, not one a call."""
    desk = Desk(looking("a"), looking("b"))
    await desk.look("x")
    assert (desk.told["a"].shared_with, desk.told["b"].shared_with) == (("b",), ("a",))
    assert desk.told["a"].contradictions == desk.told["b"].contradictions == ("changed_files",)
    assert len(desk.notices) == 1


async def test_a_reader_beside_a_writer_is_not_accused() -> None:
    """Nobody can know, and both say so."""
    desk = Desk(looking("a"), doing("b"))
    await desk.look("x")
    assert (desk.told["a"].shared_with, desk.told["a"].contradictions, desk.notices) == (("b",), (), [])


async def test_what_a_tool_wrote_itself_is_its_own() -> None:
    """With the folders made for it; the rest is that of the programs beside it, which then are accused alone."""
    desk = Desk(editing("e"), looking("a"), wrote={"e": ["/workspace/d/new", "/etc/x", "/workspacex/y"]})
    await desk.look("d", "d/new", "x")
    assert (desk.changed("e"), desk.changed("a")) == (["d", "d/new"], ["x"])
    assert (desk.told["e"].contradictions, desk.told["a"].contradictions) == ((), ("changed_files",))


async def test_what_another_programs_tool_says_of_itself_counts_for_nothing() -> None:
    """A tool that runs programs cannot put the blame elsewhere by naming paths."""
    desk = Desk(looking("m", tool="mcp__x__y"), doing("b"), wrote={"b": ["/workspace/x"]})
    await desk.look("x")
    assert desk.told["m"].shared_with == ("b",)


async def test_a_call_that_still_runs_is_told_after_the_next_look() -> None:
    """It may have done what was seen by now, and may do more."""
    desk = Desk(doing("a"))
    long = doing("long")
    desk.effects.begin(long)
    assert await desk.look("x") == ["a", "long"]
    assert set(desk.told) == {"a"}

    desk.effects.end(long, None)
    await desk.look("y")
    assert (desk.changed("long"), desk.told["long"].shared_with) == (["x", "y"], ("a",))


async def test_a_call_that_left_a_job_is_followed_until_that_has_ended() -> None:
    """What the job changes is the call's doing, by look; calls beside it that only read are not accused of it."""
    desk = Desk()
    starting = doing("j")
    desk.effects.begin(starting)
    assert desk.effects.keep("j", "agent-1") is None
    assert desk.effects.keep("j", "main") is starting
    desk.effects.end(starting, ToolResult("started"))
    assert not desk.effects.unseen()
    assert await desk.look("x") == ["j"]
    reading = looking("r")
    desk.effects.begin(reading)
    desk.effects.end(reading, ToolResult(""))
    assert await desk.look() == []
    beside = looking("s")
    desk.effects.begin(beside)
    desk.effects.end(beside, ToolResult(""))
    assert await desk.look("y") == ["j", "s"]
    assert ("j" in desk.told, desk.told["s"].contradictions, desk.notices) == (False, (), [])

    desk.effects.release(starting)
    assert desk.effects.unseen(writers=True)
    await desk.look("z")
    assert (desk.changed("j"), desk.told["j"].shared_with) == (["x", "y", "z"], ("s",))


async def test_a_job_that_was_to_read_only_is_accused_once() -> None:
    """However often it is seen to change something."""
    desk = Desk()
    starting = looking("j")
    desk.effects.begin(starting)
    desk.effects.keep("j", "main")
    desk.effects.end(starting, ToolResult("started"))
    await desk.look("x")
    await desk.look("y")
    assert [level for level, _ in desk.notices] == ["warning"]


async def test_without_a_look_the_changes_are_unknown_and_the_rest_is_told() -> None:
    """Nothing is made up."""
    quiet = looking("a")
    quiet.meter.add(ExecResult(3, b"", leftover_processes=2, cpu_s=0.5, max_rss_bytes=100))
    desk = Desk(quiet)
    desk.effects.blind()
    told = desk.told["a"]
    assert (told.changed, told.exit_code, told.left_processes, told.cpu_s) == (None, 3, 2, 0.5)
    assert not desk.effects.pending


@pytest.mark.parametrize(("one", "level"), [(looking("a"), "warning"), (doing("a"), "info")])
async def test_processes_left_behind_are_told(one: Doing, level: str) -> None:
    """Louder where the call was to read only."""
    one.meter.add(ExecResult(0, b"", leftover_processes=2))
    desk = Desk(one)
    await desk.look()
    assert (desk.told["a"].contradictions, desk.told["a"].left_processes) == (("left_processes",), 2)
    [(seen, text)] = desk.notices
    assert (seen, "2 processes" in text) == (level, True)


async def test_in_a_bound_folder_the_doubt_is_said() -> None:
    """The person may have changed it in the same moment."""
    desk = Desk(looking("a"), mode="bind")
    await desk.look("x")
    assert "somebody else" in desk.notices[0][1]


@pytest.mark.parametrize(
    ("doings", "writers", "unseen"),
    [
        ((), False, False),
        ((looking("a"),), False, True),
        ((looking("a"),), True, False),
        ((doing("a"),), True, True),
        ((editing("a"), looking("b", runs_programs=False)), False, False),
    ],
)
def test_only_programs_have_to_be_looked_after(doings: Sequence[Doing], writers: bool, unseen: bool) -> None:
    """What our own tools do is known without."""
    assert unseen == Desk(*doings).effects.unseen(writers=writers)


def test_programs_of_a_call_count_together_and_those_of_nobody_not() -> None:
    """CPU adds up, the largest process stays, the last exit code stands."""
    meter = metering.Meter()
    metering.count(ExecResult(9, b"", leftover_processes=9))
    with metering.metered(meter):
        metering.count(ExecResult(1, b"", cpu_s=0.5, max_rss_bytes=300, timed_out=True, leftover_processes=1))
        metering.count(ExecResult(0, b"", cpu_s=0.25, max_rss_bytes=200, oom_killed=True))
        metering.count(ExecResult(0, b""))
    metering.count(ExecResult(9, b"", leftover_processes=9))
    assert meter == metering.Meter(1, 0, True, True, 0.75, 300)


async def test_hosts_are_of_the_programs_that_ran_when_they_were_asked_for() -> None:
    """Calls beside each other have all of them; one that runs no programs, or had ended, has none; each host once."""
    desk = Desk(doing("before"))
    open_ones = [doing("a"), doing("b"), editing("c")]
    for one in open_ones:
        desk.effects.begin(one)
    assert desk.effects.asked("a.org:443", None) == ("a", "b")
    assert desk.effects.asked("b.org:80", "b.org:80 is not listed") == ("a", "b")
    assert desk.effects.asked("a.org:443", None) == ("a", "b")
    assert desk.effects.asked("", "no request") == ("a", "b")
    for one in open_ones:
        desk.effects.end(one, ToolResult(""))
    assert desk.effects.asked("late.org:1", None) == ()

    await desk.look()
    assert {call_id: event.hosts for call_id, event in desk.told.items()} == {
        "before": (),
        "a": ("a.org:443", "b.org:80"),
        "b": ("a.org:443", "b.org:80"),
        "c": (),
    }
    assert [list(one.refusals) for one in open_ones] == [["b.org:80 is not listed"]] * 2 + [[]]


def test_a_call_that_only_asks_the_network_has_its_hosts() -> None:
    """And is looked at no further: it runs no program that could change anything."""
    told: list[Event] = []
    effects = Effects(told.append)
    fetch = doing("c1", read_only=True, runs_programs=False, sends_out=True)
    effects.begin(fetch)
    effects.begin(doing("c2", read_only=True, runs_programs=False))
    assert effects.asked("a.test:443", "a.test:443 is not in sandbox.allow_hosts") == ("c1",)
    assert list(fetch.hosts) == ["a.test:443"]
    assert list(fetch.refusals) == ["a.test:443 is not in sandbox.allow_hosts"]
    effects.end(fetch, None)
    assert not effects.unseen()


async def test_bytes_are_a_calls_own_only_where_no_other_could_have_asked() -> None:
    """A reader of files between two commands takes nothing from either; two commands at once know nothing."""
    gone = [0, 0]
    desk = Desk()
    desk.effects.traffic = lambda: (gone[0], gone[1])
    alone, reader = doing("alone"), looking("reader", tool="Read", runs_programs=False)
    desk.effects.begin(alone)
    desk.effects.begin(reader)
    gone[:] = [10, 200]
    desk.effects.end(alone, ToolResult(""))
    desk.effects.end(reader, ToolResult(""))
    one, other = doing("one"), doing("other")
    desk.effects.begin(one)
    desk.effects.begin(other)
    gone[:] = [11, 300]
    for left in (one, other):
        desk.effects.end(left, ToolResult(""))
    later = doing("later", runs_programs=False, sends_out=True)
    desk.effects.begin(later)
    gone[:] = [16, 305]
    desk.effects.end(later, ToolResult(""))
    await desk.look()

    found = {name: (event.sent_bytes, event.received_bytes) for name, event in desk.told.items()}
    nothing = (None, None)
    assert found == {"alone": (10, 200), "reader": nothing, "one": nothing, "other": nothing, "later": (5, 5)}
