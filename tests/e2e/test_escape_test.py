"""`escape-test` against the real engine: the default policy holds, and the probes can fail."""

from __future__ import annotations

from typing import Any

import pytest
from program import Ended, Program

pytestmark = [pytest.mark.docker, pytest.mark.timeout(600)]

RESIDUAL = {"user-initial", "host-path-any", "proc-load", "boot-id", "inotify", "aio", "disk-ws", "inodes-ws"}
"""All that may be open, each with its reason in the catalogue or in the documentation."""


@pytest.fixture(scope="module")
def compared(tmp_path_factory: pytest.TempPathFactory) -> Ended:
    """One run with every column, shared by the tests: it starts eight containers."""
    program = Program.make(tmp_path_factory.mktemp("escape"))
    return program.call("escape-test", "--compare", "--control", "--json", within_s=580)


@pytest.fixture
def probes(compared: Ended) -> dict[str, dict[str, Any]]:
    return {probe["id"]: probe for probe in compared.document["probes"]}


def test_nothing_is_open_under_the_default_policy_but_what_is_documented(compared: Ended) -> None:
    """And everything has a verdict."""
    found = compared.document

    assert (compared.code, found["ok"], found["open"], found["no_verdict"]) == (0, True, [], [])
    assert set(found["residual"]) <= RESIDUAL
    assert len(found["probes"]) >= 200


def test_what_docker_run_makes_lets_many_through(probes: dict[str, dict[str, Any]]) -> None:
    """The comparison shows what the hardening is for."""
    known = ("uid", "cap-eff", "nnp", "root-rw", "net-route", "iouring", "int80", "suid-make", "memory", "mask-secret")
    unbounded = [name for name, probe in probes.items() if probe["plain"] is None]

    assert [name for name in known if probes[name]["plain"] != "open"] == []
    assert sum(probe["plain"] == "open" for probe in probes.values()) >= 80
    assert unbounded == ["fork-bomb", "memory-bomb"]


def test_every_probe_fires_in_the_container_that_is_weakened_for_it(program: Program, compared: Ended) -> None:
    """But for those of which the catalogue says that it depends on the machine."""
    listed = program.call("escape-test", "--list", "--json")
    sure = {one["id"] for one in listed.document if one["control"] and not one["control_note"]}
    silent = [one["id"] for one in compared.document["probes"] if one["id"] in sure and not one["can_fail"]]

    assert silent == []
    assert len(sure) > 150


def test_the_table_for_people_is_plain_text_in_a_pipe(program: Program) -> None:
    """One row a probe, with what it proves; nothing of a terminal."""
    ended = program.call("escape-test", "--only", "vsock", "--only", "uid")
    rows = [line for line in ended.stdout.splitlines() if line.startswith(("uid ", "vsock "))]

    assert ended.code == 0
    assert [row.split()[:2] for row in rows] == [["uid", "closed"], ["vsock", "closed"]]
    assert ended.stdout.splitlines()[-1] == "Nothing is open that is not documented."
    assert "\x1b" not in ended.stdout


def test_without_an_engine_the_exit_code_is_5(program: Program) -> None:
    """Nothing is tried then."""
    ended = program.call("escape-test", DOCKER_HOST="unix:///nonexistent.sock")

    assert (ended.code, ended.stdout) == (5, "")
    assert "/nonexistent.sock" in ended.stderr


def test_a_runtime_that_the_engine_has_not_is_one_clear_line(program: Program) -> None:
    """It names the runtime, what the engine has, and what to do."""
    policy = program.home.parent / "policy.yaml"
    policy.write_text("version: 1\nname: other\nextends: default\nsandbox: {runtime: no-such-runtime}\n")
    ended = program.call("escape-test", "--policy", str(policy), "--only", "uid")

    assert (ended.code, ended.stderr.count("\n")) == (5, 1)
    assert "no runtime 'no-such-runtime', it has " in ended.stderr
    assert "sandbox.runtime" in ended.stderr
