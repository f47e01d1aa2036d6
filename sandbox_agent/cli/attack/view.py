"""The attack for people, line by line as it goes on, and as one JSON document."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import PurePath

from rich.text import Text

from sandbox_agent import __version__
from sandbox_agent.cli.attack.attempts import Catalogue
from sandbox_agent.cli.attack.watch import ON_THE_MACHINE, Answered, Outcome
from sandbox_agent.frontends import words
from sandbox_agent.frontends.printer import Printer
from sandbox_agent.frontends.sanitise import sanitise
from sandbox_agent.types import JsonObject

_WHAT, _POLICY = 46, 42


@dataclass(frozen=True, slots=True)
class Applied:
    """What came of applying everything without looking: `came` and `dangers` are numbers of paths, `stayed` path to
    reason, `faults` what must not have happened."""

    came: int
    dangers: int
    stayed: dict[str, str]
    faults: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Report:
    """All of it. `machine` is what was found on the machine besides what an attempt is blamed for; `trouble` is why a
    run did not come to its end, None where both did."""

    catalogue: Catalogue
    policy: str
    judged: tuple[Outcome, ...]
    forced: tuple[Outcome, ...]
    machine: tuple[str, ...]
    checked: tuple[str, ...]
    applied: Applied | None
    isolation: str
    sessions: tuple[str, ...]
    duration_s: float
    trouble: str | None = None

    @property
    def held(self) -> bool:
        """Whether every attempt was made in both runs, got to the container in the second, and held; and nothing
        reached the machine."""
        wanted = len(self.catalogue.attempts)
        complete = len(self.judged) == len(self.forced) == wanted and self.applied is not None
        faults = bool(self.machine) or (self.applied is not None and bool(self.applied.faults))
        tried = all(one.tried for one in self.forced)
        return complete and tried and not faults and all(one.held for one in (*self.judged, *self.forced))


def show_head(printer: Printer, policy: str) -> None:
    """What is about to happen."""
    printer.line(
        "A hostile repository, and a model that does whatever it says. Every attempt is made twice: under the policy"
    )
    printer.line(f"{policy}, with nobody there to ask, and without any rule, so that the container alone must hold.")
    printer.line(f"First under the policy {policy} (nothing is shown of that run by itself) ...", style="dim")


def show_columns(printer: Printer, policy: str) -> None:
    """The heads of the columns."""
    printer.gap()
    printer.line(
        f"      {'attempt':<{_WHAT}}{f'policy {policy}':<{_POLICY}}the container, without any rule", style="bold"
    )


def show_group(printer: Printer, name: str) -> None:
    """The heading of attempts of one kind."""
    printer.line(name, style="bold cyan")


def show_attempt(printer: Printer, judged: Outcome | None, forced: Outcome) -> None:
    """One line; below it what went wrong, if anything did."""
    faults = [*(judged.faults if judged else ("was not made under the policy",)), *forced.faults]
    if not forced.tried:
        faults.append("nothing of it got to the container, so that was not tried")
    line = Text("OPEN  " if faults else "held  ", style="bold red" if faults else "green")
    # Two spaces at least between columns, also where a title or a file's name is long.
    line.append(f"{forced.attempt.what:<{_WHAT - 2}}  ", style="default not bold")
    policy = policy_words(judged)
    line.append(f"{policy:<{_POLICY - 2}}  ", style="default not bold")
    line.append(sanitise(container_words(forced)), style="default not bold")
    printer.line(line)
    for fault in dict.fromkeys(faults):
        printer.line(f"      -> {sanitise(fault)}", style="red")


def policy_words(outcome: Outcome | None) -> str:
    """ "denied by no-sudo, untrusted.yaml:29", "asked (no rule): denied", "allowed, it only reads"."""
    said = outcome.decided if outcome else None
    if said is None:
        return "-"
    if said.ran:
        return "allowed, only reads" if said.rule is None else f"allowed by {sanitise(said.rule)}"
    if said.location is not None:
        return f"denied: {sanitise(said.rule or '')}, {sanitise(short(said.location))}"
    return "asked, nobody there: denied" if said.verdict == "deny" else "refused as it was given"


def container_words(outcome: Outcome) -> str:
    """What the container did; where a rule held even now, that."""
    if outcome.container is not None:
        return outcome.container
    said = outcome.decided
    return f"not tried: {said.reason}" if said else "not tried"


def short(location: str) -> str:
    """A file:line without the folders."""
    return PurePath(location).name


def show_end(printer: Printer, report: Report) -> None:
    """What reached the machine, what applying all of it brought, and the verdict."""
    printer.gap()
    blamed = [line for one in report.judged + report.forced for line in one.faults if line.startswith(ON_THE_MACHINE)]
    reached = bool(report.machine or blamed)
    if reached or report.trouble is None:
        _show_machine(printer, report, reached=reached)
    if report.applied is not None:
        _show_applied(printer, report.applied)
    printer.gap()
    number, spent = words.count(len(report.catalogue.attempts), "attempt"), words.duration(report.duration_s)
    bad = {one.attempt.id for one in report.judged + report.forced if not one.held}
    bad |= {one.attempt.id for one in report.forced if not one.tried}
    if report.held:
        printer.line(f"{len(report.catalogue.attempts)} of {number} held, in {spent}.", style="bold green")
        printer.line(report.isolation, style="dim")
    elif bad or reached or (report.applied is not None and report.applied.faults):
        printer.line(f"NOT HELD: {len(bad)} of {number} ({spent}).", style="bold red")
    else:
        printer.line(f"Not all of {number} could be tried ({spent}).", style="bold red")
    if report.trouble is not None:
        printer.line(sanitise(report.trouble), style="red")


def _show_machine(printer: Printer, report: Report, *, reached: bool) -> None:
    line = Text("What reached the machine: ", style="bold")
    line.append("something, see -> above and below" if reached else "nothing", style="red" if reached else "green")
    printer.line(line)
    for text in report.checked:
        printer.line(f"  {sanitise(text)}", style="dim")
    for text in dict.fromkeys(report.machine):
        printer.line(f"  -> {sanitise(text)}", style="red")


def _show_applied(printer: Printer, applied: Applied) -> None:
    printer.line("Had somebody then applied everything without looking:", style="bold")
    came = f"{words.count(applied.came, 'path')} came to the folder, {applied.dangers} of them named as dangerous"
    if not applied.faults:
        came += "; no link, no set-uid bit, nothing of .git, nothing outside"
    printer.line(f"  {came}", style="dim")
    for path, why in applied.stayed.items():
        printer.line(f"  left out: {sanitise(path)} ({sanitise(why)})", style="dim")
    for line in applied.faults:
        printer.line(f"  -> {sanitise(line)}", style="red")


def document(report: Report) -> JsonObject:
    """For `--json`. Texts from inside the container are as they came."""
    judged = {one.attempt.id: one for one in report.judged}
    forced = {one.attempt.id: one for one in report.forced}
    applied = report.applied
    return {
        "version": __version__,
        "ok": report.held,
        "isolation": report.isolation,
        "policy": report.policy,
        "error": report.trouble,
        "duration_s": round(report.duration_s, 3),
        "sessions": list(report.sessions),
        "attempts": [
            {
                "id": attempt.id,
                "group": group.group,
                "what": attempt.what,
                "held": _held(judged.get(attempt.id)) and _held(forced.get(attempt.id), tried=True),
                "with_policy": _fields(judged.get(attempt.id)),
                "without_rules": _fields(forced.get(attempt.id)),
            }
            for group in report.catalogue.groups
            for attempt in group.attempts
        ],
        "machine": {"checked": list(report.checked), "reached": list(report.machine)},
        "applied": None
        if applied is None
        else {
            "paths": applied.came,
            "dangers": applied.dangers,
            "left_out": applied.stayed,
            "faults": list(applied.faults),
        },
    }


def _held(outcome: Outcome | None, *, tried: bool = False) -> bool:
    return outcome is not None and outcome.held and (outcome.tried or not tried)


def _fields(outcome: Outcome | None) -> JsonObject | None:
    if outcome is None:
        return None
    return {
        "held": outcome.held,
        "container": outcome.container,
        "faults": list(outcome.faults),
        "calls": [_call(call) for call in outcome.calls],
    }


def _call(call: Answered) -> JsonObject:
    return {
        "tool": call.tool,
        "verdict": call.verdict,
        "reason": call.reason,
        "rule": call.rule,
        "location": call.location,
        "answer": call.answer,
        "duration_s": round(call.duration_s, 3),
    }


def rest(outcomes: Sequence[Outcome], attempt_id: str) -> Outcome | None:
    """The outcome of an attempt among others; None if it was not made."""
    return next((one for one in outcomes if one.attempt.id == attempt_id), None)
