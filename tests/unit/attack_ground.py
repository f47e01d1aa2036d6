"""A planted hostile repository in a test's own folder, without an engine."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from sandbox_agent.cli.attack.attempts import Attempt, Catalogue, read_catalogue
from sandbox_agent.cli.attack.ears import listening
from sandbox_agent.cli.attack.ground import Ground
from sandbox_agent.cli.attack.watch import Answered
from sandbox_agent.cli.demo_run import examples_dir

SOURCE = examples_dir() / "hostile-repo"


def catalogue() -> Catalogue:
    return read_catalogue(SOURCE / "attempts.yaml")


@contextmanager
def planted(folder: Path) -> Iterator[Ground]:
    with listening() as ears:
        ground = Ground(folder, ears)
        ground.plant(SOURCE / "plant.py")
        yield ground


def token_of(ground: Ground) -> str:
    """What marks the attack's processes."""
    [token] = set(re.findall(r"daemon-[0-9a-f]{16}", (ground.repository / "payload.py").read_text()))
    return token


def attempt(*held: str, container: str = "held") -> Attempt:
    calls = [{"Bash": {"command": "true"}} for _ in held]
    return Attempt.model_validate(
        {"id": "it", "what": "it", "says": "it", "calls": calls, "held": held, "container": container}
    )


def answered(answer: str | None, verdict: str = "allow", location: str | None = None) -> Answered:
    return Answered("Bash", verdict, "because", "rule" if location else None, location, answer, 0.1)
