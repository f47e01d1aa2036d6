"""The set-up scripts: what they say when an engine cannot be used, and that the lock file holds for every machine.

The scripts are run as they are. Where a refusal cannot be had for real (root may use every socket), a program named
`docker` that answers as the real client does stands in for it.
"""

from __future__ import annotations

import os
import re
import socket
import subprocess
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SCRIPTS = ("images/engine.sh", "images/build.sh", ".ci/run", ".ci/venv")


def run_script(script: str, *args: str, **env: str) -> subprocess.CompletedProcess[str]:
    """Runs one of the scripts with the environment of a person who has set `env`."""
    kept = {"PATH": os.environ["PATH"], "HOME": os.environ.get("HOME", "/")}
    argv = [str(ROOT / script), *args]
    return subprocess.run(argv, env=kept | env, capture_output=True, text=True, timeout=30, check=False)


def write_docker(folder: Path, body: str) -> str:
    """Writes a `docker` program into `folder`; returns the PATH on which it comes first."""
    program = folder / "docker"
    program.write_text(f"#!/bin/sh\n{body}\n", encoding="utf-8")
    program.chmod(0o755)
    return f"{folder}:{os.environ['PATH']}"


def diagnosis(run: subprocess.CompletedProcess[str]) -> str:
    """The one line of a refusal; fails unless the exit code is 5 and there is exactly one line and no other output."""
    assert run.returncode == 5
    assert run.stdout == ""
    (line,) = run.stderr.splitlines()
    return line


@pytest.mark.parametrize("script", SCRIPTS)
def test_script_is_executable_bash(script: str) -> None:
    """Each script can be run directly and parses."""
    assert os.access(ROOT / script, os.X_OK)
    subprocess.run(["bash", "-n", str(ROOT / script)], check=True)


@pytest.mark.parametrize("script", ["images/engine.sh", "images/build.sh"])
def test_help_needs_no_engine(script: str) -> None:
    """`--help` answers even where no engine does."""
    run = run_script(script, "--help", DOCKER_HOST="unix:///nonexistent/docker.sock")
    assert run.returncode == 0
    assert run.stdout.startswith(f"usage: {script}")


@pytest.mark.parametrize("args", ["--answer-within", "--answer-within soon", "--answer-within 0", "--started-pid-file"])
def test_an_option_without_its_value_is_usage(args: str) -> None:
    """Exit code 2 and one line of ours, before anything is looked at."""
    run = run_script("images/engine.sh", *args.split(), DOCKER_HOST="unix:///nonexistent/docker.sock")
    (line,) = run.stderr.splitlines()
    assert (run.returncode, line.startswith(f"engine: {args.split()[0]} needs a ")) == (2, True)


@pytest.mark.parametrize("args", [(), ("--check",)])
def test_wrong_docker_host_is_named_and_nothing_is_started(tmp_path: Path, args: tuple[str, ...]) -> None:
    """A DOCKER_HOST that does not answer is the user's: it is named, and no engine is started instead."""
    path = write_docker(
        tmp_path,
        'echo "Cannot connect to the Docker daemon at $DOCKER_HOST. Is the docker daemon running?" >&2; exit 1',
    )
    marker = tmp_path / "started"
    (tmp_path / "dockerd").write_text(f"#!/bin/sh\ntouch {marker}\n", encoding="utf-8")
    (tmp_path / "dockerd").chmod(0o755)
    line = diagnosis(run_script("images/engine.sh", *args, DOCKER_HOST="unix:///nonexistent/docker.sock", PATH=path))
    assert line == (
        "engine: unix:///nonexistent/docker.sock (DOCKER_HOST) does not answer: Cannot connect to the Docker daemon at "
        "unix:///nonexistent/docker.sock. Start that engine, or unset DOCKER_HOST to use the default socket."
    )
    assert not marker.exists()


def test_engine_that_never_answers_is_called_hung(tmp_path: Path) -> None:
    """A socket that takes connections and stays silent costs the allowed time and is told from a missing one."""
    silent = tmp_path / "docker.sock"
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(silent))
        server.listen(8)
        path = write_docker(
            tmp_path, f"exec python3 -c 'import socket; s = socket.socket(1); s.connect(\"{silent}\"); s.recv(1)'"
        )
        line = diagnosis(
            run_script("images/engine.sh", "--answer-within", "1", DOCKER_HOST=f"unix://{silent}", PATH=path)
        )
    assert f"unix://{silent} (DOCKER_HOST) gave no answer within 1 s." in line


def test_socket_without_permission_names_the_group(tmp_path: Path) -> None:
    """Who may not use the default socket is told about the group, and nothing is installed or started."""
    answer = "permission denied while trying to connect to the Docker daemon socket at unix:///var/run/docker.sock"
    path = write_docker(tmp_path, f'echo "{answer}" >&2; exit 1')
    line = diagnosis(run_script("images/engine.sh", PATH=path, DOCKER_CONFIG=str(tmp_path)))
    assert line.startswith("engine: no permission on /var/run/docker.sock. Run: sudo usermod -aG docker ")


def test_context_that_does_not_answer_is_named(tmp_path: Path) -> None:
    """A Docker context is the user's choice as DOCKER_HOST is, and the way out is another command."""
    (tmp_path / "config.json").write_text('{"auths": {}, "currentContext": "lab"}', encoding="utf-8")
    body = '[ "$1" = context ] && echo tcp://lab.example.org:2376 && exit; echo "no such host" >&2; exit 1'
    path = write_docker(tmp_path, body)
    line = diagnosis(run_script("images/engine.sh", PATH=path, DOCKER_CONFIG=str(tmp_path)))
    assert line == (
        "engine: tcp://lab.example.org:2376 (Docker context lab) does not answer: no such host. "
        "Start that engine, or run: docker context use default"
    )


def test_build_stops_with_the_engines_line_when_none_answers() -> None:
    """The image build passes on the diagnosis and its exit code rather than failing somewhere in the middle."""
    line = diagnosis(run_script("images/build.sh", DOCKER_HOST="unix:///nonexistent/docker.sock"))
    assert line.startswith("engine: ")


def test_lock_pins_everything_by_hash_and_names_no_registry() -> None:
    """Every package is pinned with a hash, all direct dependencies are there, and no index or path is written down."""
    lock = (ROOT / "requirements.lock").read_text(encoding="utf-8")
    entries = re.split(r"\n(?=\S)", lock.strip())
    unpinned = [
        entry for entry in entries if not re.match(r"[a-z0-9-]+(\[[a-z,]+\])?==\S+.*\\\n +--hash=sha256:", entry)
    ]
    assert unpinned == []
    assert not re.search(r"://|^-|^/", lock, re.MULTILINE)


def test_lock_has_what_pyproject_asks_for() -> None:
    """A dependency added to pyproject.toml without `make lock` would be missing after `make setup`."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    asked = [*project["dependencies"], *(name for extra in project["optional-dependencies"].values() for name in extra)]
    names = {re.split(r"[\s<>=!~\[;]", text)[0].lower().replace("_", "-") for text in asked}
    locked = set(re.findall(r"^([a-z0-9-]+)", (ROOT / "requirements.lock").read_text(encoding="utf-8"), re.MULTILINE))
    assert names - locked == set()
