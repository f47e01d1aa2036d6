"""The escape test without an engine: the catalogue, what an end of a program means, and what is shown."""

from __future__ import annotations

import io
import json
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from rich.console import Console

from sandbox_agent.errors import ConfigError, SandboxDiedError
from sandbox_agent.escape.catalogue import Probe, choose, load_catalogue
from sandbox_agent.escape.trying import Ground, Runs, answer_of, try_probes
from sandbox_agent.escape.verdict import Column, Result, Verdict, holds, judge
from sandbox_agent.frontends.escape_view import Report, document, show_report
from sandbox_agent.frontends.printer import Printer
from sandbox_agent.sandboxes.base import ExecResult

KNOWN = json.loads((Path(__file__).parent.parent / "data" / "probes.json").read_text())


def probe(**fields: object) -> Probe:
    return Probe.model_validate(
        {"group": "g", "id": "one", "proves": "It holds.", "sh": "true", "control": "plain", **fields}
    )


def ended(stdout: str = "", code: int = 0, **fields: object) -> ExecResult:
    return ExecResult(code, stdout.encode(), **fields)  # type: ignore[arg-type]


def test_the_catalogue_has_every_known_probe_and_many_more() -> None:
    """Each of the published list is there by its name."""
    ids = [one.id for one in load_catalogue()]

    assert len(ids) == len(set(ids)) >= 200
    assert {one["id"] for one in KNOWN} <= set(ids)


def test_every_probe_says_where_it_fails_or_why_nowhere() -> None:
    """A probe that can never fire proves nothing, so it must be known which those are."""
    without = [one.id for one in load_catalogue() if one.control is None]

    assert all(one.no_control for one in load_catalogue() if one.control is None)
    assert len(without) < 40


@pytest.mark.parametrize(
    ("said", "code", "verdict"),
    [
        ("OPEN it worked\n", 0, Verdict.OPEN),
        ("noise\nOPEN\n", 1, Verdict.OPEN),
        ("BLOCKED EPERM\n", 0, Verdict.CLOSED),
        ("BLOCKED first\nOPEN after all\n", 0, Verdict.OPEN),
        ("UNKNOWN find is missing\n", 0, Verdict.NONE),
        ("", 0, Verdict.NONE),
        ("", 127, Verdict.NONE),
        ("", 137, Verdict.NONE),
        ("OPENED\nBLOCKEDx\n", 0, Verdict.NONE),
    ],
)
def test_only_its_own_word_is_a_verdict(said: str, code: int, verdict: Verdict) -> None:
    """Silence, an error and a missing program are never green."""
    assert judge(probe(), ended(said, code), emulated=False).verdict is verdict


def test_a_program_that_ran_out_of_time_has_no_verdict() -> None:
    """Even if it was killed where being killed is a refusal."""
    found = judge(probe(killed_is_closed=True), ended(code=137, timed_out=True), emulated=False)

    assert found.verdict is Verdict.NONE


def test_being_killed_is_a_refusal_only_where_the_probe_says_so() -> None:
    """A filter may end the caller."""
    assert judge(probe(killed_is_closed=True), ended(code=159), emulated=False).verdict is Verdict.CLOSED


def test_an_open_way_that_is_documented_is_residual() -> None:
    """It is shown, and does not count."""
    found = judge(probe(residual="known"), ended("OPEN\n"), emulated=False)

    assert found.verdict is Verdict.RESIDUAL
    assert holds([found])


def test_what_works_on_an_emulated_kernel_counts_only_on_a_real_one() -> None:
    """gVisor's own column."""
    one = probe(gvisor="emulated")

    assert judge(one, ended("OPEN\n"), emulated=True).verdict is Verdict.EMULATED
    assert judge(one, ended("OPEN\n"), emulated=False).verdict is Verdict.OPEN
    assert judge(probe(), ended("OPEN\n"), emulated=True).verdict is Verdict.OPEN


@pytest.mark.parametrize("verdict", [Verdict.OPEN, Verdict.NONE])
def test_nothing_holds_with_an_open_way_or_without_a_verdict(verdict: Verdict) -> None:
    """What could not be tried is not known to be closed."""
    assert not holds([Result(probe(), Verdict.CLOSED), Result(probe(), verdict)])


def test_probes_are_chosen_by_group_and_by_id() -> None:
    """In the order of the catalogue; a wrong name is answered with near ones."""
    all_of_them = load_catalogue()

    assert [one.id for one in choose(all_of_them, ["vsock", "bpf"])] == ["bpf", "vsock"]
    assert {one.group for one in choose(all_of_them, ["network"])} == {"network"}
    with pytest.raises(ConfigError, match="did you mean vsock"):
        choose(all_of_them, ["vsok"])


