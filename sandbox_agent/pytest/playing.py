"""What the fixtures do: scripts for the model, runs in real containers, and replays without any.

A run has an event loop of its own in a thread of its own, so that it works in tests of any kind.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import aclosing
from pathlib import Path
from typing import Any, TypeVar

from anyio.from_thread import start_blocking_portal

from sandbox_agent.embedding.running import run as embedded
from sandbox_agent.engine.frozen import open_frozen
from sandbox_agent.engine.loop import run
from sandbox_agent.engine.replaying import Replaying
from sandbox_agent.errors import ReplayMismatchError
from sandbox_agent.events import Event
from sandbox_agent.frontends.difference import difference_lines
from sandbox_agent.models.script_file import Script, read_script
from sandbox_agent.models.scripted import ScriptedModel
from sandbox_agent.pytest.outcome import Outcome
from sandbox_agent.records.bundle import read

T = TypeVar("T")

TASK = "Do the task."


class Scripts:
    """See `scripted`."""

    def __init__(self, beside: Path, folder: Path) -> None:
        self._beside = beside
        self._folder = folder
        self._number = itertools.count(1)

    def __call__(self, script: str | Path | Sequence[Mapping[str, Any]], **options: Any) -> str:
        """A model for `sandbox_session`, and for the option `model` of `sandbox_agent.run`.

        Args:
            script: a YAML file, relative to the test's own folder; or the turns, as in such a file.
            options: with turns, other keys of the file, such as `window_tokens`.

        Raises:
            ConfigError: it is no script; the text says where.
        """
        if isinstance(script, str | Path):
            path = self._beside / script
            read_script(path, Script)
            return f"script:{path}"
        ScriptedModel(script)  # says what is wrong with a turn, here and not in the middle of a run
        folder = self._folder / ".scripts"
        folder.mkdir(exist_ok=True)
        path = folder / f"script-{next(self._number)}.yaml"
        path.write_text(json.dumps({"turns": list(script), **options}), encoding="utf-8")
        return f"script:{path}"


class Sessions:
    """See `sandbox_session`."""

    def __init__(self, beside: Path) -> None:
        self._beside = beside

    def __call__(self, workspace: str | Path, model: str, policy: str | Path = "default", **options: Any) -> Outcome:
        """Run a task to its end.

        Args:
            workspace: the folder, relative to the test's own; it stays as it is unless `apply="always"` is given.
            model: of `scripted`, or any other that `sandbox_agent.run` takes.
            policy: a shipped one by name, or a file relative to the test's folder.
            options: `task`, and all options of `sandbox_agent.run`.

        Raises:
            SandboxAgentError: the run could not begin, see `sandbox_agent.run`.
        """
        named = self._beside / policy
        chosen = str(named) if named.is_file() else str(policy)
        task = str(options.pop("task", TASK))
        folder = self._beside / workspace

        async def play() -> Outcome:
            going = embedded(task, workspace=folder, model=model, policy=chosen, **options)
            events = [event async for event in going]
            return Outcome(tuple(events), going.result)

        return _apart(play)


class Frozen:
    """See `frozen_bundle`."""

    def __init__(self, beside: Path) -> None:
        self._beside = beside

    def __call__(self, bundle: str | Path) -> Outcome:
        """Replay a bundle, relative to the test's own folder: the loop, the gate and the policy are this version's, the
        model's answers and the results of the tools are the bundle's.

        Raises:
            AssertionError: something differs from what was recorded; the text has both sides.
            ConfigError, ReplayMismatchError: the file is no bundle that can be replayed.
        """
        replaying = Replaying(read(self._beside / bundle), frozen=True)

        async def play() -> Outcome:
            events: list[Event] = []
            try:
                async with open_frozen(replaying) as session, aclosing(run(session, replaying.task)) as going:
                    async for event in going:
                        events.append(event)
            except ReplayMismatchError as fault:
                replaying.fault = replaying.fault or fault
            return Outcome(tuple(events))

        found = _apart(play)
        fault = replaying.fault
        if fault is not None:
            raise AssertionError("\n".join([str(fault), *difference_lines(fault)]))
        if not replaying.agreed:
            raise AssertionError(f"{bundle}: the replay did not come to the recorded end")
        return found


def _apart(play: Callable[[], Awaitable[T]]) -> T:
    """In a thread of its own; whoever interrupts the test interrupts the run, which removes its container."""
    with start_blocking_portal("asyncio") as portal:
        future = portal.start_task_soon(play)
        try:
            return future.result()
        except BaseException:
            future.cancel()
            raise
