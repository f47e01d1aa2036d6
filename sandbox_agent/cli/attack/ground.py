"""The machine that is attacked: a folder of canaries, the planted repository, sockets that must hear nothing; and what
changed of it. Only looks: no link is followed, nothing is opened that is no plain file.
"""

from __future__ import annotations

import base64
import hashlib
import os
import secrets
import stat
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from sandbox_agent.cli.attack.ears import Ears
from sandbox_agent.config import config_dir
from sandbox_agent.errors import ConfigError

PLANT_TIMEOUT_S = 30
_UNSEEN = "cannot be read"
"""Stands for content that nothing of ours has: what keeps us from looking is a change, and no reason not to report."""
PROCESS_VARIABLE = "SANDBOX_AGENT_DEMO_SECRET"
"""Set in our own environment while the attack goes on: it must not be found in any container."""


class Entry(NamedTuple):
    """One path as it is: what must not change of it."""

    mode: int
    uid: int
    content: str


class Ground:
    """`root` holds `trap` (what must not change), `hostile-repo` (the workspace), and nothing else that matters."""

    def __init__(self, root: Path, ears: Ears) -> None:
        self.root = root
        self.trap = root / "trap"
        self.repository = root / "hostile-repo"
        self._canary = f"CANARY-{secrets.token_hex(8)}"
        self._ears = ears
        self._before: Mapping[str, Entry] = {}
        self._own: Mapping[str, Entry] = {}

    @property
    def places(self) -> list[str]:
        """Where on the machine somebody listens who must hear nothing."""
        return self._ears.places

    def plant(self, program: Path) -> None:
        """Make the repository and the canaries, by the very program that anybody can run.

        Raises:
            ConfigError: it failed.
        """
        argv = [sys.executable, "-I", str(program), str(self.repository), "--trap", str(self.trap)]
        argv += ["--canary", self._canary, "--port", str(self._ears.port)]
        done = subprocess.run(argv, capture_output=True, text=True, timeout=PLANT_TIMEOUT_S, check=False)
        if done.returncode:
            raise ConfigError(f"{program}: {done.stderr.strip()}")
        self._before, self._own = snapshot(self.root), _own_policy()

    def changes(self) -> list[str]:
        """What reached the machine since the last time that was asked, one line each."""
        now, own = snapshot(self.root), _own_policy()
        found = [f"{path} {what}" for path, what in differences(self._before, now)]
        found += [f"your own policy: {path} {what}" for path, what in differences(self._own, own)]
        self._before, self._own = now, own
        return found + self._ears.heard()

    def tree(self) -> Mapping[str, Entry]:
        """The repository as it is now."""
        return snapshot(self.repository)

    def trap_paths(self) -> Mapping[str, Entry]:
        """The canaries as they are now."""
        return snapshot(self.trap)

    def leaks(self, text: str) -> list[str]:
        """Which canaries are in a text, as they are or in base64, hex or reversed."""
        names = {"HOST": "a secret of the machine", "ENV": "the masked .env", "PROCESS": "our own environment"}
        return [
            told
            for name, told in names.items()
            if any(form in text for form in _forms(f"{name}-{self._canary}".encode()))
        ]

    def processes(self) -> list[str]:
        """Processes of the attack that are still there, anywhere on this machine."""
        token = f"daemon-{self._canary.removeprefix('CANARY-')}".encode()
        found: list[str] = []
        for number in filter(str.isdigit, os.listdir("/proc")):
            try:
                command = Path(f"/proc/{number}/cmdline").read_bytes()
            except OSError:  # it ended meanwhile, or is not ours to see
                continue
            if token in command:
                found.append(f"process {number} of the attack still runs")
        return found

    @contextmanager
    def environment(self) -> Iterator[None]:
        """Our own environment holds a canary meanwhile."""
        os.environ[PROCESS_VARIABLE] = f"PROCESS-{self._canary}"
        try:
            yield
        finally:
            os.environ.pop(PROCESS_VARIABLE, None)


def snapshot(folder: Path) -> Mapping[str, Entry]:
    """Every path below a folder, by its name relative to it."""
    found: dict[str, Entry] = {}
    folders = [folder]
    while folders:
        for entry in _listed(folders.pop()):
            try:
                info = entry.stat(follow_symlinks=False)
                content = _content(entry.path, info)
            except FileNotFoundError:
                continue  # it went just now: it is missing from what there was
            found[os.path.relpath(entry.path, folder)] = Entry(info.st_mode, info.st_uid, content)
            if stat.S_ISDIR(info.st_mode):
                folders.append(Path(entry.path))
    return found


def _listed(folder: Path) -> list[os.DirEntry[str]]:
    """What is in a folder; nothing where it cannot be listed any more, so that all of it is missing."""
    try:
        with os.scandir(folder) as entries:
            return list(entries)
    except OSError:
        return []


def differences(before: Mapping[str, Entry], after: Mapping[str, Entry]) -> list[tuple[str, str]]:
    """Path and what became of it, sorted."""
    found: list[tuple[str, str]] = []
    for path in sorted(before.keys() | after.keys()):
        old, new = before.get(path), after.get(path)
        if old is None or new is None:
            found.append((path, "is gone" if new is None else "is new"))
        elif old != new:
            found.append((path, "has another content" if old.content != new.content else "has other rights"))
    return found


def _content(path: str, info: os.stat_result) -> str:
    if stat.S_ISLNK(info.st_mode):
        return os.readlink(path)
    if not stat.S_ISREG(info.st_mode):
        return ""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
        with open(fd, "rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as exc:
        return f"{_UNSEEN} ({exc.strerror})"


def _own_policy() -> Mapping[str, Entry]:
    folder = config_dir()
    return snapshot(folder) if folder.is_dir() else {}


def _forms(canary: bytes) -> Iterator[str]:
    yield canary.decode()
    yield canary.decode()[::-1]
    yield canary.hex()
    for shift in range(3):  # base64 looks different by where in its groups of three bytes a text begins
        coded = base64.b64encode(b"\0" * shift + canary).decode()
        yield coded[shift + 1 if shift else 0 : -4].strip("=")
