"""What a server's tools were when the person let it be used: a change is something to be asked about, not to be lived
with. Kept in our own state folder, by what the server is: another command or URL is another server."""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from sandbox_agent.mcp.schemas import fingerprint
from sandbox_agent.policy.servers import McpServer

FILE = "mcp-pins.json"
MAX_FILE_BYTES = 8 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class Difference:
    """How a list of tools differs from the one that was approved, by the server's own names."""

    added: tuple[str, ...]
    changed: tuple[str, ...]
    removed: tuple[str, ...]

    @property
    def matters(self) -> bool:
        """Whether anything is there that nobody has approved."""
        return bool(self.added or self.changed)

    def __str__(self) -> str:
        parts = [("new", self.added), ("changed", self.changed), ("gone", self.removed)]
        return "; ".join(f"{word}: {', '.join(names)}" for word, names in parts if names)


def difference(approved: Mapping[str, str], now: Mapping[str, str]) -> Difference:
    """Of two lists, tool to hash."""
    return Difference(
        added=tuple(sorted(now.keys() - approved.keys())),
        changed=tuple(sorted(name for name in now.keys() & approved.keys() if now[name] != approved[name])),
        removed=tuple(sorted(approved.keys() - now.keys())),
    )


class Pins:
    """The file of them. One that cannot be read counts as empty: then every server is new, which is told."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / FILE

    def approved(self, server: McpServer) -> dict[str, str] | None:
        """Tool to hash, None for a server that was never approved."""
        found = self._read().get(identity(server))
        tools = found.get("tools") if isinstance(found, dict) else None
        return {str(name): str(pin) for name, pin in tools.items()} if isinstance(tools, dict) else None

    def approve(self, server: McpServer, tools: Mapping[str, str]) -> None:
        """Take up what its tools are now.

        Raises:
            OSError: the file cannot be written.
        """
        with open(self._path.with_suffix(".lock"), "w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            known = self._read() | {identity(server): {"name": server.name, "tools": dict(tools)}}
            descriptor, name = tempfile.mkstemp(dir=self._path.parent, prefix=".mcp-pins-")
            try:
                with os.fdopen(descriptor, "w") as file:
                    json.dump(known, file, sort_keys=True)
                os.replace(name, self._path)
            except BaseException:
                os.unlink(name)
                raise

    def _read(self) -> dict[str, object]:
        try:
            if self._path.stat().st_size > MAX_FILE_BYTES:
                return {}
            found = json.loads(self._path.read_text(encoding="utf-8"))
        except (OSError, ValueError, RecursionError):
            return {}
        return found if isinstance(found, dict) else {}


def identity(server: McpServer) -> str:
    """What a server is recognised by: its name, where it runs, and what it is."""
    facts = [server.name, server.place.value, server.transport.value, list(server.command), server.url, server.image]
    return hashlib.sha256(fingerprint(facts).encode("utf-8", "surrogatepass")).hexdigest()
