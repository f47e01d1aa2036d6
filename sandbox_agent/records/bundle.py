"""A bundle as a file: a zip with the lock, the steps, the record, the tree at the beginning, and contents by hash.

While a run is recorded, its file says that it is not finished, and of which session it is; so a kill leaves a clear
word. A bundle comes from anywhere: what is read is bounded, and no name in it becomes a path.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import stat
import zipfile
import zlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from sandbox_agent.errors import ConfigError, ReplayMismatchError
from sandbox_agent.records.shapes import check_lock, check_step
from sandbox_agent.records.steps import Step, canonical, read_steps
from sandbox_agent.types import JsonObject

VERSION = 1
LOCK, STEPS, EVENTS, TREE = "lock.json", "steps.jsonl", "events.jsonl", "tree.json"
BLOBS = "blobs/"
MAX_PART_BYTES = 256 * 1024 * 1024
MAX_BUNDLE_BYTES = 1024 * 1024 * 1024
MAX_PARTS = 200_000

_HASHED = {EVENTS: "events_sha256", TREE: "tree_sha256"}
_UNFINISHED = b"sandbox-agent recording, not finished: "
_BLOB = re.compile(r"blobs/[0-9a-f]{64}\Z")


@dataclass(frozen=True, slots=True)
class Bundle:
    """A recording that was read and whose chain holds. `tree` is the base, None where it was not kept; `blobs` has
    contents by their SHA-256."""

    path: Path
    lock: JsonObject
    steps: tuple[Step, ...]
    events: bytes
    tree: list[JsonObject] | None
    blobs: Mapping[str, bytes]


def claim(path: Path, session_id: str) -> None:
    """Make the file of a recording that begins, with the word that it is not finished.

    Raises:
        ConfigError: it is there already, or cannot be made.
    """
    try:
        fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    except FileExistsError:
        raise ConfigError(f"--record {path}: is there already; name a file that does not exist yet") from None
    except OSError as exc:
        raise ConfigError(f"--record {path}: cannot be made: {exc.strerror}") from exc
    with open(fd, "wb") as file:
        file.write(_UNFINISHED + session_id.encode() + b"\n")


def parts_of(lock: JsonObject, events: bytes, tree: list[JsonObject] | None) -> dict[str, bytes]:
    """The parts of a bundle but for its steps."""
    parts = {LOCK: canonical(lock), EVENTS: events}
    return parts if tree is None else {**parts, TREE: canonical(tree)}


def hashes_of(parts: Mapping[str, bytes]) -> JsonObject:
    """What the last step says of the parts."""
    return {key: hashlib.sha256(parts[name]).hexdigest() if name in parts else None for name, key in _HASHED.items()}


def write(path: Path, parts: Mapping[str, bytes], blobs: Iterable[tuple[str, bytes]]) -> int:
    """Put the whole bundle in the place of its file, or leave that as it is; returns its size in bytes.

    Raises:
        OSError: the system refused.
    """
    part = path.with_name(path.name + ".part")
    fd = os.open(part, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        with open(fd, "w+b") as file:
            with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as archive:
                for name, data in parts.items():
                    archive.writestr(name, data)
                for sha256, data in blobs:
                    archive.writestr(BLOBS + sha256, data)
            file.flush()
            os.fsync(file.fileno())
        os.replace(part, path)
    except BaseException:
        part.unlink(missing_ok=True)
        raise
    return path.stat().st_size


def read(path: Path) -> Bundle:
    """Read a bundle and check all of it: chain, record, base tree, contents.

    Raises:
        ConfigError: it is no bundle, is not finished, or is of another version.
        ReplayMismatchError: something in it was changed after it was recorded; the text says at which step.
    """
    parts = _parts(path)
    try:
        lock = json.loads(parts[LOCK])
        version = lock["version"]
    except (ValueError, KeyError, TypeError, RecursionError):
        raise ReplayMismatchError(f"step 0: {LOCK} of the bundle was changed: it is no lock", step=0) from None
    if version != VERSION and STEPS not in parts:
        raise ConfigError(f"{path}: a bundle of version {version}; this program reads version {VERSION}")
    if STEPS not in parts:
        raise ReplayMismatchError(f"step 0: the bundle has lost its {STEPS}", step=0)
    steps = read_steps(parts[STEPS], lock)
    if version != VERSION:
        raise ConfigError(f"{path}: a bundle of version {version}; this program reads version {VERSION}")
    check_lock(lock)
    for step in steps:
        check_step(step.number, step.kind, step.data)
    end = steps[-1]
    for name, key in _HASHED.items():
        told, there = end.data.get(key), parts.get(name)
        if (hashlib.sha256(there).hexdigest() if there is not None else None) != told:
            raise ReplayMismatchError(f"step {end.number}: {name} of the bundle was changed", step=end.number)
    blobs = {name.removeprefix(BLOBS): data for name, data in parts.items() if name.startswith(BLOBS)}
    for sha256, data in blobs.items():
        if hashlib.sha256(data).hexdigest() != sha256:
            number = _first_naming(steps, sha256)
            raise ReplayMismatchError(f"step {number}: the content {sha256[:12]} of a file was changed", step=number)
    if sorted(blobs) != end.data.get("blobs"):
        raise ReplayMismatchError(f"step {end.number}: contents were added or are missing", step=end.number)
    tree = json.loads(parts[TREE]) if TREE in parts else None
    return Bundle(path, lock, tuple(steps), parts.get(EVENTS, b""), tree, blobs)


def _first_naming(steps: Iterable[Step], sha256: str) -> int:
    """The step that a content belongs to: the first tree that has it; 0 for those of the base."""
    for step in steps:
        if step.kind == "tree" and any(sha256 in str(one) for one in step.data.get("changed", {}).values()):
            return step.number
    return 0


def _parts(path: Path) -> dict[str, bytes]:
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as exc:
        raise ConfigError(f"{path}: cannot be read: {exc.strerror}") from exc
    with open(fd, "rb") as file:
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            raise ConfigError(f"{path}: is no file")
        head = file.read(len(_UNFINISHED) + 100)
        if head.startswith(_UNFINISHED):
            session_id = head[len(_UNFINISHED) :].decode("ascii", "replace").strip()
            raise ConfigError(
                f"{path}: the recording was not finished: its run still goes on, or was killed. "
                f"`sandbox-agent sessions show {session_id}` shows what there is of it; record it again"
            )
        file.seek(0)
        try:
            return _unzipped(path, zipfile.ZipFile(file))
        except (zipfile.BadZipFile, EOFError, zlib.error, NotImplementedError, RuntimeError, OSError) as exc:
            if head.startswith(b"PK"):
                raise ReplayMismatchError(f"step 0: the bundle {path} is damaged: {exc}", step=0) from exc
            raise ConfigError(f"{path}: is no bundle; `sandbox-agent run --record FILE` makes one") from exc


def _unzipped(path: Path, archive: zipfile.ZipFile) -> dict[str, bytes]:
    infos = archive.infolist()
    names = [info.filename for info in infos]
    if LOCK not in names and STEPS in names:
        raise ReplayMismatchError(f"step 0: the bundle has lost its {LOCK}", step=0)
    if LOCK not in names:
        raise ConfigError(f"{path}: is no bundle: it has no {LOCK}")
    odd = [name for name in names if name not in (LOCK, STEPS, EVENTS, TREE) and not _BLOB.match(name)]
    if odd or len(set(names)) != len(names):
        raise ReplayMismatchError("step 0: the bundle has parts that no recording has", step=0)
    sizes = [info.file_size for info in infos]
    if len(infos) > MAX_PARTS or sum(sizes) > MAX_BUNDLE_BYTES or max(sizes) > MAX_PART_BYTES:
        raise ConfigError(f"{path}: the bundle is larger than any recording may be")
    return {info.filename: archive.read(info) for info in infos}
