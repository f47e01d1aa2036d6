"""Every change of a bundle is found, at its step; and one that somebody made anew from end to end does no harm."""

from __future__ import annotations

import copy
import hashlib
import json
import os
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import anyio
import pytest
from engine_session import use
from recording_rig import Parts, forged, parts_of, record, replay, steps_of, with_tree, write
from test_laying_out import DATA, KINDS

from sandbox_agent.cli.replay_run import replay as replay_command
from sandbox_agent.engine.replaying import Replaying
from sandbox_agent.errors import ConfigError, ReplayMismatchError, SandboxAgentError
from sandbox_agent.policy.load import load_policy
from sandbox_agent.records import bundle
from sandbox_agent.records.steps import canonical

TURNS: list[dict[str, Any]] = [
    {"text": "I look.", "tools": [use("Read", file_path="/workspace/a.txt"), use("Bash", command="echo hello")]},
    {"tools": [use("Task", description="one", prompt="[one]")]},
    {"tools": [use("Write", file_path="/workspace/b.txt", content="two\n"), use("Bash", command="rm -r /etc")]},
    {"text": "All done."},
]
ONE: list[dict[str, Any]] = [{"tools": [use("Bash", command="echo one")]}, {"text": "one is done"}]
TWO = hashlib.sha256(b"two\n").hexdigest()


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A bundle with everything in it: a sub-agent, a denial, a folder, and what a call changed in it."""
    folder = tmp_path_factory.mktemp("recorded")
    made = anyio.run(partial(record, TURNS, folder, agents={"[one]": ONE}))
    return with_tree(made, KINDS, [DATA, b"two\n"], {}, {}, {}, {}, {"b.txt": f"file 644 {TWO}"})


Place = tuple[Any, ...]


def leaves(value: Any, path: Place = ()) -> Iterator[Place]:
    """The paths of all values in a JSON value."""
    if isinstance(value, dict | list) and value:
        for key, one in value.items() if isinstance(value, dict) else enumerate(value):
            yield from leaves(one, (*path, key))
    else:
        yield path


def places(value: Any, path: Place = ()) -> Iterator[Place]:
    """The same, with those of objects and lists."""
    if path:
        yield path
    if isinstance(value, dict | list):
        for key, one in value.items() if isinstance(value, dict) else enumerate(value):
            yield from places(one, (*path, key))


def other(value: Any) -> Any:
    """Another value of the same kind, where there is one."""
    match value:
        case bool():
            return not value
        case int() | float():
            return value + 1
        case str():
            return value[:-1] + ("0" if value[-1:] != "0" else "1")
        case _:
            return "changed"


def of_another_kind(value: Any) -> Any:
    return "seven" if isinstance(value, int) else 7


def put(value: Any, path: Place, change: Callable[[Any], Any] = other) -> Any:
    """The value with another one at a path."""
    changed = copy.deepcopy(value)
    at = changed
    for key in path[:-1]:
        at = at[key]
    at[path[-1]] = change(at[path[-1]])
    return changed


def without(value: Any, path: Place) -> Any:
    changed = copy.deepcopy(value)
    at = changed
    for key in path[:-1]:
        at = at[key]
    del at[path[-1]]
    return changed


class Changed:
    """Bundles with one change each, of which each must fail at its step."""

    def __init__(self, file: Path, folder: Path) -> None:
        self.parts = parts_of(file)
        self.tried = 0
        self._file = folder / "run.bundle"

    def fails(self, parts: Parts, *steps: int) -> None:
        self.tried += 1
        with pytest.raises(ReplayMismatchError) as caught:
            bundle.read(write(self._file, parts))
        assert caught.value.step in steps, str(caught.value)
        assert caught.value.exit_code == 7

    def part_fails(self, name: str, lines: Sequence[bytes], step: int) -> None:
        self.fails({**self.parts, name: b"".join(lines)}, step)


def test_a_change_of_any_field_of_the_lock_or_a_step_fails_at_its_step(file: Path, tmp_path: Path) -> None:
    """Tried for every value that is there; so is what a branch goes by (`seq`), which no replay looks at."""
    changed = Changed(file, tmp_path)
    lock, steps = json.loads(changed.parts[bundle.LOCK]), steps_of(changed.parts)
    for path in leaves(lock):
        changed.fails({**changed.parts, bundle.LOCK: canonical(put(lock, path))}, 0)
    lines = changed.parts[bundle.STEPS].splitlines(keepends=True)
    names = set()
    for number, step in enumerate(steps):
        for path in leaves(step):
            names.add((step["kind"], path[-1]))
            line = canonical(put(step, path)) + b"\n"
            changed.part_fails(bundle.STEPS, [*lines[:number], line, *lines[number + 1 :]], number)
    assert {("request", "seq"), ("tree", "seq"), ("tree", "b.txt"), ("end", "tree_sha256")} <= names
    assert changed.tried > 1000


def test_steps_that_are_moved_missing_or_given_to_another_agent_fail_at_the_first(file: Path, tmp_path: Path) -> None:
    """Among all, and among those of one agent; also where the numbers fit."""
    changed = Changed(file, tmp_path)
    steps, lines = steps_of(changed.parts), changed.parts[bundle.STEPS].splitlines(keepends=True)
    for number in range(len(lines)):
        changed.part_fails(bundle.STEPS, [*lines[:number], *lines[number + 1 :]], number)
        changed.part_fails(bundle.STEPS, lines[:number], number)
        changed.part_fails(bundle.STEPS, [*lines[:number], lines[number], *lines[number:]], number + 1)
        later = next((at for at in range(number + 1, len(lines)) if steps[at]["agent"] == steps[number]["agent"]), None)
        if later is None:
            continue
        moved = list(lines)
        moved[number], moved[later] = moved[later], moved[number]
        changed.part_fails(bundle.STEPS, moved, number)
        numbered = [{**steps[later], "step": number}, {**steps[number], "step": later}]
        moved[number], moved[later] = (canonical(one) + b"\n" for one in numbered)
        changed.part_fails(bundle.STEPS, moved, number)
    assert {step["agent"] for step in steps} >= {"main", "agent-1"}


def test_a_change_of_the_record_the_folder_or_a_content_fails_at_its_step(file: Path, tmp_path: Path) -> None:
    """Every field of every event and of every path, every content; parts that are gone, added, or called otherwise."""
    changed = Changed(file, tmp_path)
    parts, steps = changed.parts, steps_of(changed.parts)
    last = len(steps) - 1
    events = [json.loads(line) for line in parts[bundle.EVENTS].splitlines()]
    lines = parts[bundle.EVENTS].splitlines(keepends=True)
    for number, event in enumerate(events):
        for path in leaves(event):
            line = canonical(put(event, path)) + b"\n"
            changed.part_fails(bundle.EVENTS, [*lines[:number], line, *lines[number + 1 :]], last)
    tree = json.loads(parts[bundle.TREE])
    for path in leaves(tree):
        changed.fails({**parts, bundle.TREE: canonical(put(tree, path))}, last)
    at = next(step["step"] for step in steps if step["kind"] == "tree" and step["data"]["changed"])
    for sha256, step in ((hashlib.sha256(DATA).hexdigest(), 0), (TWO, at)):
        name = bundle.BLOBS + sha256
        changed.fails({**parts, name: parts[name] + b"!"}, step)
        changed.fails({one: data for one, data in parts.items() if one != name}, last)
    changed.fails({**parts, bundle.BLOBS + hashlib.sha256(b"more").hexdigest(): b"more"}, last)
    changed.fails({**parts, bundle.BLOBS + "0" * 64: b"more"}, 0)
    changed.fails({**parts, "more.json": b"{}"}, 0)
    for name in (bundle.LOCK, bundle.STEPS, bundle.EVENTS, bundle.TREE):
        changed.fails({one: data for one, data in parts.items() if one != name}, 0, last)
    assert changed.tried > 300


def test_a_damaged_file_is_told_and_never_read_as_something_else(file: Path, tmp_path: Path) -> None:
    """A bit of every 61st byte, and every 397th length."""
    data, whole, damaged = file.read_bytes(), bundle.read(file), tmp_path / "damaged"
    tried = [data[:at] + bytes([data[at] ^ (1 << at % 8)]) + data[at + 1 :] for at in range(0, len(data), 61)]
    for one in (*tried, *(data[:length] for length in range(0, len(data), 397))):
        damaged.write_bytes(one)
        try:
            found = bundle.read(damaged)
        except (ReplayMismatchError, ConfigError):
            continue
        for name in ("lock", "steps", "events", "tree", "blobs"):
            assert getattr(found, name) == getattr(whole, name)


async def trial(changed: Path) -> str:
    """What a replay of the bundle comes to: nothing but our own errors may come out of it."""
    try:
        replaying, _ = await replay(changed)
    except SandboxAgentError as fault:
        return type(fault).__name__
    return "agrees" if replaying.agreed and replaying.fault is None else "differs"


@pytest.mark.parametrize("how", [without, partial(put, change=of_another_kind)], ids=["missing", "of another kind"])
async def test_a_bundle_of_another_make_is_refused_and_no_fault_of_ours(file: Path, tmp_path: Path, how: Any) -> None:
    """Once for every field of the lock and of each kind of step, with a chain that holds."""
    os.link(file, copied := tmp_path / "run.bundle")
    parts, outcomes, seen = parts_of(file), [], set()
    lock, steps = json.loads(parts[bundle.LOCK]), steps_of(parts)
    for path in places(lock):
        if len(path) == 1 or path[:2] == ("tools", 0) or path[0] in ("foreign", "base", "owner") or len(path) == 2:

            def in_lock(given: dict[str, Any], _: Any, path: Place = path) -> None:
                new = how(given, path)
                given.clear()
                given.update(new)

            outcomes.append(await trial(forged(copied, in_lock)))
    for number, step in enumerate(steps):
        for path in places(step["data"]):
            if (step["kind"], path[0], len(path)) in seen or len(path) > 2:
                continue
            seen.add((step["kind"], path[0], len(path)))

            def in_step(_: Any, given: list[dict[str, Any]], path: Place = path, number: int = number) -> None:
                given[number]["data"] = how(given[number]["data"], path)

            outcomes.append(await trial(forged(copied, in_step)))
    assert len(outcomes) > 100
    assert outcomes.count("ReplayMismatchError") > len(outcomes) / 3


def test_what_came_to_no_result_is_told_in_json(file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """One object, and the fault besides; a difference is one with its step."""
    (tmp_path / "text").write_text("no bundle")
    how: dict[str, Any] = {"workspace": None, "network": False, "as_json": True, "verbose": False}
    with pytest.raises(ConfigError):
        replay_command(tmp_path / "text", frozen=True, **how)
    document = json.loads(capsys.readouterr().out)
    assert (document["agrees"], "is no bundle" in document["error"]) == (None, True)
    parts = parts_of(file)
    changed = write(tmp_path / "run.bundle", {**parts, bundle.EVENTS: b""})
    assert replay_command(changed, frozen=True, **how) == 7
    document = json.loads(capsys.readouterr().out)
    assert (document["agrees"], document["difference"]["step"]) == (False, len(steps_of(parts)) - 1)


def hostile_policy(**changes: Any) -> Callable[[dict[str, Any], Any], None]:
    def change(lock: dict[str, Any], _: Any) -> None:
        lock["policy"].update(changes)

    return change


SERVER = {"name": "sums", "transport": "stdio", "place": "host", "command": ["sh", "-c", "touch /tmp/planted"]}


@pytest.mark.parametrize(
    "changes",
    [{"pids": "many"}, {"pids": 0}, {"memory_bytes": -1}, {"masks": [1]}, {"runtime": None}, {"new": 1}],
    ids=str,
)
def test_limits_that_no_policy_can_have_are_refused(file: Path, tmp_path: Path, changes: dict[str, Any]) -> None:
    """Before there is a container that would have them."""
    os.link(file, copied := tmp_path / "run.bundle")
    sandbox = {**json.loads(parts_of(file)[bundle.LOCK])["policy"]["sandbox"], **changes}
    with pytest.raises(ReplayMismatchError, match="step 0: the policy of the bundle cannot be used"):
        Replaying(bundle.read(forged(copied, hostile_policy(sandbox=sandbox))), frozen=False)


@pytest.mark.parametrize("place", ["host", "own"])
@pytest.mark.parametrize("frozen", [False, True])
def test_a_bundle_has_nothing_run_outside_of_the_container(
    file: Path, tmp_path: Path, place: str, frozen: bool
) -> None:
    """A server on this machine, or in a container of its own, is in no recording."""
    os.link(file, copied := tmp_path / "run.bundle")
    forgery = bundle.read(forged(copied, hostile_policy(servers=[{**SERVER, "place": place}])))
    with pytest.raises(ReplayMismatchError, match="outside of the session's container, which no recording has: sums"):
        Replaying(forgery, frozen=frozen)
    inside = bundle.read(forged(copied, hostile_policy(servers=[{**SERVER, "place": "session"}])))
    assert Replaying(inside, frozen=frozen).policy.servers[0].name == "sums"


def test_a_live_replay_reaches_the_recorded_hosts_only_where_that_is_said(file: Path, tmp_path: Path) -> None:
    """They are named; a frozen one reaches none."""
    os.link(file, copied := tmp_path / "run.bundle")
    hosts = [{"host": "example.org", "port": 443, "allow_private": False}]
    sandbox = {**json.loads(parts_of(file)[bundle.LOCK])["policy"]["sandbox"], "allow_hosts": hosts}
    made = bundle.read(forged(copied, hostile_policy(sandbox=sandbox)))
    with pytest.raises(ConfigError, match=r"could reach example\.org:443; --network lets the replay reach them"):
        Replaying(made, frozen=False)
    assert Replaying(made, frozen=True).policy.sandbox.allow_hosts
    assert Replaying(made, frozen=False, network=True).policy.sandbox.allow_hosts
    assert not load_policy(None).sandbox.allow_hosts
