"""Drift: what others change in the person's folder while a session runs, looked for now and then, and told once.

What was told is known by the events themselves, so a session that is gone on with does not say it again.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence

import anyio

from sandbox_agent.errors import WorkspaceError
from sandbox_agent.events import Event, FolderDrifted
from sandbox_agent.workspaces.base import Drift
from sandbox_agent.workspaces.manifest import in_git

TOLD_PATHS = 1000
LOOK_EVERY_S = 30.0
LOOK_SHARE = 50
"""Looking may take no more than this part of the time: a large folder is looked at less often."""


def news(found: Sequence[Drift], told: Mapping[str, str]) -> list[Drift]:
    """What of it was not told yet in this state; what lies in a git folder as that folder."""
    return [drift for drift in together(found) if told.get(drift.path) != drift.state]


def together(found: Sequence[Drift]) -> list[Drift]:
    """Drift as people are told it: all that lies in a git folder is one modification of that folder."""
    plain, git = [], dict[str, list[Drift]]()
    for drift in found:
        if in_git(drift.path):
            parts = drift.path.split("/")
            end = next(count for count, part in enumerate(parts, 1) if in_git(part))
            git.setdefault("/".join(parts[:end]), []).append(drift)
        else:
            plain.append(drift)
    for folder, inside in git.items():
        state = hashlib.sha256(repr(inside).encode("utf-8", "surrogateescape")).hexdigest()[:16]
        plain.append(Drift(folder, inside[0].kind if inside[0].path == folder else "modified", state))
    return sorted(plain)


def event_of(drift: Sequence[Drift]) -> FolderDrifted:
    """The event that tells it."""
    return FolderDrifted(changed=tuple(one._asdict() for one in drift[:TOLD_PATHS]), changed_count=len(drift))


def told_by(events: Iterable[Event]) -> dict[str, str]:
    """Path to the state that was last told of it."""
    told: dict[str, str] = {}
    for event in events:
        if isinstance(event, FolderDrifted):
            told |= {str(one["path"]): str(one["state"]) for one in event.changed}
    return told


async def look_now_and_then(look: Callable[[], Awaitable[None]], *, every_s: float = LOOK_EVERY_S) -> None:
    """Look until cancelled, or until the folder cannot be looked at: the review says what is wrong with it."""
    wait_s = every_s
    while True:
        await anyio.sleep(wait_s)
        started_s = time.monotonic()
        try:
            await look()
        except (WorkspaceError, OSError):
            return
        wait_s = max(every_s, LOOK_SHARE * (time.monotonic() - started_s))
