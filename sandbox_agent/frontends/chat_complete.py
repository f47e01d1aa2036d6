"""What Tab offers: the commands, what may follow them, and paths of the workspace.

Paths are those of the session's last checkpoint, which are in memory: nothing of the workspace is opened or listed, on
this machine or inside. Names that a terminal would not show as they are, are not offered.
"""

from __future__ import annotations

import bisect
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from prompt_toolkit.completion import CompleteEvent, Completer, Completion
from prompt_toolkit.document import Document

from sandbox_agent.frontends.sanitise import exact
from sandbox_agent.types import WORKSPACE_MOUNT
from sandbox_agent.workspaces.base import Kind
from sandbox_agent.workspaces.snapshot import Node

MOST_OFFERED = 200


class ChatCompleter(Completer):
    """For one line of input."""

    def __init__(
        self,
        commands: Mapping[str, str],
        arguments: Callable[[str], Sequence[str]],
        paths: Callable[[], Mapping[str, Node]],
    ) -> None:
        """Nothing is asked for yet.

        Args:
            commands: name without the slash to one line of help.
            arguments: what may follow a command.
            paths: what is in the workspace, by relative path; the same object while nothing changed.
        """
        self._commands = commands
        self._arguments = arguments
        self._paths = paths
        self._known: Mapping[str, Node] | None = None
        self._sorted: list[str] = []

    def get_completions(self, document: Document, complete_event: CompleteEvent) -> Iterator[Completion]:
        """See prompt_toolkit; paths only when Tab asked for them."""
        before = document.text_before_cursor
        word = before.split()[-1] if before.strip() and not before[-1].isspace() else ""
        if before.startswith("/") and " " not in before and "\n" not in before and "/" not in before[1:]:
            names = [name for name in self._commands if name.startswith(before[1:])]
            yield from (Completion("/" + n, -len(before), display_meta=self._commands[n]) for n in names)
            if names:
                return
        command, space, _ = before.partition(" ")
        if space and command[1:] in self._commands and command.startswith("/"):
            offered = [one for one in self._arguments(command[1:]) if one.startswith(word)]
            yield from (Completion(one, -len(word)) for one in offered)
            if offered:
                return
        if complete_event.completion_requested:
            yield from self._below(word)

    def _below(self, word: str) -> Iterable[Completion]:
        """The entries of one folder that go on with the word."""
        mark = "@" if word.startswith("@") else ""
        wanted = word.removeprefix(mark).removeprefix("./")
        if wanted.startswith(WORKSPACE_MOUNT + "/"):
            wanted = wanted.removeprefix(WORKSPACE_MOUNT + "/")
        elif wanted.startswith("/"):
            return
        folder = wanted.rpartition("/")[0]
        start = len(folder) + 1 if folder else 0
        offered = 0
        for path, is_folder in self._starting_with(wanted):
            if not path or exact(path).text != path or any(char.isspace() for char in path):
                continue
            text = path + ("/" if is_folder else "")
            yield Completion(text[len(wanted) :], 0, display=text[start:])
            offered += 1
            if offered == MOST_OFFERED:
                return

    def _starting_with(self, wanted: str) -> Iterator[tuple[str, bool]]:
        """The known paths that begin so and lie in the same folder, and whether each is a folder."""
        known = self._paths()
        if known is not self._known:
            self._known, self._sorted = known, sorted(known)
        start = wanted.rfind("/") + 1
        index = bisect.bisect_left(self._sorted, wanted)
        while index < len(self._sorted) and self._sorted[index].startswith(wanted):
            path = self._sorted[index]
            deeper = path.find("/", start)
            if deeper >= 0:  # past all that lies in that folder: "0" is what comes after "/"
                index = bisect.bisect_left(self._sorted, path[:deeper] + "0")
                continue
            yield path, known[path].kind is Kind.DIRECTORY
            index += 1
