"""The installed command line as a process of its own, with its own state folder and a small project to work on."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import docker

COMMAND = [sys.executable, "-c", "from sandbox_agent.cli import main; main()"]


@dataclass(frozen=True)
class Ended:
    """How a call of the program ended."""

    code: int
    stdout: str
    stderr: str

    @property
    def document(self) -> dict[str, Any]:
        """stdout as the one JSON document it must be."""
        value: dict[str, Any] = json.loads(self.stdout)
        return value


@dataclass(frozen=True)
class Program:
    """`folder` is the project (one file, a.txt), `home` is where state and configuration go."""

    folder: Path
    home: Path

    @classmethod
    def make(cls, parent: Path) -> Program:
        folder = parent / "project"
        folder.mkdir()
        (folder / "a.txt").write_text("one\n")
        return cls(folder, parent / "home")

    def script(self, turns: Sequence[dict[str, Any]], **options: Any) -> str:
        """A `--model` value that plays these turns (JSON is YAML)."""
        path = self.folder.parent / "script.yaml"
        path.write_text(json.dumps({"turns": list(turns), **options}))
        return f"script:{path}"

    def environment(self, **changes: str | None) -> dict[str, str]:
        """The process's environment without any key; None removes a variable."""
        env = {name: value for name, value in os.environ.items() if not name.startswith("ANTHROPIC_")}
        env |= {"XDG_STATE_HOME": str(self.home / "state"), "XDG_CONFIG_HOME": str(self.home / "config")}
        for name, value in changes.items():
            env.pop(name, None)
            if value is not None:
                env[name] = value
        return env

    def command(self) -> list[str]:
        """The program and its first arguments."""
        return COMMAND

    def start_at_terminal(self, tty: int, *arguments: str, term: str = "dumb") -> subprocess.Popen[bytes]:
        """Start with the terminal as its controlling one, so that Ctrl-C typed there is a signal."""
        take = "import fcntl, termios; fcntl.ioctl(0, termios.TIOCSCTTY, 0); "
        return subprocess.Popen(
            [COMMAND[0], "-c", take + COMMAND[2], *arguments],
            stdin=tty,
            stdout=tty,
            stderr=tty,
            start_new_session=True,
            env=self.environment(TERM=term, NO_COLOR="1"),
            cwd=self.folder,
        )

    def call(
        self, *arguments: str, stdin: int | None = subprocess.DEVNULL, within_s: float = 120, **env: str | None
    ) -> Ended:
        """Run to the end."""
        done = subprocess.run(
            [*self.command(), *arguments],
            stdin=stdin,
            capture_output=True,
            env=self.environment(**env),
            cwd=self.folder,
            timeout=within_s,
            check=False,
        )
        return Ended(done.returncode, done.stdout.decode(), done.stderr.decode())

    def start(self, *arguments: str, **streams: Any) -> subprocess.Popen[bytes]:
        """Start and leave running; stdout and stderr are pipes unless said otherwise."""
        return subprocess.Popen(
            [*self.command(), *arguments],
            **{"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **streams},
            env=self.environment(),
            cwd=self.folder,
        )

    def sleeping(self, *turns: dict[str, Any]) -> subprocess.Popen[bytes]:
        """A JSON run that plays these turns and then sits in a long command; returns once that has started."""
        script = self.script([*turns, {"text": "Now I wait.", "tools": [bash("sleep 300", timeout=400_000)]}])
        process = self.start("run", "--output", "json", "-v", "--allow", "Bash", *EDITS, "--model", script, "x")
        assert process.stderr is not None
        seen = b""
        while b"* Bash sleep" not in seen:
            line = process.stderr.readline()
            assert line, f"it ended before the command began:\n{seen.decode()}"
            seen += line
        return process

    def session(self) -> Path:
        """The folder of the only session there is."""
        [folder] = (self.home / "state" / "sandbox-agent" / "sessions").iterdir()
        return folder


def containers_of(session_id: str) -> list[str]:
    """Names of this session's containers, running or not."""
    client = docker.from_env()
    try:
        found = client.containers.list(all=True, filters={"label": f"sandbox-agent.session={session_id}"})
        return [str(container.name) for container in found]
    finally:
        client.close()


def use(name: str, **fields: Any) -> dict[str, Any]:
    """A tool call of a script."""
    return {"name": name, "input": fields}


def bash(command: str, **fields: Any) -> dict[str, Any]:
    """A Bash call of a script."""
    return use("Bash", command=command, **fields)


WRITE = {"text": "I write it.", "tools": [use("Write", file_path="/workspace/new.txt", content="new\n")]}
DONE = {"text": "All done."}
EDITS = ("--mode", "acceptEdits")
