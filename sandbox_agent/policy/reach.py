"""Whether a file pattern of the shell, or a search below a folder, could reach a path that a rule restricts.

"Could" is meant strictly: only what is surely apart counts as apart.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence

from sandbox_agent.policy.paths import PathPattern, below


def glob_may_reach(pattern: PathPattern, glob: str) -> bool:
    """True unless no name that the shell's pattern `glob` (absolute) can become is covered by the rule's pattern."""
    relative = below(pattern.base, glob)
    if relative is None:
        # Above or beside the base: only a pattern part before the base's end could still lead there.
        return not _apart(_segments(glob), _segments(pattern.base))
    return _segments_may_meet(_rule_segments(pattern), _anchored(pattern), _segments(relative))


def search_may_reach(pattern: PathPattern, folder: str, *, skips_hidden: bool) -> bool:
    """True unless nothing below `folder` (absolute) can be covered by the rule's pattern."""
    rule = _rule_segments(pattern)
    if skips_hidden and any(segment.startswith(".") for segment in rule):
        return False
    if not _anchored(pattern):
        return True
    inside = below(pattern.base, folder)
    if inside is None:
        return below(folder, pattern.base) is not None
    for wanted, there in zip(rule, _segments(inside), strict=False):
        if wanted == "**":
            return True
        if not _names_meet(there, wanted, hidden_needs_dot=False):
            return False
    return True


def _rule_segments(pattern: PathPattern) -> list[str]:
    text = pattern.text
    for mark in ("//", "~/", "./", "/"):
        if text.startswith(mark):
            text = text[len(mark) :]
            break
    return _segments(text)


def _anchored(pattern: PathPattern) -> bool:
    """gitignore: a slash anywhere but at the end ties the pattern to its base."""
    return "/" in pattern.text.rstrip("/")


def _segments(path: str) -> list[str]:
    return [segment for segment in path.split("/") if segment and segment != "."]


def _segments_may_meet(rule: Sequence[str], anchored: bool, glob: Sequence[str]) -> bool:
    if ".." in glob or not rule:
        return True
    if not anchored:
        return any(_names_meet(segment, rule[0]) for segment in glob)
    for index, wanted in enumerate(rule):
        if wanted == "**":
            return True
        if index >= len(glob):
            return False
        if not _names_meet(glob[index], wanted):
            return False
    return True


def _apart(glob: Sequence[str], base: Sequence[str]) -> bool:
    return any(not _names_meet(part, name) for part, name in zip(glob, base, strict=False))


def _names_meet(glob: str, wanted: str, *, hidden_needs_dot: bool = True) -> bool:
    """True if one name can be covered by both patterns. Without `dotglob` a leading `*` never covers a dot."""
    if hidden_needs_dot and glob[:1] in ("*", "?", "[") and wanted.startswith("."):
        return False
    return _meet(tuple(_tokens(glob)), tuple(_tokens(wanted)))


def _tokens(pattern: str) -> list[str]:
    """`*` and `?` as "*" and "?", a bracket expression as "?", other characters as themselves marked by `=`."""
    tokens: list[str] = []
    index = 0
    while index < len(pattern):
        char = pattern[index]
        closing = pattern.find("]", index + 2) if char == "[" else -1
        if char == "\\" and index + 1 < len(pattern):
            index += 1
            tokens.append("=" + pattern[index])
        elif char in "*?":
            tokens.append(char)
        elif closing > 0:
            tokens.append("?")
            index = closing
        else:
            tokens.append("=" + char)
        index += 1
    return tokens


@functools.lru_cache(maxsize=1024)
def _meet(left: tuple[str, ...], right: tuple[str, ...]) -> bool:
    """Whether some text is covered by both token lists; row by row, so that no text makes it slow or deep."""
    row = [True] + [False] * len(right)
    for column, token in enumerate(right, start=1):
        row[column] = row[column - 1] and token == "*"
    for own in left:
        new = [row[0] and own == "*"]
        for column, other in enumerate(right, start=1):
            if own == "*" or other == "*":
                new.append(row[column] or new[column - 1] if own == "*" else new[column - 1] or row[column])
            else:
                new.append(row[column - 1] and (own == other or "?" in (own, other)))
        row = new
    return row[-1]
