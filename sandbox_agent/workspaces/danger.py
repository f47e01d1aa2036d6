"""What a changed file could do later on the host, by its name and kind. A list for people, not a barrier."""

from __future__ import annotations

import functools
import re
import tomllib
from importlib import resources
from typing import NamedTuple

from sandbox_agent.workspaces.base import Kind
from sandbox_agent.workspaces.entries import special_name
from sandbox_agent.workspaces.folding import folded
from sandbox_agent.workspaces.manifest import Entry

_RULES_FILE = "danger.toml"
_SPECIAL = {
    "a FIFO": "a FIFO: whoever reads it may wait without end",
    "a socket": "a socket: whoever connects to it talks to a program of somebody's",
}


class _Rule(NamedTuple):
    reason: str
    paths: re.Pattern[str]
    unless: re.Pattern[str] | None

    def fits(self, path: str) -> bool:
        return self.paths.search(path) is not None and not (self.unless is not None and self.unless.search(path))


@functools.cache
def _rules() -> tuple[_Rule, ...]:
    """The rules of the file beside this module."""
    text = resources.files(__package__).joinpath(_RULES_FILE).read_text("utf-8")
    return tuple(
        _Rule(rule["reason"], _pattern(rule["paths"]), _pattern(rule["unless"]) if "unless" in rule else None)
        for rule in tomllib.loads(text)["rule"]
    )


def _pattern(paths: list[str]) -> re.Pattern[str]:
    return re.compile("|".join(map(_expression, paths)), re.IGNORECASE | re.DOTALL)


def _expression(path: str) -> str:
    inner = re.escape(path.removesuffix("/")).replace(r"\*", "[^/]*")
    return f"(?:^|/){inner}/" if path.endswith("/") else f"(?:^|/){inner}\\Z"


def danger_of(path: str, before: Entry | None, after: Entry | None, *, bare_repository: bool) -> str | None:
    """One line of reasons, None if nothing is known against it. Removing something is never on the list."""
    if after is None:
        return None
    reasons = []
    if after.kind is Kind.LINK:
        inside = after.target is not None and not after.target.startswith("/") and ".." not in after.target.split("/")
        reasons.append(f"a link to {after.target}" + ("" if inside else ", which may lead out of the folder"))
    if after.kind is Kind.OTHER:
        reasons.append(_SPECIAL.get(special_name(after.target), "a device: opening it talks to the system's hardware"))
    if after.executable:
        reasons.append("executable" if before is None or not before.executable else "an executable was changed")
    spellings = {path, folded(path)}
    reasons += [rule.reason for rule in _rules() if any(map(rule.fits, spellings))]
    if bare_repository:
        reasons.append("its folder looks like a bare git repository: git started there obeys its config")
    return "; ".join(reasons) or None
