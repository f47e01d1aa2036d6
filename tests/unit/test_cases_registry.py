"""The list of cases in tests/data/cases.yaml is whole and true."""

from __future__ import annotations

import re
from pathlib import Path

import yaml

ROOT = Path(__file__).parents[2]
CASES: dict[str, list[str]] = yaml.safe_load((ROOT / "tests/data/cases.yaml").read_text())
LATER = re.compile(r"later: issue \d+ \(.+\)")
TEST = re.compile(r"^(?:async )?def (test_\w+)\(", re.MULTILINE)


def names_in(file: str) -> set[str]:
    """Names of the tests in a file of this repository."""
    return {f"{file}::{name}" for name in TEST.findall((ROOT / file).read_text())}


def test_every_case_is_listed() -> None:
    """All sixty, in order, each with a test or with the issue that it waits for."""
    assert list(CASES) == [f"dev-{number:02}" for number in range(1, 61)]
    assert [case for case, entries in CASES.items() if not entries] == []


def test_every_named_test_exists() -> None:
    """No entry points to a test that was renamed or removed."""
    named = {entry for entries in CASES.values() for entry in entries if not LATER.fullmatch(entry)}
    there = {test for file in {entry.split("::")[0] for entry in named} for test in names_in(file)}
    assert named - there == set()


def test_every_test_of_a_case_is_listed_under_it() -> None:
    """A test whose name begins with a case's id is in that case's list."""
    files = [str(path.relative_to(ROOT)) for path in (ROOT / "tests").rglob("test_*.py")]
    of_cases = {test for file in files for test in names_in(file) if "::test_dev_" in test}
    listed = {
        entry for case, entries in CASES.items() for entry in entries if f"::test_{case.replace('-', '_')}_" in entry
    }
    assert of_cases == listed
