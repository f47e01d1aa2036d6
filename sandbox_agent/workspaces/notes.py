"""Lines for the person, a few per cause however many paths it concerns."""

from __future__ import annotations

SHOWN_PATHS = 5


class Notes:
    """Causes with their paths, in the order they came up."""

    def __init__(self, lines: tuple[str, ...] = ()) -> None:
        self._lines = list(lines)
        self._paths: dict[str, list[str]] = {}
        self._counts: dict[str, int] = {}

    def say(self, line: str) -> None:
        """Add a whole line, once."""
        if line not in self._lines:
            self._lines.append(line)

    def add(self, cause: str, path: str) -> None:
        """Count a path to a cause; the first few are named."""
        shown = self._paths.setdefault(cause, [])
        if path in shown:
            return
        self._counts[cause] = self._counts.get(cause, 0) + 1
        if len(shown) < SHOWN_PATHS:
            shown.append(path)

    @property
    def lines(self) -> tuple[str, ...]:
        """Everything so far; paths are not sanitised."""
        grouped = []
        for cause, shown in self._paths.items():
            more = self._counts[cause] - len(shown)
            grouped.append(f"{cause}: {', '.join(shown)}" + (f" and {more} more" if more else ""))
        return (*self._lines, *grouped)
