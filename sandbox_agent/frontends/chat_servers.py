"""MCP servers in a chat: how it is with each, and the prompts that they have ready.

A prompt is a server's words, and would be said in the person's name: it is shown as it is, and said after a yes.
"""

from __future__ import annotations

import shlex
from typing import Any

from sandbox_agent.engine.session import Session
from sandbox_agent.frontends import words
from sandbox_agent.frontends.exact_view import marked
from sandbox_agent.frontends.printer import Printer
from sandbox_agent.frontends.sanitise import exact, sanitise
from sandbox_agent.frontends.terminal import Asker

PREFIX = "mcp__"
SAY = "  Say this to the agent, in your name? [y/N] > "
_PLACES = {"session": "in the container", "own": "in its own container", "host": "outside"}


async def show(session: Session, printer: Printer) -> None:
    """A line for each server, and one for each prompt."""
    if session.servers is None:
        printer.line("There are no MCP servers.")
        return
    for one in await session.servers.standing():
        what = words.count(one.tools, "tool") if one.state == "connected" else f"{one.state}: {one.why}"
        printer.line(sanitise(f"  {one.name}  {_PLACES[one.place]}  {what}"))
    prompts, faults = await session.servers.prompts()
    for prompt in prompts:
        printer.line(sanitise(f"  {_usage(prompt)}  {prompt.about}"))
    for fault in faults:
        printer.line(f"  {sanitise(fault)}", "yellow")


async def prompt(session: Session, asker: Asker, called: str, rest: str) -> str | None:
    """The text of a prompt, once the person has seen it and wants it said; None where they do not.

    Raises:
        ValueError: there is no such prompt, or its arguments are not these; the text says how it is.
        ToolError: the server does not give it.
    """
    if session.servers is None:
        raise ValueError("there are no MCP servers")
    prompts, _ = await session.servers.prompts()
    found = next((one for one in prompts if one.called == called), None)
    if found is None:
        raise ValueError("there is no such prompt; /mcp lists those that there are")
    text = await session.servers.prompt(found, _arguments(found, rest))
    if not text:
        raise ValueError(f"the MCP server {found.server} has nothing to say for it")
    _show(asker.printer, found, text)
    async with session.rights.asking:
        answer = await asker.ask(SAY)
    return text if (answer or "").lower() in ("y", "yes") else None


def _arguments(found: Any, rest: str) -> dict[str, str]:
    names = (*found.needed, *found.optional)
    try:
        given = shlex.split(rest)
    except ValueError as exc:
        raise ValueError(f"a quote is open; write {_usage(found)}") from exc
    if not len(found.needed) <= len(given) <= len(names):
        raise ValueError(f"write {_usage(found)}")
    return dict(zip(names, given, strict=False))


def _usage(found: Any) -> str:
    return " ".join([f"/{found.called}", *(name.upper() for name in found.needed), *map(_optional, found.optional)])


def _optional(name: str) -> str:
    return f"[{name.upper()}]"


def _show(printer: Printer, found: Any, text: str) -> None:
    printer.line(f"The MCP server {sanitise(found.server)} would have you say:", "bold yellow")
    for part in exact(text, newlines=True).text.split("\n"):
        for piece in marked(part, printer.console.width):
            printer.line(piece)
