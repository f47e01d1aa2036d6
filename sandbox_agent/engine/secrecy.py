"""What no record, front end or model may get to see of a session: what its masked files hold, and the person's keys.

Every event passes through here once, before anything else has it (`Session.emit`), so no sink can be forgotten. What
runs is untouched: decisions and digests are about the true bytes. Streamed text is held back as far as it could be the
beginning of a secret, so that none gets out in two pieces.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path

import anyio
import anyio.to_thread

from sandbox_agent.engine.told import shown
from sandbox_agent.events import AssistantMessage, Event, ModelRetrying, RunFinished, TextDelta, ThinkingDelta
from sandbox_agent.events.redaction import MAX_SECRETS, Redactor, Secret
from sandbox_agent.workspaces.base import Workspace
from sandbox_agent.workspaces.manifest import Manifest
from sandbox_agent.workspaces.record import MANIFEST_NAME
from sandbox_agent.workspaces.secretvalues import Values, inner_password, masked_values, pairs, worth

_SECRET_NAME = re.compile(
    r"(?:^|_)(?:TOKEN|SECRET|API_?KEY|KEY|PASSWORD|PASSWD|PASS|PASSPHRASE|PWD|CREDENTIALS?|AUTH|PAT|DSN)(?:_\w+)?$"
    r"|(?:TOKEN|SECRET|PASSWORD|APIKEY)$",
    re.IGNORECASE,
)
_FOLDERS = ("PWD", "OLDPWD")

LONGEST_WAIT_S = 1.0
"""For the values in masked files, before the task goes into the record: a folder may take long to be copied."""


def environment_secrets(environ: Mapping[str, str]) -> Iterator[Secret]:
    """The values of variables that are called like secrets, and passwords in URLs of any."""
    for name, value in environ.items():
        if name in _FOLDERS:
            continue
        if _SECRET_NAME.search(name):
            # The name of a secret: whatever is in it counts, but for what stands everywhere.
            found = list(pairs("secret", value))
        else:
            password = inner_password(value)
            found = [("", password)] if password and worth("password", password) else []
        yield from (Secret(f"environment {name}", text) for _, text in found)


def redactor_of(state_dir: Path, host: Path) -> Redactor:
    """For a session that another process left in its state folder.

    Raises:
        WorkspaceError: the person's folder is gone.
    """
    redactor = Redactor(environment_secrets(os.environ))
    manifest = state_dir / MANIFEST_NAME
    if manifest.exists():
        redactor.add(_secrets(masked_values(host, Manifest.load(manifest).masked)))
    return redactor


def _secrets(found: Values) -> Iterator[Secret]:
    return (Secret(f"{one.path} {one.name}".rstrip(), one.text) for one in found.values)


class Secrecy:
    """The secrets of one session."""

    def __init__(self, environ: Mapping[str, str] = os.environ) -> None:
        self.redactor = Redactor(environment_secrets(environ))
        self.notes: tuple[str, ...] = ()
        self._known: anyio.Event | None = None
        self._held: dict[tuple[str, type[Event]], Event] = {}

    def expect(self) -> None:
        """Somebody is going to call `learn`, or `give_up`."""
        self._known = anyio.Event()

    async def learn(self, workspace: Workspace) -> None:
        """Take up what is in the workspace's masked files.

        Raises:
            WorkspaceError: the person's folder is gone.
        """
        try:
            masked = workspace.masked
            if masked:
                self.notes = await anyio.to_thread.run_sync(self._learn, workspace, masked)
        finally:
            self.give_up()

    async def known(self) -> None:
        """Wait until the masked files are read, but not for long."""
        if self._known is not None:
            with anyio.move_on_after(LONGEST_WAIT_S):
                await self._known.wait()

    def give_up(self) -> None:
        """Nobody will read the masked files any more."""
        if self._known is not None:
            self._known.set()

    def _learn(self, workspace: Workspace, masked: Mapping[str, str]) -> tuple[str, ...]:
        found = masked_values(workspace.host, masked)
        left_out = self.redactor.add(_secrets(found))
        notes = []
        if found.unread:
            notes.append(
                f"masked, but their values are not known here and would not be recognised elsewhere (too large, or not "
                f"readable): {shown(list(found.unread))}"
            )
        if left_out:
            notes.append(f"the masked files hold more than {MAX_SECRETS:,} values; {left_out:,} are not looked for")
        return tuple(notes)

    def pass_on(self, event: Event) -> Iterator[Event]:
        """The event as everybody may have it; before it what was held back, if it ends that."""
        if isinstance(event, TextDelta | ThinkingDelta):
            yield from self._stream(event)
            return
        if isinstance(event, AssistantMessage | RunFinished | ModelRetrying):
            held = self._let_go(event.agent_id)
            if not isinstance(event, ModelRetrying):  # what streamed so far is void
                yield from held
        yield self.redactor.event(event)

    def _stream(self, event: TextDelta | ThinkingDelta) -> Iterator[Event]:
        key = (event.agent_id, type(event))
        earlier = self._held.pop(key, None)
        yield from self._let_go(event.agent_id)  # text ends thinking, and the other way round
        text = (earlier.text if isinstance(earlier, TextDelta | ThinkingDelta) else "") + event.text
        cut = self.redactor.held_from(text)
        if cut < len(text):
            self._held[key] = replace(event, text=text[cut:])
        if cut:
            yield replace(event, text=self.redactor.text(text[:cut]))

    def _let_go(self, agent_id: str) -> list[Event]:
        keys = [key for key in self._held if key[0] == agent_id]
        return [self.redactor.event(self._held.pop(key)) for key in keys]
