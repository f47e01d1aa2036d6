"""A file of MCP servers, of the form that other programs keep as `.mcp.json`, which a person names for a run.

Where it lies in the folder that is worked on, the agent could have written it: then it may name no more than programs
of the session's container, which are nothing that the agent could not run itself.
"""

from __future__ import annotations

import difflib
import re
from pathlib import Path

from pydantic import BaseModel, ConfigDict, ValidationError

from sandbox_agent.errors import PolicyError
from sandbox_agent.policy.faults import shape_faults
from sandbox_agent.policy.servers import NAME, McpServer, Place, ServerEntry, server_of, variables
from sandbox_agent.policy.source import Document, parse_document, read_bytes
from sandbox_agent.policy.trust import lies_in, require_own

_KEY = "mcpServers"


class ServersFile(BaseModel):
    """All that counts in such a file; other programs have further sections of their own."""

    model_config = ConfigDict(extra="ignore", frozen=True)

    mcpServers: dict[str, ServerEntry]


def read_servers(path: Path, host: frozenset[str], workspace: Path) -> tuple[McpServer, ...]:
    """The servers of a file.

    Args:
        path: the file.
        host: names of those that the policy lets run on this machine, or lie behind a URL.
        workspace: the folder that is worked on.

    Raises:
        PolicyError: it cannot be read, is no such file, or a server says what does not go together, or asks for more
            than it may.
    """
    try:
        text = read_bytes(path, str(path)).decode("utf-8-sig")
    except UnicodeDecodeError as exc:
        raise PolicyError(f"the file is not UTF-8 text (byte {exc.start})", location=str(path)) from exc
    except PolicyError as exc:
        raise PolicyError(
            f"--mcp-config: {str(exc).replace('the policy', 'the file').replace('a policy is', 'this must be')}"
        ) from exc
    document = parse_document(text, str(path))  # JSON is YAML, and this way every fault has its line
    if document.faults:
        raise document.faults[0]
    servers = document.data.get(_KEY)
    if not isinstance(servers, dict):
        near = difflib.get_close_matches(_KEY, document.data, n=1, cutoff=0.7) or [
            key for key in ("servers", "mcp") if key in document.data
        ]
        hint = f"; did you mean that by {near[0]!r}?" if near else ""
        where = document.location((near[0],)) if near else str(path)
        raise PolicyError(f'the file has no "{_KEY}": {{name: {{...}}}}{hint}', location=where)
    for name in servers:
        if not re.match(NAME, name):
            told = f"the name {name!r}: letters, digits, `.`, `_` and `-`, at most 64"
            raise PolicyError(told, location=document.location((_KEY, name)))
    try:
        file = ServersFile.model_validate(document.data)
    except ValidationError as exc:
        raise shape_faults(document, exc, ServersFile)[0] from exc
    found = tuple(_of_file(document, name, entry, host) for name, entry in file.mcpServers.items())
    for name, entry in file.mcpServers.items():
        beyond = _beyond(entry)
        if beyond is not None:
            _require_trusted(path, workspace, name, beyond, document.location((_KEY, name)))
    return found


def _of_file(document: Document, name: str, entry: ServerEntry, host: frozenset[str]) -> McpServer:
    place = entry.place or (Place.HOST if entry.url is not None and name in host else None)
    return server_of(name, entry, place, document.location((_KEY, name)), may_be_host=name in host)


def _beyond(entry: ServerEntry) -> str | None:
    """What an entry asks for that the agent has not itself; None where there is nothing."""
    if entry.url is not None or entry.place is Place.HOST:
        return "lies outside of every container"
    if used := sorted(variables(entry)):
        return f"asks for your variable {used[0]}"
    if entry.allow_hosts:
        return "asks for the network (allow_hosts)"
    return "asks for an image" if entry.image is not None else None


def _require_trusted(path: Path, workspace: Path, name: str, told: str, where: str) -> None:
    """Refuse what only the person may give, where somebody else could have written the entry.

    Raises:
        PolicyError: somebody could.
    """
    if lies_in(path, workspace):
        raise PolicyError(
            f"the MCP server {name} {told}, and its file lies in the folder that is worked on, where the agent can "
            "change it; write the server into your policy (mcp: servers:), or move the file out",
            location=where,
        )
    try:
        require_own(path, str(path))
    except PolicyError as exc:
        raise PolicyError(f"the MCP server {name} {told}: {str(exc).replace('the policy', 'its file')}") from exc
