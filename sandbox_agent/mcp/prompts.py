"""Prompts that servers have ready for a person: which there are, and one filled in, as text.

A prompt is the server's words. Whoever asks for one looks at them before an agent gets them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import mcp_types

from sandbox_agent.mcp.connection import Connection
from sandbox_agent.mcp.names import tool_name
from sandbox_agent.mcp.results import clean, contents_of

MAX_PROMPTS = 200
MAX_PROMPT_CHARS = 100_000
WAIT_S = 30.0
_ABOUT_CHARS = 200


@dataclass(frozen=True, slots=True)
class ServerPrompt:
    """One prompt. `called` is its name here, `name` the server's; `needed` and `optional` name what it takes."""

    called: str
    server: str
    name: str
    about: str
    needed: tuple[str, ...]
    optional: tuple[str, ...]


async def prompts_of(connection: Connection) -> tuple[ServerPrompt, ...]:
    """The prompts of a server; none where it says that it has none.

    Raises:
        ToolError: it does not say in time.
    """
    if not connection.has_prompts:
        return ()
    pages = await connection.pages(
        lambda client, at: client.list_prompts(cursor=at),
        WAIT_S,
        f"did not say within {WAIT_S:g} s which prompts it has",
        lambda pages: sum(len(page.prompts) for page in pages) > MAX_PROMPTS,
    )
    listed = [one for page in pages for one in page.prompts][:MAX_PROMPTS]
    return tuple(_prompt(connection.server.name, one) for one in listed)


def _prompt(server: str, prompt: Any) -> ServerPrompt:
    arguments = prompt.arguments or ()
    about = " ".join(clean(prompt.description or prompt.title or "").split())
    return ServerPrompt(
        called=tool_name(server, prompt.name),
        server=server,
        name=prompt.name,
        about=about if len(about) <= _ABOUT_CHARS else about[:_ABOUT_CHARS] + "...",
        needed=tuple(clean(one.name) for one in arguments if one.required),
        optional=tuple(clean(one.name) for one in arguments if not one.required),
    )


async def filled_in(connection: Connection, name: str, arguments: Mapping[str, str]) -> str:
    """What a prompt says with these arguments.

    Raises:
        ToolError: the server does not give it.
    """
    given = {key: clean(text) for key, text in arguments.items()}
    answer = await connection.ask(lambda client: client.get_prompt(name, given), WAIT_S)
    return _text(answer.messages)


def _text(messages: Sequence[Any]) -> str:
    """The messages one after the other; who would have said what stands before them where it is not the person."""
    parts = []
    for message in messages:
        text = _said(message.content)
        parts.append(text if message.role == "user" else f"({message.role}:) {text}")
    whole = "\n\n".join(parts).strip()
    if len(whole) > MAX_PROMPT_CHARS:
        whole = f"{whole[:MAX_PROMPT_CHARS]}\n[... {len(whole):,} characters in all]"
    return whole


def _said(content: Any) -> str:
    match content:
        case mcp_types.TextContent(text=text):
            return clean(text)
        case mcp_types.EmbeddedResource(resource=resource):
            found = contents_of([resource]).content
            return found if isinstance(found, str) else "(a picture; it cannot be given as text)"
        case mcp_types.ResourceLink(uri=uri, name=name):
            return clean(f"(resource {name}: {uri})")
        case _:
            return f"({getattr(content, 'type', 'a part')}; it cannot be given as text)"
