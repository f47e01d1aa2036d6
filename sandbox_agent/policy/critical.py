"""Removals that no mode lets through unasked: the root, folders directly below it, a home, the workspace."""

from __future__ import annotations

import posixpath
from collections.abc import Iterable, Iterator

from sandbox_agent.policy.paths import TOOLS_HOME, below
from sandbox_agent.policy.shell.analyse import ShellAnalysis, absolute
from sandbox_agent.policy.shell.model import SimpleCommand, WordKind
from sandbox_agent.types import WORKSPACE_MOUNT

_REMOVING = frozenset({"rm", "rmdir"})


def critical_removal(analysis: ShellAnalysis, folders: Iterable[str]) -> str | None:
    """The first command that plainly removes a critical path, seen from any of the folders; None if there is none."""
    for command in (*analysis.commands, *analysis.guesses):
        if command.program in _REMOVING:
            for folder in folders:
                if any(_critical(path) for path in _removed(command, folder)):
                    return command.source
    return None


def _removed(command: SimpleCommand, folder: str) -> Iterator[str]:
    for word in command.words[1:]:
        if word.kind is WordKind.STATIC and not word.text.startswith("-"):
            yield absolute(folder, word.text)
        elif word.kind is WordKind.GLOB and word.text.rstrip("/").endswith("*"):
            # All names of a folder are as good as the folder.
            yield absolute(folder, posixpath.dirname(word.text.rstrip("/")) or ".")


def _critical(path: str) -> bool:
    return path.count("/") == 1 or any(below(path, place) is not None for place in (TOOLS_HOME, WORKSPACE_MOUNT))
