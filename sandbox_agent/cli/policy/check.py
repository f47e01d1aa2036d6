"""`sandbox-agent policy check`: whether files are policies, and a line for all that is wrong in them."""

from __future__ import annotations

import json
import re

import click

from sandbox_agent.errors import PolicyError
from sandbox_agent.frontends.sanitise import sanitise
from sandbox_agent.policy.load import check_policy

WRONG = 2
_PLACE = re.compile(r"(?P<file>.*):(?P<line>\d+)", re.DOTALL)


@click.command(
    name="check",
    epilog="\b\nExamples:\n  sandbox-agent policy check ./my-policy.yaml\n"
    "  sandbox-agent policy check --json policies/*.yaml | jq .ok\n\n"
    "\b\nExit codes: 0 every file is right, 2 something is wrong.\n",
    short_help="Say whether policy files are right, and what is wrong where.",
)
@click.argument("files", metavar="FILE...", nargs=-1, required=True)
@click.option("--json", "as_json", is_flag=True, help="One JSON document.")
def COMMAND(files: tuple[str, ...], as_json: bool) -> int:
    """Check each FILE, or shipped policy by name: its shape, its rules and their examples, and what it extends."""
    found = [(file, check_policy(file)) for file in files]
    right = not any(faults for _, faults in found)
    if as_json:
        document = {
            "ok": right,
            "files": [
                {"file": file, "ok": not faults, "errors": [_as_json(fault) for fault in faults]}
                for file, faults in found
            ],
        }
        click.echo(json.dumps(document, indent=1))
    else:
        for file, faults in found:
            for fault in faults:
                click.echo(sanitise(str(fault)))
            if not faults:
                click.echo(f"{sanitise(file)}: ok")
    return 0 if right else WRONG


def _as_json(fault: PolicyError) -> dict[str, object]:
    place = _PLACE.fullmatch(fault.location or "")
    return {
        "file": place["file"] if place else fault.location,
        "line": int(place["line"]) if place else None,
        "message": str(fault).removeprefix(f"{fault.location}: "),
    }
