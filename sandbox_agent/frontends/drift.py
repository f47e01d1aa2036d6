"""What others changed in the person's folder while a session ran, in words; entries as in `FolderDrifted`."""

from __future__ import annotations

from collections.abc import Sequence

from sandbox_agent.frontends.sanitise import exact
from sandbox_agent.types import JsonObject

SHOWN_PATHS = 20


def drift_line(drift: Sequence[JsonObject], count: int) -> str:
    """One sanitised line: the first paths with what became of them, and how many more there are."""
    shown = [f"{exact(str(one['path'])).text} ({one['kind']})" for one in drift[:SHOWN_PATHS]]
    more = f" and {count - len(shown):,} more" if count > len(shown) else ""
    return f"changed in your folder meanwhile, and not by this session: {', '.join(shown)}{more}"
