"""What a person wrote in earlier chats, for the arrow keys. In our state folder, readable by nobody else, and without
the values of masked files: what is written goes through the session's redactor first.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from prompt_toolkit.history import History

HISTORY_FILE = "chat_history.jsonl"
KEPT_MESSAGES = 1000
MAX_FILE_BYTES = 4 * 1024 * 1024
"""A longer file is read from this far before its end."""


class ChatHistory(History):
    """The messages of a file, one JSON string a line. Lines that are none are left out.

    A file that cannot be read or written costs the history and nothing else: `fault` says why, once.
    """

    def __init__(self, path: Path) -> None:
        super().__init__()
        self._path = path
        self._unsaved: list[str] = []
        self.fault: str | None = None

    def load_history_strings(self) -> Iterable[str]:
        """The newest first."""
        return reversed(self._read())

    def store_string(self, string: str) -> None:
        """Keep it for `save`."""
        self._unsaved.append(string)

    def save(self, clean: Callable[[str], str]) -> None:
        """Write what was not written yet, as `clean` gives it back."""
        texts, self._unsaved = [clean(text) for text in self._unsaved], []
        if texts:
            self._trying(lambda: self._append(texts))

    def _read(self) -> list[str]:
        found: list[str] = []
        self._trying(lambda: found.extend(self._messages()))
        if len(found) > KEPT_MESSAGES * 2:
            del found[:-KEPT_MESSAGES]
            self._trying(lambda: self._rewrite(found))
        return found[-KEPT_MESSAGES:]

    def _messages(self) -> list[str]:
        try:
            fd = os.open(self._path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
        except FileNotFoundError:
            return []
        with os.fdopen(fd, "rb") as file:
            size = os.fstat(fd).st_size
            if size > MAX_FILE_BYTES:
                file.seek(size - MAX_FILE_BYTES)
                file.readline()
            return [text for line in file if (text := _message(line)) is not None]

    def _append(self, texts: Sequence[str]) -> None:
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC
        with os.fdopen(os.open(self._path, flags, 0o600), "w", encoding="utf-8") as file:
            file.write("".join(json.dumps(text) + "\n" for text in texts))

    def _rewrite(self, texts: Sequence[str]) -> None:
        part = self._path.with_name(self._path.name + ".part")
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC
        with os.fdopen(os.open(part, flags, 0o600), "w", encoding="utf-8") as file:
            file.write("".join(json.dumps(text) + "\n" for text in texts))
        part.replace(self._path)

    def _trying(self, work: Callable[[], None]) -> None:
        try:
            work()
        except OSError as error:
            self.fault = self.fault or f"{self._path}: {error.strerror or error}"


def _message(line: bytes) -> str | None:
    try:
        text = json.loads(line)
    except ValueError:
        return None
    return text if isinstance(text, str) and text.strip() else None
