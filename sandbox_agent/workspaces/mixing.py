"""A tree that is one step's but for the paths that some patterns name, which are another step's."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pathspec import GitIgnoreSpec

from sandbox_agent.errors import WorkspaceError
from sandbox_agent.workspaces.base import Kind
from sandbox_agent.workspaces.snapshot import Node


@dataclass(frozen=True, slots=True)
class Mixed:
    """How the tree differs from the step it mostly is: `nodes` to be as in the other one, and paths that are gone."""

    nodes: dict[str, Node]
    removed: tuple[str, ...]

    @property
    def paths(self) -> tuple[str, ...]:
        """All that differs, in order."""
        return tuple(sorted({*self.nodes, *self.removed}))


def patterns(lines: Sequence[str]) -> GitIgnoreSpec:
    """Raises WorkspaceError for a line that is no gitignore pattern, or that can match nothing."""
    for line in lines:
        if not line.strip() or line.startswith(("#", "!", "/")) or ".." in line.split("/"):
            raise WorkspaceError(f"{line!r}: give a pattern of paths in the folder, such as 'tests/**'")
    try:
        return GitIgnoreSpec.from_lines(lines)
    except ValueError as error:
        raise WorkspaceError(f"{', '.join(lines)}: no gitignore pattern: {error}") from error


def mix(now: Mapping[str, Node], before: Mapping[str, Node], spec: GitIgnoreSpec) -> Mixed:
    """What fits `spec` as it was `before`, all else as it is `now`.

    What stands in the way of a path from before (a link in place of its folder, a folder in its own place) goes.
    """
    nodes: dict[str, Node] = {}
    removed = {path for path in now if path and path not in before and _fits(spec, path, now[path])}
    for path, node in before.items():
        if not path or not _fits(spec, path, node):
            continue
        for folder in _above(path):
            if folder not in nodes and (folder not in now or now[folder].kind is not Kind.DIRECTORY):
                nodes[folder] = before[folder]
        nodes[path] = node._replace(group=None)
    solid = {path for path, node in nodes.items() if node.kind is not Kind.DIRECTORY}
    removed |= {path for path in now if path not in nodes and any(folder in solid for folder in _above(path))}
    gone = {path for path in removed if now[path].kind is Kind.DIRECTORY}
    removed |= {path for path in now if path not in nodes and any(folder in gone for folder in _above(path))}
    differing = {path: node for path, node in nodes.items() if path not in now or now[path].line("") != node.line("")}
    return Mixed(differing, tuple(sorted(removed)))


def _fits(spec: GitIgnoreSpec, path: str, node: Node) -> bool:
    return spec.match_file(path + "/" if node.kind is Kind.DIRECTORY else path)


def _above(path: str) -> list[str]:
    parts = path.split("/")
    return ["/".join(parts[:count]) for count in range(1, len(parts))]
