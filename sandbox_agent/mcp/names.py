"""The names of servers' tools as the model and the rules know them: valid, unique, and the same every time.

A name that is valid stays as it is. Any other is cut down to what the Messages API takes, with six characters of its
own hash behind it, so that what it becomes does not hang on which other tools there are.
"""

from __future__ import annotations

import hashlib
import re

MAX_CHARS = 64
_MAX_SERVER_CHARS = 30
_PLAIN = re.compile(r"[A-Za-z0-9_-]+\Z")
_OTHER = re.compile(r"[^A-Za-z0-9_-]+")


def server_part(server: str) -> str:
    """How a server is called within the names of its tools, and in rules: `mcp__<this>__*`."""
    # Two underscores part the server from the tool.
    fits = len(server) <= _MAX_SERVER_CHARS and _PLAIN.match(server) and "__" not in server and server[-1] != "_"
    return server if fits else _cut(server.replace("__", "_").strip("_"), server, _MAX_SERVER_CHARS)


def tool_name(server: str, tool: str) -> str:
    """How a tool is called here, of a server by its name in the configuration."""
    stem = f"mcp__{server_part(server)}__"
    room = MAX_CHARS - len(stem)
    return stem + (tool if len(tool) <= room and _PLAIN.match(tool) else _cut(tool, tool, room))


def _cut(text: str, whole: str, room: int) -> str:
    mark = hashlib.sha256(whole.encode("utf-8", "surrogatepass")).hexdigest()[:6]
    return f"{_OTHER.sub('_', text)[: room - 7]}_{mark}"
