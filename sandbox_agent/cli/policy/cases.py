"""`sandbox-agent policy test`: unit tests of a policy, for people and for pipelines."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from xml.etree import ElementTree

import click

from sandbox_agent.cli import complete
from sandbox_agent.errors import ConfigError
from sandbox_agent.frontends.printer import Printer, make_console
from sandbox_agent.frontends.sanitise import sanitise
from sandbox_agent.frontends.words import count
from sandbox_agent.policy.case_file import read_cases
from sandbox_agent.policy.cases import Outcome, run_cases
from sandbox_agent.policy.load import load_policy
from sandbox_agent.policy.policy import Policy

FAILED = 1


@click.command(
    name="test",
    epilog="\b\nExamples:\n  sandbox-agent policy test cases.yaml\n"
    "  sandbox-agent policy test --policy ./my-policy.yaml --junit report.xml tests/*.yaml\n\n"
    "\b\nA file:\n  policy: ./my-policy.yaml\n  cases:\n"
    '    - {call: "Bash(git push)", expect: deny}\n'
    '    - {call: "Edit(src/a.py)", mode: acceptEdits, expect: allow}\n'
    "\b\nExit codes: 0 all pass, 1 some fail, 2 a file is wrong.\n",
    short_help="Run the unit tests of a policy.",
)
@click.argument("files", metavar="FILE...", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option(
    "--policy",
    metavar="NAME|FILE",
    shell_complete=complete.policies,
    help="For cases that name none. Default: the shipped default.",
)
@click.option("--junit", metavar="FILE", type=click.Path(path_type=Path), help="Write a JUnit report there.")
@click.option("--json", "as_json", is_flag=True, help="One JSON document.")
def COMMAND(files: tuple[Path, ...], policy: str | None, junit: Path | None, as_json: bool) -> int:
    """Judge the calls in each FILE and compare with what is wanted. A line for each case that fails, and a summary."""
    started = time.monotonic()

    def load(named: str | None) -> Policy:
        return load_policy(named or policy)

    outcomes = [outcome for file in files for outcome in run_cases(read_cases(file), load)]
    failed = [outcome for outcome in outcomes if not outcome.passed]
    if junit is not None:
        _write_junit(junit, outcomes, time.monotonic() - started)
    if as_json:
        results = [outcome.as_json() for outcome in outcomes]
        click.echo(
            json.dumps({"passed": len(outcomes) - len(failed), "failed": len(failed), "cases": results}, indent=1)
        )
        return FAILED if failed else 0
    printer = Printer(make_console(sys.stdout))
    for outcome in failed:
        printer.line(f"{sanitise(outcome.case.location)}: {sanitise(outcome.line)}", "red")
    told = f"{count(len(outcomes), 'case')}: {len(outcomes) - len(failed)} passed, {len(failed)} failed"
    printer.line(told, "bold red" if failed else "green")
    return FAILED if failed else 0


def _write_junit(path: Path, outcomes: Sequence[Outcome], duration_s: float) -> None:
    suite = ElementTree.Element(
        "testsuite",
        name="sandbox-agent policy test",
        tests=str(len(outcomes)),
        failures=str(sum(not outcome.passed for outcome in outcomes)),
        errors="0",
        time=f"{duration_s:.3f}",
    )
    for outcome in outcomes:
        file, _, line = outcome.case.location.rpartition(":")
        # XML has no way to write control characters: they are escapes here as on a terminal.
        case = ElementTree.SubElement(
            suite,
            "testcase",
            classname=sanitise(file),
            name=sanitise(outcome.case.title),
            file=sanitise(file),
            line=line,
        )
        if not outcome.passed:
            ElementTree.SubElement(case, "failure", message=sanitise(outcome.line)).text = sanitise(
                outcome.decision.reason
            )
    root = ElementTree.Element("testsuites")
    root.append(suite)
    ElementTree.indent(root)
    try:
        path.write_bytes(ElementTree.tostring(root, encoding="utf-8", xml_declaration=True) + b"\n")
    except OSError as exc:
        raise ConfigError(f"{path}: the report cannot be written: {exc.strerror}") from exc
