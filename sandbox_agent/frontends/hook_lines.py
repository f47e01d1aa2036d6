"""What people see of hooks: always when one changed the input of a call, the rest with -v."""

from __future__ import annotations

import json

from rich.text import Text

from sandbox_agent.events import HookRan
from sandbox_agent.frontends import words
from sandbox_agent.frontends.sanitise import sanitise


def lines(event: HookRan, *, verbose: bool) -> list[Text]:
    """The lines for one hook that ran."""
    found = []
    name = sanitise(event.hook)
    if verbose:
        where = f"{event.event}, {event.place}"
        end = "" if event.exit_code is None else f", exit code {event.exit_code}"
        found.append(Text(f"hook {name} ({where}{end}, {words.duration(event.duration_s)}){_said(event)}", style="dim"))
    if event.rewritten is not None:
        given = json.dumps(event.rewritten, ensure_ascii=False)
        shown = sanitise(given) if verbose else words.shorten(sanitise(given))
        found.append(Text(f"! the hook {name} changed the input of {sanitise(event.tool or 'a call')} to {shown}"))
    return found


def _said(event: HookRan) -> str:
    if event.fault is not None:
        return f": {sanitise(event.fault)}"
    if event.decision is None:
        return ""
    return f": {sanitise(event.decision)}" + (f", {sanitise(event.reason)}" if event.reason else "")
