"""WebFetch: a page as text, fetched by a program in the container over the network's gate, as everything there is."""

from __future__ import annotations

import functools
import hashlib
import json
from typing import Annotated, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, StringConstraints, ValidationError

from sandbox_agent import __version__
from sandbox_agent.errors import ToolError
from sandbox_agent.prompts import prompt
from sandbox_agent.sandboxes.base import MIB
from sandbox_agent.sandboxes.program import INTERPRETERS, bundled
from sandbox_agent.tools.base import ToolContext, ToolInput, build_tool
from sandbox_agent.tools.page_cache import Page
from sandbox_agent.tools.web_address import Address, parse_address
from sandbox_agent.types import Subject, ToolResult

MAX_PAGE_BYTES = 5 * MIB
MAX_CHARS = 50_000
TIMEOUT_S = 30.0
AGENT = f"sandbox-agent/{__version__}"
_KILLED_AFTER_S = 45.0
_ERROR_CHARS = 1000
_LINE_CHARS = 2000
_MARK_CHARS = 12
_MISSING = (126, 127)
_HTTP_ERROR = 400


def _usable_url(text: str) -> str:
    parse_address(text)
    return text


class WebFetchInput(ToolInput):
    """See prompts/tools/web_fetch.md."""

    url: Annotated[str, AfterValidator(_usable_url)] = Field(description="Address of the page, https or http.")
    prompt: Annotated[str, StringConstraints(max_length=2000)] = Field(
        default="", description="What you want to know from the page; it comes back with the text."
    )
    offset: Annotated[int, Field(ge=0)] = Field(default=0, description="Characters of the text to pass over.")


def _line(text: str) -> str:
    return "".join(char if " " <= char <= "~" else "?" for char in text[:_LINE_CHARS])


Line = Annotated[str, AfterValidator(_line)]
"""Of a server's making: kept to what cannot be taken for other lines."""


class Head(BaseModel):
    """What the program in the container says; nothing of it is trusted to be more than text."""

    model_config = ConfigDict(strict=True, extra="forbid")

    outcome: Literal["page", "redirect", "binary", "refused", "failed"]
    url: str = ""
    status: int = 0
    reason: Line = ""
    type: Line = ""
    size: Line = ""
    charset: Line = ""
    location: Line = ""
    cut: bool = False
    broken: bool = False

    def led_to(self, address: Address) -> str:
        """Where the page came from in the end; what was asked for, if that is not of the same host."""
        try:
            found = parse_address(self.url)
        except ValueError:
            return address.url
        return found.url if found.host == address.host else address.url


async def run(value: WebFetchInput, ctx: ToolContext) -> ToolResult:
    """Fetch the page, or the next part of it.

    Raises:
        ToolError: the gate or the server refuses, it is not text, or leads to another host; the text says which.
    """
    address = parse_address(value.url).upgraded(ctx.opens)
    page = ctx.pages.get(address.url)
    if page is None:
        page = await _fetched(address, ctx)
        ctx.pages.put(address.url, page)
    return _shown(value, page)


async def _fetched(address: Address, ctx: ToolContext) -> Page:
    head, text = await _asked(address, ctx)
    url = address.url
    match head.outcome:
        case "page" if head.status < _HTTP_ERROR:
            return Page(head.led_to(address), head.type or "of no type", text, tuple(_notes(head)))
        case "page":
            said = text[:_ERROR_CHARS].strip()
            more = f" It says (untrusted text):\n{said}" if said else ""
            raise ToolError(f"{url} answers {head.status} {head.reason}.{more}")
        case "redirect":
            raise ToolError(
                f"{url} leads to another place and was not followed. If you want that, fetch it by its own address: "
                f"{head.location}"
            )
        case "binary":
            size = f", {head.size} bytes" if head.size.isdigit() else ""
            raise ToolError(
                f"{url} is {head.type}{size}, not text, so it is not shown. Where you need the file, get it with curl "
                "-o in Bash."
            )
        case "refused":
            raise ToolError(f"{url} is refused by the network's gate: {head.reason}")
        case "failed":
            raise ToolError(f"{url} could not be fetched: {head.reason}.")


