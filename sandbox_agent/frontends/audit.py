"""An audit for people: what the record proves first, then each list, one line an item."""

from __future__ import annotations

import time
from collections.abc import Sequence

from rich.text import Text

from sandbox_agent.engine.auditing import SHOWN_BREAKS, Audit
from sandbox_agent.frontends import words
from sandbox_agent.frontends.printer import Printer
from sandbox_agent.frontends.sanitise import sanitise
from sandbox_agent.types import JsonObject

SHOWN_PATHS = 10
_WIDTH = 9


def show(printer: Printer, audit: Audit) -> None:
    """Print all of it."""
    _proof(printer, audit)
    for run in audit.findings.runs:
        _fact(printer, "run", _run(run))
    _calls(printer, audit)
    found = audit.findings
    lists = (
        ("denied", "red", [f"{_call(one)}: {_said(one)}" for one in found.denials]),
        ("asked", "yellow", [f"{_call(one)}: {_answer(one)}" for one in found.questions]),
        ("did other than declared", "bold red", [_contradiction(one) for one in found.contradictions]),
        ("applied to the folder", "green", [_applied(one) for one in found.applied]),
        ("rules added", "yellow", [_rule(one) for one in found.rules]),
        ("hooks", "bold", [_hook(one) for one in found.hooks]),
        ("changed in the folder by others", "yellow", [_drift(one) for one in found.drifted]),
    )
    for title, style, items in lists:
        if items:
            _list(printer, title, style, items)
    nothing = [title for title, _, items in lists if not items]
    if nothing:
        printer.gap()
        printer.line(f"none: {', '.join(nothing)}", "dim")


def _fact(printer: Printer, name: str, text: str, style: str = "") -> None:
    printer.line(Text.assemble((f"{name:<{_WIDTH}}", "dim"), " ", (text, style)))


def _proof(printer: Printer, audit: Audit) -> None:
    chain = audit.chain
    size = f"{words.count(len(chain.heads), 'entry')} in {sanitise(str(audit.path))}"
    _fact(printer, "session", sanitise(audit.session_id), "bold")
    _fact(printer, "record", size)
    if chain.holds:
        _fact(printer, "chain", "holds: every entry follows from the one before", "green")
    for found in chain.breaks[:SHOWN_BREAKS]:
        _fact(printer, "chain", f"BROKEN at line {found.line}: {found.reason}", "bold red")
    if len(chain.breaks) > SHOWN_BREAKS:
        _fact(printer, "", f"and at {len(chain.breaks) - SHOWN_BREAKS:,} more lines", "bold red")
    for line in chain.cut_lines:
        _fact(printer, "", f"line {line} was not written to its end: a process was killed", "yellow")
    _fact(printer, "head", chain.head)
    _kept_head(printer, audit)
    if audit.too_new:
        text = f"form {audit.version} of a later version of sandbox-agent: what follows may lack something"
        _fact(printer, "version", text, "yellow")
    if audit.unreadable:
        text = f"{words.count(audit.unreadable, 'entry')} that this version does not know, and that no list has"
        _fact(printer, "unknown", text, "yellow")


def _kept_head(printer: Printer, audit: Audit) -> None:
    kept = audit.kept
    if kept is None:
        return
    if kept.entries is None:
        text = "NOT in this record: what was written by then was changed, cut off, or written anew"
        _fact(printer, "kept head", text, "bold red")
    elif kept.entries_since:
        since = words.count(kept.entries_since, "entry")
        _fact(printer, "kept head", f"found at entry {kept.entries - 1}; {since} came later", "green")
    else:
        _fact(printer, "kept head", "is the head of this record", "green")


def _run(run: JsonObject) -> str:
    when = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(run["time_unix_s"]))
    of = f", forked from {run['forked_from']}" if run["forked_from"] else ""
    of = f", goes on with {run['resumed_from']}" if run["resumed_from"] else of
    where = f"{run['workspace']} ({run['workspace_mode']})"
    text = f"{when}  {run['status']}  {where}, policy {run['policy']}, mode {run['mode']}, {run['model']}{of}"
    return sanitise(text + (f": {run['error']}" if run["error"] else ""))