class Scripted:
    """Answers each program by the first of its words that it knows; dies at "die"."""

    def __init__(self, answers: Mapping[str, ExecResult]) -> None:
        self.answers = answers
        self.ran: list[str] = []

    async def exec(
        self,
        argv: Sequence[str],
        *,
        stdin: bytes = b"",
        env: Mapping[str, str] | None = None,
        timeout_s: float | None = None,
        max_output_bytes: int = 0,
    ) -> ExecResult:
        """See `Runs`."""
        text = argv[-1].strip().splitlines()[-1]
        self.ran.append(text)
        if text == "die":
            raise SandboxDiedError("gone")
        return self.answers.get(text, ended("/usr/bin/python3\n"))


class Boxes:
    """Opens scripted sandboxes and counts them."""

    def __init__(self, **answers: ExecResult) -> None:
        self.answers = answers
        self.opened: list[Scripted] = []

    @asynccontextmanager
    async def open(self) -> AsyncIterator[Runs]:
        self.opened.append(Scripted(self.answers))
        yield self.opened[-1]


async def test_results_keep_the_order_and_those_alone_run_last() -> None:
    """Whatever order they ran in."""
    boxes = Boxes(a=ended("BLOCKED\n"), b=ended("BLOCKED\n"))
    probes = [probe(id="x", sh="a", serial=True), probe(id="y", sh="b")]
    found = await try_probes(probes, Ground(boxes.open, {}))

    assert [one.probe.id for one in found] == ["x", "y"]
    assert boxes.opened[0].ran[-2:] == ["b", "a"]


async def test_a_container_that_ends_is_an_open_way_and_is_replaced() -> None:
    """The other probes run in the next one."""
    boxes = Boxes(a=ended("BLOCKED\n"))
    probes = [probe(id="x", sh="die", serial=True), probe(id="y", sh="a", serial=True)]
    found = await try_probes(probes, Ground(boxes.open, {}))

    assert [one.verdict for one in found] == [Verdict.OPEN, Verdict.CLOSED]
    assert len(boxes.opened) == 2


async def test_an_unbounded_attack_is_not_run_where_nothing_would_stop_it() -> None:
    """It is left out, and so has no result."""
    boxes = Boxes()
    found = await try_probes([probe(sh="boom", unbounded=True)], Ground(boxes.open, {}, bounded=False))

    assert found == ()
    assert boxes.opened == []


def report() -> Report:
    first, second, third = probe(id="good"), probe(id="bad"), probe(id="known", residual="because")
    session = (
        Result(first, Verdict.CLOSED),
        Result(second, Verdict.OPEN, "\x1b[31mred"),
        Result(third, Verdict.RESIDUAL),
    )
    plain = (Result(first, Verdict.OPEN, "as root"), Result(second, Verdict.OPEN))
    control = (Result(first, Verdict.OPEN), Result(second, Verdict.CLOSED), Result(third, Verdict.RESIDUAL))
    return Report(
        (first, second, third),
        Column("session", "hardened", session),
        Column("plain", "docker run", plain),
        Column("control", "weakened", control),
        1.5,
    )


def test_the_table_shows_both_columns_and_marks_what_cannot_fail_here() -> None:
    """Text from inside the container is made harmless."""
    file = io.StringIO()
    show_report(Printer(Console(file=file, color_system=None, width=300)), report())
    lines = file.getvalue().splitlines()
    row = {line.split()[0]: line for line in lines if line.split()[:1] and line.split()[0] in ("good", "bad", "known")}

    assert row["good"].split()[1:3] == ["closed", "OPEN"]
    assert row["bad"].split()[1:3] == ["OPEN", "OPEN"]
    assert "no positive control here" in row["bad"]
    assert "no positive control here" not in row["good"]
    assert "  known: because" in lines
    assert "\x1b" not in file.getvalue()


def test_the_document_names_what_is_open_and_what_is_known() -> None:
    """For programs."""
    found = document(report())

    assert (found["ok"], found["open"], found["residual"]) == (False, ["bad"], ["known"])
    assert found["probes"][0] | {} == {
        "id": "good",
        "group": "g",
        "proves": "It holds.",
        "duration_s": 0.0,
        "session": "closed",
        "session_detail": "",
        "plain": "open",
        "plain_detail": "as root",
        "control": "open",
        "control_detail": "",
        "can_fail": True,
    }


@pytest.mark.parametrize(
    "line",
    [
        b"[" * 100_000,
        b'{"id": "one", "code": Infinity, "said": "BLOCKED", "timed_out": false, "duration_s": 1}',
        b'{"id": "one", "code": 0, "said": "BLOCKED", "timed_out": false, "duration_s": NaN}',
        b'{"id": "one", "code": 0, "said": "BLOCKED", "timed_out": false, "duration_s": 1e999}',
    ],
)
def test_what_comes_from_inside_in_place_of_an_answer_is_none(line: bytes) -> None:
    """It neither ends the test nor gets into its report."""
    assert answer_of(line) is None
