"""The escape test for people and for programs: what each probe proves, and how it went in each container."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from rich.text import Text

from sandbox_agent import __version__
from sandbox_agent.escape.catalogue import Probe
from sandbox_agent.escape.verdict import Column, Result, Verdict, holds
from sandbox_agent.frontends import words
from sandbox_agent.frontends.printer import Printer
from sandbox_agent.frontends.sanitise import sanitise
from sandbox_agent.types import JsonObject

_WORDS = {
    Verdict.CLOSED: ("closed", "green"),
    Verdict.OPEN: ("OPEN", "bold red"),
    Verdict.RESIDUAL: ("residual", "yellow"),
    Verdict.EMULATED: ("emulated", "cyan"),
    Verdict.NONE: ("no verdict", "bold yellow"),
}
_WIDTH = max(len(word) for word, _ in _WORDS.values()) + 1
_OPEN = (Verdict.OPEN, Verdict.RESIDUAL, Verdict.EMULATED)


@dataclass(frozen=True, slots=True)
class Report:
    """One run of the test. `plain` and `control` are None where not asked for; `tried_s` is for the session alone."""

    probes: tuple[Probe, ...]
    session: Column
    plain: Column | None
    control: Column | None
    tried_s: float

    def fires(self, probe: Probe) -> bool | None:
        """Whether the probe found an open way where there is one; None where that was not tried."""
        if self.control is None:
            return None
        found = self.control.verdict_of(probe)
        return found is not None and found.verdict in _OPEN


def show_list(printer: Printer, probes: Sequence[Probe]) -> None:
    """Every probe by group."""
    for group, members in _by_group(probes):
        printer.line(group, style="bold")
        for probe in members:
            where = probe.control or f"none: {probe.no_control}"
            mark = " (residual)" if probe.residual else ""
            printer.line(f"  {probe.id:<20} {probe.proves}{mark} [control: {where}]")


def show_report(printer: Printer, report: Report) -> None:
    """The table, then what is open, what is known to be, and the sum."""
    columns = [column for column in (report.session, report.plain) if column is not None]
    for column in columns:
        printer.line(f"{column.name:<8} {sanitise(column.about)}", style="dim")
    for group, members in _by_group(report.probes):
        printer.gap()
        printer.line(f"{group:<22}{''.join(f'{column.name:<{_WIDTH}}' for column in columns)}", style="bold")
        for probe in members:
            _show_probe(printer, report, columns, probe)
    printer.gap()
    _show_sum(printer, report)


def _show_probe(printer: Printer, report: Report, columns: Sequence[Column], probe: Probe) -> None:
    line = Text(f"{probe.id:<22}")
    for column in columns:
        found = column.verdict_of(probe)
        word, style = ("-", "dim") if found is None else _WORDS[found.verdict]
        line.append(f"{word:<{_WIDTH}}", style=style)
    line.append(probe.proves)
    if report.fires(probe) is False:
        line.append("  [no positive control here]", style="yellow")
    printer.line(line)
    result = report.session.verdict_of(probe)
    if result is not None and result.verdict in (Verdict.OPEN, Verdict.NONE, Verdict.RESIDUAL, Verdict.EMULATED):
        printer.line(f"{'':<22}-> {sanitise(result.detail) or 'it worked'}", style="dim")


def _show_sum(printer: Printer, report: Report) -> None:
    results = report.session.results
    for verdict, heading in ((Verdict.RESIDUAL, "Known and left open:"), (Verdict.OPEN, "OPEN:")):
        found = [one for one in results if one.verdict is verdict]
        if found:
            printer.line(heading, style=_WORDS[verdict][1])
        for one in found:
            why = " ".join((one.probe.residual or "").split()) if verdict is Verdict.RESIDUAL else sanitise(one.detail)
            printer.line(f"  {one.probe.id}: {why or one.probe.proves}")
    for column in (report.session, report.plain):
        if column is not None:
            printer.line(f"{column.name}: {_sum(column.results)}")
    if report.control is not None:
        fired = sum(1 for probe in report.probes if report.fires(probe))
        printer.line(
            f"control: {fired} of {words.count(len(report.probes), 'probe')} can be seen to fail on this machine"
        )
    printer.line(
        f"{words.count(len(results), 'probe')} in the session's container took {words.duration(report.tried_s)}"
    )
    good = holds(results)
    text = "Nothing is open that is not documented." if good else "The sandbox does not hold, or could not be tried."
    printer.line(text, style="green" if good else "bold red")


def _sum(results: Sequence[Result]) -> str:
    counts = [(sum(1 for one in results if one.verdict is verdict), word) for verdict, (word, _) in _WORDS.items()]
    return ", ".join(f"{number} {word}" for number, word in counts if number)


def document(report: Report) -> JsonObject:
    """For `--json`. Text from inside the container is as it came."""
    results = report.session.results
    return {
        "version": __version__,
        "ok": holds(results),
        "session": report.session.about,
        "duration_s": round(report.tried_s, 3),
        "open": [one.probe.id for one in results if one.verdict is Verdict.OPEN],
        "residual": [one.probe.id for one in results if one.verdict is Verdict.RESIDUAL],
        "no_verdict": [one.probe.id for one in results if one.verdict is Verdict.NONE],
        "probes": [_fields(report, probe) for probe in report.probes],
    }


def _fields(report: Report, probe: Probe) -> JsonObject:
    tried = report.session.verdict_of(probe)
    fields: JsonObject = {"id": probe.id, "group": probe.group, "proves": probe.proves}
    fields["duration_s"] = None if tried is None else round(tried.duration_s, 3)
    for column in (report.session, report.plain, report.control):
        found = column.verdict_of(probe) if column is not None else None
        if column is not None:
            fields[column.name] = None if found is None else found.verdict.value
        if found is not None:
            fields[f"{column.name}_detail"] = found.detail  # type: ignore[union-attr]
    if report.control is not None:
        fields["can_fail"] = report.fires(probe)
    residual = (probe if tried is None else tried.probe).residual
    if residual is not None:
        fields["residual"] = " ".join(residual.split())
    if probe.no_control is not None:
        fields["no_control"] = probe.no_control
    return fields


def _by_group(probes: Sequence[Probe]) -> Iterator[tuple[str, list[Probe]]]:
    for group in dict.fromkeys(probe.group for probe in probes):
        yield group, [probe for probe in probes if probe.group == group]
