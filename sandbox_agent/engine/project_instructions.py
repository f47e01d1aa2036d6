"""What a folder says to agents (AGENTS.md, CLAUDE.md) is given to the model before the task, as text of somebody who is
not trusted, and never read as configuration.

Files are read in the container, where a link leads nowhere but in there. The host only looks whether one of the names
is in the folder, without following or opening anything, so that a run on a folder without them waits for nothing.
"""

from __future__ import annotations

import codecs
import hashlib
import os
import re
import unicodedata
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import anyio
import anyio.to_thread

from sandbox_agent.engine.session import Session
from sandbox_agent.events import Notice, ProjectInstructions
from sandbox_agent.prompts import prompt
from sandbox_agent.sandboxes.base import FileKind, PathInfo
from sandbox_agent.types import WORKSPACE_MOUNT, JsonObject, PathAccess, PermissionRequest, Subject, Verdict

FILE_NAMES = ("AGENTS.md", "CLAUDE.md")
"""In the folder itself, in this order; those of folders below are the model's to read."""

MAX_BYTES = 32 * 1024
"""Given of one file."""

READ_S = 10.0
"""For one file: its digest takes reading all of it, and it may be of any size."""

_MARK_CHARS = 12
_OPENS_OR_CLOSES = re.compile(r"<(?=\s*/?\s*project-notes)", re.IGNORECASE)
_UNSEEN = frozenset({"Cc", "Cf", "Cs", "Co", "Zl", "Zp"})
_SELECTORS = (range(0xFE00, 0xFE0F), range(0xE0100, 0xE01F0))
"""Variation selectors, of which any number fits behind one letter; U+FE0F is in every other emoji."""


@dataclass(frozen=True, slots=True)
class Found:
    """A file that is there. `why_not` says why nothing of it is given; `notes` what is left out or changed."""

    name: str
    size_bytes: int = 0
    sha256: str | None = None
    text: str = ""
    why_not: str | None = None
    notes: tuple[str, ...] = ()


async def attach(session: Session, *, fresh: bool) -> None:
    """Have the first request wait for them, where the policy wants them and they may be there.

    `fresh`: the session begins with the person's folder as it is now.
    """
    # The tree of another session, gone on with or forked from, need not have what the folder has.
    if session.policy.project_instructions and (
        not fresh or await anyio.to_thread.run_sync(may_be_there, session.workspace.host)
    ):
        session.before_task = partial(give, session)


def may_be_there(folder: Path) -> bool:
    """Whether the person's folder has one of the names, whatever it is; links are not followed."""
    return any(os.path.lexists(folder / name) for name in FILE_NAMES)


async def give(session: Session) -> None:
    """Put what the folder says into a conversation that has not begun, and tell the person; waits for the sandbox.

    Raises:
        SandboxError: it is gone, or did not come up.
    """
    if session.messages:  # it goes on, with what was given at its beginning
        return
    await session.sandbox.start()
    infos = await session.sandbox.resolve([f"{WORKSPACE_MOUNT}/{name}" for name in FILE_NAMES])
    found: list[Found] = []
    for name, info in zip(FILE_NAMES, infos, strict=True):
        one = await _look(session, name, info)
        if one is not None:
            _add(found, one)
    for one in found:
        if one.why_not is not None:
            session.emit(Notice(level="warning", text=f"{one.name} was not given to the model: {one.why_not}"))
    given = [one for one in found if one.why_not is None]
    if given:
        session.emit(_message(given))
        told = ", ".join(_told(one) for one in given)
        session.emit(Notice(level="info", text=f"given to the model as untrusted text: {told}"))


async def _look(session: Session, name: str, info: PathInfo) -> Found | None:
    """A file as it is to be given, or why not; None where there is none."""
    mask = session.ctx.masked(info.path) or session.ctx.masked(info.resolved)
    if mask is not None:
        return Found(name, why_not=f"it is masked ({mask})")
    if info.resolved != info.path and not info.resolved.startswith(f"{WORKSPACE_MOUNT}/"):
        return Found(name, why_not="it is a link that leads out of the folder")
    if info.kind is FileKind.MISSING:
        return None if info.resolved == info.path else Found(name, why_not="it is a link that leads nowhere")
    if info.kind is not FileKind.FILE:
        return Found(name, why_not="it is a folder" if info.kind is FileKind.DIRECTORY else "it is no regular file")
    refused = _refused(session, info)
    if refused is not None:
        return Found(name, why_not=refused)
    return await _read(session, name, info)


