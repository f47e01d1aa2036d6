"""A run on an engine that sees no file of ours: the project and our state lie where only this process can see them.

That is had without a second engine: in a mount namespace of its own, which takes root, a folder is covered by an empty
one. To the engine, what is in it does not exist, as on another machine.
"""

from __future__ import annotations

import json
import os
import subprocess

import pytest
from program import COMMAND, DONE, EDITS, Program, bash

pytestmark = pytest.mark.docker

WORK = "; ".join(
    (
        "cat readme",
        "test -e .env || echo no .env",
        "test -x run.sh && echo it would run",
        "git log --format=%s",
        "readlink link",
        "grep nameserver /etc/resolv.conf || echo '(no resolver)'",
        "echo two >> readme",
        "echo new > 'a b/new'",
        "rm gone",
    )
)
CASES = [pytest.param("root", id="root")] if os.getuid() == 0 else []


def hidden(program: Program, script: str, *arguments: str) -> None:
    """A shell script in which $HIDDEN is a folder that the engine cannot see; `sa` in it is our program."""
    place = program.home.parent / "hidden"
    place.mkdir(exist_ok=True)
    env = program.environment(HIDDEN=str(place), XDG_STATE_HOME=str(place / "state"))
    wrapped = 'sa() { "$PY" -c "$MAIN" "$@"; }\n' + script
    env |= {"PY": COMMAND[0], "MAIN": COMMAND[2], "OUT": str(program.home.parent)}
    command = ["unshare", "--mount", "--propagation", "private", "bash", "-c", wrapped, "bash", *arguments]
    subprocess.run(command, env=env, check=True, cwd=program.folder, timeout=120, stdin=subprocess.DEVNULL)


@pytest.mark.parametrize("who", CASES)
def test_the_copy_is_in_a_volume_of_the_engine(who: str, program: Program) -> None:
    """It is filled and read through the sandbox, secrets stay here, the changes can wait, and nothing is left."""
    script = program.script([{"text": "x", "tools": [bash(WORK)]}, DONE])
    run = ["run", "--output", "json", "-v", "--apply", "never", *EDITS, "--allow", "Bash", "--model", script, "x"]
    hidden(
        program,
        """
        set -e
        mount -t tmpfs none "$HIDDEN"; mkdir -p "$HIDDEN/project/a b"; cd "$HIDDEN/project"
        echo one > readme; echo hunter2 > .env; echo gone > gone; ln -s readme link; chmod 600 readme
        printf '#!/bin/sh\\necho it runs\\n' > run.sh; chmod 755 run.sh
        git init -q; echo .env > .gitignore; git add .; git -c user.name=T -c user.email=t@example.org commit -qm First
        sa "$@" > "$OUT/run.json" 2> "$OUT/run.err"; cat readme > "$OUT/before"
        sa apply last --all > "$OUT/applied" 2>&1
        cat readme 'a b/new' > "$OUT/after"; test ! -e gone; ls "$HIDDEN"/state/sandbox-agent > "$OUT/state"
        """,
        *run,
    )
    out, document = program.home.parent, json.loads((program.home.parent / "run.json").read_text())
    told = (out / "run.err").read_text()

    assert "workspace mode copy in a volume of the engine, no overlay: the engine does not see this machine's" in told
    for line in ("one", "no .env", "it would run", "First", "readme", "(no resolver)"):
        assert line in told.split("container  ")[1], line
    assert sorted(document["unapplied_files"]) == ["a b/new", "gone", "readme"]
    assert (out / "before").read_text() == "one\n"
    assert (out / "after").read_text() == "one\ntwo\nnew\n"
    assert "hunter2" not in told
    assert left_over(document["session_id"]) == ""


def left_over(session: str) -> str:
    """Volumes of a session."""
    command = ["docker", "volume", "ls", "--quiet", "--filter", f"label=sandbox-agent.session={session}"]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout
