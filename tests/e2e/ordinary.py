"""The installed command for an ordinary user without any right but the engine's group, also on an engine that is, or
looks as if it were, on another machine.

The interpreter and the packages may lie where only root can read. In a mount namespace of its own they are bound to
where everybody can; there, too, a folder can be covered so that an engine outside sees nothing of it. The namespace
lives as long as its holder, which ends when our end of its stdin does.
"""

from __future__ import annotations

import json
import os
import shlex
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import docker
from program import COMMAND, Program

import sandbox_agent

UID = 1234
SHARED_GID = 1500
"""A group of several people, of which the user is one."""

PYTHON, INSTALLED, CODE = "python", "installed", "code"
"""Folders that everybody can read: the interpreter, what is installed for it, and our code."""


@dataclass(frozen=True)
class Ordinary(Program):
    """`holder` is the process whose mount namespace it runs in, 0 where whoever runs the tests is no root: then it is
    them. `engine` is another engine's DOCKER_HOST, and `network` the process in whose network that is.
    """

    holder: int = 0
    engine: str = ""
    network: int = 0

    @property
    def readable(self) -> Path:
        """Where the interpreter and all the code are."""
        return self.folder.parents[1]

    def real(self, path: Path) -> Path:
        """A path of the namespace as we see it."""
        return Path(f"/proc/{self.holder}/root{path}") if self.holder else path

    def script(self, turns: Sequence[dict[str, Any]], **options: Any) -> str:
        path = self.folder.parent / "script.yaml"
        self.real(path).write_text(json.dumps({"turns": list(turns), **options}))
        return f"script:{path}"

    def environment(self, **changes: str | None) -> dict[str, str]:
        given: dict[str, str | None] = {"HOME": str(self.home), "PYTHONDONTWRITEBYTECODE": "1"}
        if self.engine:
            given["DOCKER_HOST"] = self.engine
        if self.holder:
            given["LD_LIBRARY_PATH"] = str(self.readable / PYTHON / "lib")
            packages = Path(sysconfig.get_path("purelib")).relative_to(sys.prefix)
            given["PYTHONPATH"] = f"{self.readable / CODE}:{self.readable / INSTALLED / packages}"
        return super().environment(**{**given, **changes})

    def command(self) -> list[str]:
        if not self.holder:
            return COMMAND
        base = Path(sys.base_prefix).resolve()
        python = (base / "bin" / f"python{sys.version_info[0]}.{sys.version_info[1]}").resolve().relative_to(base)
        return [*self.inside(), str(self.readable / PYTHON / python), *COMMAND[1:]]

    def inside(self) -> list[str]:
        """What makes of a command one of the user's, in the namespace. Its current folder is /."""
        if not self.holder:
            return []
        network = [f"--net=/proc/{self.network}/ns/net"] if self.network else []
        groups = f"{os.stat('/var/run/docker.sock').st_gid},{SHARED_GID}"
        who = ["--reuid", str(UID), "--regid", str(UID), "--groups", groups]
        rights = ["--inh-caps=-all", "--bounding-set=-all", "--no-new-privs"]
        return ["nsenter", f"--mount=/proc/{self.holder}/ns/mnt", *network, "setpriv", *who, *rights]

    def shell(self, script: str) -> str:
        """Run a script in the folder as the user; its output."""
        text = f"cd {shlex.quote(str(self.folder))}\n{script}"
        env = {"PATH": os.environ["PATH"], "HOME": str(self.home), "GIT_CONFIG_NOSYSTEM": "1"}
        done = subprocess.run(
            [*self.inside(), "bash", "-euc", text], check=True, capture_output=True, text=True, env=env, timeout=60
        )
        return done.stdout


@contextmanager
def ordinary(*, hidden: bool = False) -> Iterator[Ordinary]:
    """A user with an empty folder and home; with `hidden` both are in a file system that only the namespace has."""
    # Not in pytest's own folder, which is closed to others.
    readable = Path(tempfile.mkdtemp(prefix="sandbox-agent-test-"))
    readable.chmod(0o755)
    place = readable / "mine"
    place.mkdir()
    made = Ordinary(place / "project", place / "home")
    for folder in (made.folder, made.home):  # also where something is going to be mounted above: commands start there
        folder.mkdir()
    try:
        if os.getuid() != 0:
            yield made
            return
        for path in (place, made.folder, made.home):
            os.chown(path, UID, UID)
        with _namespace(readable, place if hidden else None) as holder:
            made = replace(made, holder=holder)
            subprocess.run([*made.inside(), "mkdir", "-p", str(made.folder), str(made.home)], check=True)
            try:
                yield made
            finally:
                _clear_engine(made)
    finally:
        for name in (PYTHON, INSTALLED, CODE):
            if (readable / name).exists():
                (readable / name).rmdir()  # empty, or something is bound there after all, and that must not be removed
        shutil.rmtree(readable)


def _clear_engine(user: Ordinary) -> None:
    """What a test that failed left at our engine; its state folder, which knows of it, goes."""
    client = docker.from_env()
    try:
        for folder in user.real(user.home).glob("state/sandbox-agent/sessions/*"):
            only: dict[str, Any] = {"filters": {"label": f"sandbox-agent.session={folder.name}"}}
            for container in client.containers.list(all=True, **only):
                container.remove(force=True)
            for volume in client.volumes.list(**only):
                volume.remove()
    finally:
        client.close()


@contextmanager
def _namespace(readable: Path, hidden: Path | None) -> Iterator[int]:
    binds = {PYTHON: sys.base_prefix, INSTALLED: sys.prefix, CODE: str(Path(sandbox_agent.__file__).parents[1])}
    for name in binds:
        (readable / name).mkdir()
    steps = [f"mount --bind {shlex.quote(source)} {readable / name}" for name, source in binds.items()]
    if hidden is not None:
        steps.append(f"mount -t tmpfs -o uid={UID},gid={UID},mode=755 none {hidden}")
    script = " && ".join([*steps, "echo held", "exec cat"])
    command = ["unshare", "--mount", "--propagation", "private", "sh", "-c", script]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"held\n"
        yield process.pid