def _refused(session: Session, info: PathInfo) -> str | None:
    """What the policy has against reading it; nobody is asked."""
    access = PathAccess(info.path, write=False, resolved=info.resolved)
    digest = hashlib.sha256(info.path.encode()).hexdigest()
    request = PermissionRequest("Read", Subject(info.path, (access,)), digest, read_only=True)
    decision = session.policy.decide(request, session.mode)
    return None if decision.verdict is Verdict.ALLOW else f"the policy does not let it be read: {decision.reason}"


async def _read(session: Session, name: str, info: PathInfo) -> Found:
    try:
        with anyio.fail_after(READ_S):
            file = await session.sandbox.read_file(info.path, limit_bytes=MAX_BYTES, resolved=info.resolved)
    except TimeoutError:
        return Found(name, why_not=f"it could not be read in {READ_S:g} s")
    except OSError as exc:
        return Found(name, why_not=f"it cannot be read ({exc.strerror or exc})")
    return _readable(Found(name, file.size_bytes, file.sha256), file.data)


def _readable(file: Found, data: bytes) -> Found:
    """The text in some bytes: nothing in it that a person would not see, and nothing that ends its marks."""
    cut = len(data) < file.size_bytes
    text = codecs.getincrementaldecoder("utf-8")("replace").decode(data, final=not cut)
    notes = []
    replaced = text.count("\ufffd") - data.count("\ufffd".encode())
    if replaced:
        notes.append(f"{replaced:,} {'places are' if replaced > 1 else 'place is'} not UTF-8")
    plain = text.removeprefix("\ufeff").replace("\r\n", "\n")
    shown = "".join(_escaped(char) if _is_unseen(char) else char for char in plain)
    unseen = sum(map(_is_unseen, plain))
    if unseen:
        notes.append(f"{unseen:,} invisible character{'s' if unseen > 1 else ''} written out")
    shown = _OPENS_OR_CLOSES.sub("&lt;", shown)
    if cut or len(shown) > MAX_BYTES:
        shown = shown[:MAX_BYTES]
        notes.insert(0, f"cut, of {file.size_bytes:,} bytes")
    if not shown.strip():
        return replace(file, why_not="it is empty")
    return replace(file, text=shown.strip("\n"), notes=tuple(notes))


def _is_unseen(char: str) -> bool:
    """Control and format characters (bidi, zero-width, tags), half surrogates, private use, variation selectors."""
    if char in "\n\t":
        return False
    return unicodedata.category(char) in _UNSEEN or any(ord(char) in selectors for selectors in _SELECTORS)


def _escaped(char: str) -> str:
    return f"\\u{{{ord(char):04x}}}"


def _add(found: list[Found], one: Found) -> None:
    """The same content is given once; often one of the files is a link to the other."""
    for place, earlier in enumerate(found):
        if one.why_not is None and earlier.why_not is None and earlier.sha256 == one.sha256:
            found[place] = replace(earlier, notes=(*earlier.notes, f"{one.name} is the same"))
            return
    found.append(one)


def _message(given: list[Found]) -> ProjectInstructions:
    text = prompt("engine/project_instructions").format(blocks="\n\n".join(map(_block, given)))
    return ProjectInstructions(content=({"type": "text", "text": text},), files=tuple(map(_entry, given)))


def _block(one: Found) -> str:
    # The mark hangs on the text, so that no text can hold its own; and it is the same each time, for the prompt cache.
    mark = hashlib.sha256(one.text.encode()).hexdigest()[:_MARK_CHARS]
    note = f"\n({one.name}: {'; '.join(one.notes)})" if one.notes else ""
    return prompt("engine/project_instructions_block").format(name=one.name, mark=mark, text=one.text, note=note)


def _entry(one: Found) -> JsonObject:
    return {
        "path": one.name,
        "size_bytes": one.size_bytes,
        "given_bytes": len(one.text.encode()),
        "sha256": one.sha256,
        "note": "; ".join(one.notes) or None,
    }


def _told(one: Found) -> str:
    more = "".join(f"; {note}" for note in one.notes)
    return f"{one.name} ({len(one.text.encode()):,} bytes{more})"
