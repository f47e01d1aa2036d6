"""`sandbox-agent doctor`: is everything there that a run needs, and what to do where it is not."""

from __future__ import annotations

import click

from sandbox_agent import registry


@click.command(
    name="doctor",
    epilog="\b\nExamples:\n  sandbox-agent doctor\n  sandbox-agent doctor --json | jq .ok\n\n"
    "\b\nExit codes: 0 a run would work, 5 it would not.\n",
    short_help="Check engine, image and isolation, and say what to do.",
)
@click.option("--json", "as_json", is_flag=True, help="One JSON document.")
@click.option("--quick", is_flag=True, help="Start no container.")
@click.option("--image", metavar="NAME", help="Check this image. Default: the policy's.")
def COMMAND(as_json: bool, quick: bool, image: str | None) -> int:
    """Check the engine, the image, the isolation (by starting one container), the key and the state folder."""
    code: int = registry.load("cli", "doctor_run").run_doctor(as_json=as_json, quick=quick, image=image)
    return code
