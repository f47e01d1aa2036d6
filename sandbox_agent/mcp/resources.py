"""ListMcpResources and ReadMcpResource: what servers have to be read, once a server says that it has something."""

from __future__ import annotations

import json
from collections.abc import Sequence

from pydantic import Field

from sandbox_agent.errors import ToolError
from sandbox_agent.mcp.connection import MAX_RESOURCES, Connection
from sandbox_agent.mcp.results import clean, contents_of
from sandbox_agent.mcp.tools import shortened
from sandbox_agent.prompts import prompt
from sandbox_agent.tools.base import Tool, ToolContext, ToolInput, build_tool
from sandbox_agent.types import JsonObject, Subject, ToolResult

SOURCE = "mcp"


class ListInput(ToolInput):
    """See prompts/tools/list_mcp_resources.md."""

    server: str = Field(
        description="The server whose resources are listed; with a wrong name you learn which have some."
    )


class ReadInput(ToolInput):
    """See prompts/tools/read_mcp_resource.md."""

    server: str = Field(description="The server that has it.")
    uri: str = Field(description="The resource, by the address that ListMcpResources gave.")


def resource_tools(connections: Sequence[Connection]) -> tuple[Tool, ...]:
    """The two tools; none where no server has resources."""
    if not any(connection.has_resources for connection in connections):
        return ()

    def found(name: str) -> Connection:
        names = [one.server.name for one in connections if one.has_resources]
        chosen = next((one for one in connections if one.server.name == name), None)
        if chosen is None or name not in names:
            raise ToolError(f"No server {name!r} has resources. These have some: {', '.join(names) or '(none)'}.")
        return chosen

    async def list_all(value: ListInput, ctx: ToolContext) -> ToolResult:
        listed = await _listed(found(value.server))
        if not listed:
            return ToolResult("There are no resources.")
        return ToolResult("\n".join(json.dumps(one, ensure_ascii=False) for one in listed))

    async def read(value: ReadInput, ctx: ToolContext) -> ToolResult:
        connection = found(value.server)
        server = connection.server
        uri = clean(value.uri)
        answer = await connection.ask(lambda client: client.read_resource(uri), server.call_timeout_s)
        return await shortened(contents_of(answer.contents), server, ctx)

    return (
        build_tool(
            name="ListMcpResources",
            description=prompt("tools/list_mcp_resources"),
            input_model=ListInput,
            run=list_all,
            # What a server does when it is asked is up to the server: both are judged like its tools.
            subject=lambda value, ctx: Subject(summary=value.server, specifier=value.server),
            source=SOURCE,
            timeout_s=None,
        ),
        build_tool(
            name="ReadMcpResource",
            description=prompt("tools/read_mcp_resource"),
            input_model=ReadInput,
            run=read,
            subject=lambda value, ctx: Subject(summary=f"{value.server}: {value.uri}", specifier=value.server),
            source=SOURCE,
            timeout_s=None,
            max_result_chars=1_001_000,
        ),
    )


async def _listed(connection: Connection) -> list[JsonObject]:
    found: list[JsonObject] = []
    within_s = connection.server.call_timeout_s
    pages = await connection.pages(
        lambda client, at: client.list_resources(cursor=at),
        within_s,
        f"did not answer within {within_s:g} s; it was told to stop",
        lambda pages: sum(len(page.resources) for page in pages) > MAX_RESOURCES,
    )
    for one in (one for page in pages for one in page.resources):
        entry = {"server": connection.server.name, "uri": clean(one.uri), "name": clean(one.name)}
        more = {"description": one.description, "mimeType": one.mime_type, "size": one.size}
        entry |= {key: clean(value) if isinstance(value, str) else value for key, value in more.items() if value}
        found.append(entry)
    return found[:MAX_RESOURCES]
