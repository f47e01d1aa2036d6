"""A branch of a recorded run: a new session that begins where the recorded one was at a step, and goes on for real.

It has the conversation of the first agent up to the request before that step, a folder of its own with the tree as it
was then, and the image. Nothing else of the recorded run's settings is in it: a bundle comes from anywhere.
"""

from __future__ import annotations

import shutil
from dataclasses import dataclass, replace
from pathlib import Path

from sandbox_agent import __version__
from sandbox_agent.config import sessions_dir
from sandbox_agent.engine.forking import CONVERSATION
from sandbox_agent.engine.laying_out import FOR_PEOPLE, after, lay_out
from sandbox_agent.engine.past import EVENTS_FILE, conversation_entries, new_session_id
from sandbox_agent.errors import ConfigError, ReplayMismatchError
from sandbox_agent.events import SessionStarted
from sandbox_agent.records.bundle import Bundle
from sandbox_agent.records.steps import Step
from sandbox_agent.tape import TapeWriter, read_tape
from sandbox_agent.types import JsonObject
from sandbox_agent.workspaces.removal import remove_tree

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
        ConfigError: there is no such step, the bundle does not have the tree, or the folder cannot be made.
        ReplayMismatchError: no tree can be as it is in the bundle.
        RecordError: the record in the bundle cannot be read.
        OSError: the system refused.
    """
    request = _request(bundle, number)
    tree = _tree(bundle, request)
    try:
        folder.mkdir(parents=True)
    except FileExistsError:
        raise ConfigError(f"-w {folder}: is there already; name a folder that does not exist yet") from None
    except OSError as exc:
        raise ConfigError(f"-w {folder}: cannot be made: {exc.strerror}") from exc
    try:
        lay_out(tree, bundle.blobs, folder, bits=FOR_PEOPLE)
        return Branch(_session(bundle, request, folder.resolve()), request.number)
    except BaseException:
        whole = folder.resolve()
        remove_tree(whole.parent, whole.name)
        raise


def _tree(bundle: Bundle, request: Step) -> list[JsonObject]:
    """The tree as it was when a request went out."""
    if bundle.tree is None:
        why = bundle.lock["base"].get("left_out") or "it is large; --record-tree keeps it"
        raise ConfigError(f"{bundle.path}: does not have the folder ({why}), so no tree of it can be brought back")
    changed = [step.data["changed"] for step in bundle.steps[: request.number] if step.kind == "tree"]
    tree = after(bundle.tree, changed, int(bundle.lock["recorded_unix_s"]) * 10**9)
    left_out = bundle.steps[-1].data.get("left_out", {})
    for entry in tree:
        if entry.get("sha256") in left_out:
            why = f"does not have {entry['path']} as it was then: {left_out[entry['sha256']]}"
            raise ConfigError(f"{bundle.path}: {why}; begin with an earlier step")
    return tree


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
        started = next((entry.event for entry in entries if isinstance(entry.event, SessionStarted)), None)
        if started is None:
            raise ReplayMismatchError(f"step {request.number}: the record in the bundle has no beginning", step=0)
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
                    sandbox={},
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
