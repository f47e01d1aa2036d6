"""A branch of a recorded run: a new session that begins where the recorded one was at a step, and goes on for real.

It has the conversation of the first agent up to the request before that step, and a folder of its own with the tree as
it was then. Nothing of the recorded run's model or policy is in it.
"""

from __future__ import annotations

import shutil
from dataclasses import dataclass, replace
from pathlib import Path

from sandbox_agent import __version__
from sandbox_agent.config import sessions_dir
from sandbox_agent.engine.forking import CONVERSATION
from sandbox_agent.engine.past import EVENTS_FILE, conversation_entries, new_session_id
from sandbox_agent.engine.recorded_tree import after, materialise
from sandbox_agent.errors import ConfigError
from sandbox_agent.events import SessionStarted
from sandbox_agent.records.bundle import Bundle
from sandbox_agent.records.steps import Step
from sandbox_agent.tape import TapeWriter, read_tape

_BUNDLED = "bundled.jsonl"


@dataclass(frozen=True, slots=True)
class Branch:
    """The new session, and the step with which it begins."""

    session_id: str
    step: int


def branch(bundle: Bundle, number: int, folder: Path) -> Branch:
    """Make the session and its folder.

    Args:
        bundle: what was recorded.
        number: a step of the bundle; it begins with the first agent's last request up to there.
        folder: is made, and gets the tree.

    Raises:
        ConfigError: there is no such step, the bundle does not have the tree, or the folder is there already.
        ReplayMismatchError: the bundle does not have a content of the tree.
        OSError: the system refused.
    """
    request = _request(bundle, number)
    if bundle.tree is None:
        raise ConfigError(f"{bundle.path}: does not have the folder, so no tree of it can be brought back")
    changed = [step.data["changed"] for step in bundle.steps[: request.number] if step.kind == "tree"]
    try:
        folder.mkdir(parents=True)
    except FileExistsError:
        raise ConfigError(f"-w {folder}: is there already; name a folder that does not exist yet") from None
    try:
        materialise(after(bundle.tree, changed), bundle.blobs, folder)
        return Branch(_session(bundle, request, folder.resolve()), request.number)
    except BaseException:
        shutil.rmtree(folder)
        raise


def _request(bundle: Bundle, number: int) -> Step:
    if not 0 <= number < len(bundle.steps):
        raise ConfigError(f"--from {number}: steps are 0 to {len(bundle.steps) - 1}")
    asked = [step for step in bundle.steps if step.kind == "request" and step.agent == "main"]
    found = [step for step in asked if step.number <= number] or asked[:1]
    if not found:
        raise ConfigError(f"{bundle.path}: nothing was asked of a model in this run")
    return found[-1]


def _session(bundle: Bundle, request: Step, folder: Path) -> str:
    child = sessions_dir() / new_session_id()
    child.mkdir(mode=0o700)
    try:
        bundled = child / _BUNDLED
        bundled.write_bytes(bundle.events)
        entries = [entry for entry in read_tape(bundled).entries if entry.seq <= request.data["seq"]]
        bundled.unlink()
        started = next(entry.event for entry in entries if isinstance(entry.event, SessionStarted))
        writer = TapeWriter(child / EVENTS_FILE)
        try:
            writer.append(
                replace(
                    started,
                    session_id=child.name,
                    workspace=str(folder),
                    version=__version__,
                    resumed_from=None,
                    forked_from=started.session_id,
                    forked_step=request.number,
                )
            )
            for entry in conversation_entries(entries):
                if isinstance(entry.event, CONVERSATION):
                    writer.append(entry.event)
            writer.sync()
        finally:
            writer.close()
    except BaseException:
        shutil.rmtree(child)
        raise
    return child.name
