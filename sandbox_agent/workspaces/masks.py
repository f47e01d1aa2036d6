"""Which paths of the folder a session must not see: gitignore patterns, matched on what exists at the start."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pathspec import GitIgnoreSpec

from sandbox_agent.errors import WorkspaceError


class Masks:
    """The patterns of a run, ready to match."""

    def __init__(self, patterns: Sequence[str]) -> None:
        """Raises WorkspaceError for a pattern that cannot be read: leaving it out would show the secret."""
        self.patterns = tuple(patterns)
        try:
            self._spec = GitIgnoreSpec.from_lines(self.patterns)
        except ValueError as error:
            raise WorkspaceError(f"a mask is no gitignore pattern: {error}") from error

    def rule_for(self, path: str, *, directory: bool) -> str | None:
        """The pattern that hides a path; whatever lies in a hidden folder is hidden with it."""
        if not self.patterns:
            return None
        # Surrogates stand for bytes that are no UTF-8; patterns are text and match around them.
        result = self._spec.check_file(path + "/" if directory else path)
        return self.patterns[result.index] if result.include and result.index is not None else None


def masking_rule(masked: Mapping[str, str], path: str) -> str | None:
    """The pattern among `Workspace.masked` that hides a path, by itself or by a folder it is in."""
    parts = path.split("/")
    for count in range(len(parts), 0, -1):
        rule = masked.get("/".join(parts[:count]))
        if rule is not None:
            return rule
    return None