def _calls(printer: Printer, audit: Audit) -> None:
    found = audit.findings
    text = f"{words.count(found.calls, 'call')} ran"
    if found.untold:
        text += f"; what {len(found.untold):,} of them changed is not known"
    if found.hosts:
        text += f"; hosts asked: {sanitise(', '.join(found.hosts))}"
    _fact(printer, "calls", text, "yellow" if found.untold else "")
    for one in found.unjudged:
        _fact(printer, "", f"{_call(one)} ran with no decision that allows exactly this", "bold red")


def _list(printer: Printer, title: str, style: str, items: Sequence[str]) -> None:
    printer.gap()
    printer.line(Text(f"{title} ({len(items):,})", style))
    for item in items:
        printer.line(f"  {item}")


def _call(one: JsonObject) -> str:
    about = words.shorten(sanitise(one["about"]), 120)
    who = "" if one["agent_id"] == "main" else f" [{sanitise(one['agent_id'])}]"
    return f"#{one['entry']}{who} {sanitise(one['tool'])}" + (f" `{about}`" if about else "")


def _said(said: JsonObject) -> str:
    """A decision in a line: the reason, and what spoke, from which part of the policy, and where that is."""
    text = sanitise(said["reason"])
    by = [sanitise(str(said[name])) for name in ("rule", "hook") if said[name]]
    places = [sanitise(str(said[name])) for name in ("layer", "location") if said[name]]
    spoke = ", ".join([*by, *places])
    return text + (f" [{spoke}]" if spoke else "") + f" (mode {sanitise(said['mode'])})" * bool(said["mode"])


def _answer(question: JsonObject) -> str:
    answer = question["answer"]
    if answer is None:
        return "never answered"
    yes = "yes" if answer["verdict"] == "allow" else "no"
    held = f", {sanitise(str(answer['scope']))}" if answer["scope"] else ""
    said = f': "{sanitise(answer["answer"])}"' if answer["answer"] else ""
    return f"{yes} by {sanitise(str(answer['answered_by']))}{held}{said}; asked because {sanitise(question['why'])}"


def _contradiction(one: JsonObject) -> str:
    parts = []
    if one["changed_count"] and "changed_files" in one["kinds"]:
        paths = one["changed"][:SHOWN_PATHS]
        more = f" and {one['changed_count'] - len(paths):,} more" if one["changed_count"] > len(paths) else ""
        shared = f" (or one of {len(one['shared_with']):,} beside it)" if one["shared_with"] else ""
        parts.append(f"was to read only, and changed {sanitise(', '.join(paths))}{more}{shared}")
    if one["left_processes"]:
        parts.append(f"left {words.count(one['left_processes'], 'process')} behind, to be killed")
    return f"{_call(one)}: {'; '.join(parts)}"


def _applied(one: JsonObject) -> str:
    paths = [*one["applied"], *(f"{path} (in part)" for path in one["partial"])]
    text = ", ".join(sanitise(str(path)) for path in paths) or "nothing"
    reasons = {**one["conflicts"], **one["withheld"]}
    kept = [f"{path} ({reasons[path]})" if path in reasons else str(path) for path in one["unapplied"]]
    return f"#{one['entry']} {text}" + (f"; not applied: {sanitise(', '.join(kept))}" if kept else "")


def _rule(one: JsonObject) -> str:
    return f"#{one['entry']} {sanitise(one['rule'])} ({sanitise(str(one['scope']))}, by {sanitise(str(one['by']))})"


def _hook(one: JsonObject) -> str:
    code = "" if one["exit_code"] is None else f", exit code {one['exit_code']}"
    text = f"#{one['entry']} {one['hook']} for {one['event']} in the {one['place']}{code}"
    decided = ": ".join(str(one[name]) for name in ("decision", "reason", "fault") if one[name])
    return sanitise(text + (f": {decided}" if decided else "") + (f" [{one['location']}]" if one["location"] else ""))


def _drift(one: JsonObject) -> str:
    return sanitise(f"#{one['entry']} {one['path']} ({one['kind']})")