async def _asked(address: Address, ctx: ToolContext) -> tuple[Head, str]:
    """What the program in the container gave.

    Raises:
        ToolError: there is no Python in the container, the program did not end, or gave something else.
    """
    job = {"url": address.url, "max_bytes": MAX_PAGE_BYTES, "timeout_s": TIMEOUT_S, "agent": AGENT}
    for interpreter in INTERPRETERS:
        ran = await ctx.sandbox.exec(
            [interpreter, "-I", "-S", "-c", _program()],
            stdin=json.dumps(job).encode(),
            timeout_s=_KILLED_AFTER_S,
            max_output_bytes=4 * MAX_PAGE_BYTES,
        )
        if ran.exit_code not in _MISSING:
            break
    else:
        raise ToolError("WebFetch needs python3 in the container, and this image has none. Use curl in Bash.")
    if ran.timed_out:
        raise ToolError(f"{address.url} could not be fetched: it took too long.")
    line, newline, body = ran.stdout.partition(b"\n")
    try:
        if ran.exit_code != 0 or ran.truncated or not newline:
            raise ValueError
        return Head.model_validate_json(line), body.decode("utf-8", "replace")
    except (ValidationError, ValueError) as exc:
        said = ran.stderr.decode("utf-8", "replace").strip().rpartition("\n")[2][:200]
        raise ToolError(
            f"{address.url} could not be fetched: the program in the container failed ({said or ran.exit_code})."
        ) from exc


@functools.cache
def _program() -> str:
    return bundled(("sandbox_agent.tools.inside", ("readable", "fetch")))


def _notes(head: Head) -> list[str]:
    notes = []
    if head.cut:
        notes.append(f"The page is longer than what is read of one ({MAX_PAGE_BYTES:,} bytes): its end is missing.")
    if head.broken:
        notes.append(f"The page is not valid {head.charset}: each \ufffd stands for what could not be read.")
    return notes


def _shown(value: WebFetchInput, page: Page) -> ToolResult:
    total = len(page.text)
    if value.offset and value.offset >= total:
        raise ToolError(f"The text of {page.url} has {total:,} characters; offset {value.offset:,} is past its end.")
    text = page.text[value.offset : value.offset + MAX_CHARS]
    end = value.offset + len(text)
    notes = list(page.notes)
    if value.offset or end < total:
        more = f" Go on with offset {end}." if end < total else ""
        notes.insert(0, f"Characters {value.offset:,}-{end:,} of {total:,}.{more}")
    asked = f"\nYou want to know of it: {value.prompt}" if value.prompt.strip() else ""
    # The mark hangs on the text, so that no page can hold its own and end it.
    mark = hashlib.sha256(page.text.encode("utf-8", "replace")).hexdigest()[:_MARK_CHARS]
    told = prompt("engine/web_page").format(
        url=page.url,
        kind=page.kind,
        notes="".join(f"\n{note}" for note in notes),
        asked=asked,
        mark=mark,
        text=text or "(no text)",
    )
    return ToolResult(told, meta={"url": page.url, "chars": total, "offset": value.offset})


def _subject(value: WebFetchInput, ctx: ToolContext) -> Subject:
    address = parse_address(value.url).upgraded(ctx.opens)
    return Subject(summary=address.url, specifier=f"domain:{address.host}", sends_out=True)


TOOL = build_tool(
    name="WebFetch",
    description=prompt("tools/web_fetch"),
    input_model=WebFetchInput,
    run=run,
    # It changes nothing here; that its address goes out is what its subject says, and the policy asks about.
    read_only=True,
    parallel_safe=True,
    subject=_subject,
    max_result_chars=MAX_CHARS + 8000,
)
