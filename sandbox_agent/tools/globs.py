"""Glob patterns, and the walk that lists the newest files of a tree.

This file works in two places: tools import it on the host, and Glob sends its text to the container's own Python.
So it uses the standard library only, and little of it: importing json and typing as well would cost 10 ms a call.
Matching never backtracks further than one `*`, whatever the pattern.
"""

from __future__ import annotations

import fnmatch
import heapq
import os
import re
import sys
import time

MAX_ALTERNATIVES = 512
ANY_DEPTH = "**"


Segment = tuple[str, "re.Pattern[str] | None"]
"""One part of a pattern between slashes, as text and as what matches it, which is None for `**`."""

Glob = list[list[Segment]]
"""A pattern with its braces expanded: a path matches if any alternative does."""


def compile_glob(pattern: str) -> Glob:
    """`*` and `?` stay within a name, `**` between slashes is any number of directories, `[...]` and `{a,b}` as usual.

    Raises:
        ValueError: the braces stand for more than `MAX_ALTERNATIVES` patterns.
    """
    return [[_segment(text) for text in one.split("/") if text not in ("", ".")] for one in expand_braces(pattern)]


def matches(glob: Glob, path: str) -> bool:
    """Whether a relative path, without leading "./", matches as a whole. Names with a leading dot are like others."""
    names = path.split("/")
    return any(_all_match(segments, names) for segments in glob)


def expand_braces(pattern: str) -> list[str]:
    """`a{b,c}` as ["ab", "ac"], nested ones too; braces that are not closed or hold no comma are themselves."""
    done: list[str] = []
    todo = [pattern]
    while todo:
        current = todo.pop()
        found = _first_braces(current)
        if found is None:
            done.append(current)
        else:
            start, end, parts = found
            todo += [current[:start] + part + current[end:] for part in reversed(parts)]
        if len(todo) + len(done) > MAX_ALTERNATIVES:
            raise ValueError(f"the braces stand for more than {MAX_ALTERNATIVES} patterns")
    return done


def _first_braces(pattern: str) -> tuple[int, int, list[str]] | None:
    start = pattern.find("{")
    while start >= 0:
        depth, cut, parts = 0, start + 1, []
        for position in range(start, len(pattern)):
            character = pattern[position]
            if character == "{":
                depth += 1
            elif character == "," and depth == 1:
                parts.append(pattern[cut:position])
                cut = position + 1
            elif character == "}":
                depth -= 1
                if depth == 0:
                    if parts:
                        return start, position + 1, [*parts, pattern[cut:position]]
                    break
        start = pattern.find("{", start + 1)
    return None


def _segment(text: str) -> Segment:
    if text == ANY_DEPTH:
        return text, None
    return text, re.compile(fnmatch.translate(text.replace("[^", "[!")))


def _name_matches(segment: Segment, name: str) -> bool:
    """A name that is spelled like the pattern matches too: `[id].tsx` is a common name of files."""
    text, regex = segment
    return name == text or (regex is not None and regex.match(name) is not None)


def _all_match(segments: list[Segment], names: list[str]) -> bool:
    """The classic walk for `*` with one place to go back to, over names instead of letters."""
    at = name_at = 0
    star = -1
    star_name = 0
    while name_at < len(names):
        if at < len(segments) and segments[at][0] == ANY_DEPTH:
            star, star_name = at, name_at
            at += 1
        elif at < len(segments) and _name_matches(segments[at], names[name_at]):
            at += 1
            name_at += 1
        elif star >= 0:
            star_name += 1
            at, name_at = star + 1, star_name
        else:
            return False
    return all(text == ANY_DEPTH for text, _ in segments[at:])


def newest_files(
    root: str, pattern: str, limit: int, deadline_s: float, *, by_name: bool = False
) -> tuple[list[str], int, bool, int]:
    """The `limit` newest files below `root` that match, ties by path; how many match in all; whether that is all of
    them; and how many directories could not be read. `by_name`: the first by path in place of the newest.

    `.git` is never entered, links to directories are not followed, links to files count as files.
    """
    glob = compile_glob(pattern)
    depth = max(len(segments) for segments in glob)
    if any(text == ANY_DEPTH for segments in glob for text, _ in segments):
        depth = sys.maxsize
    found: list[tuple[int, str]] = []
    complete, unreadable = True, 0
    todo = [("", 1)]
    while todo:
        folder, level = todo.pop()
        if time.monotonic() > deadline_s:
            complete = False
            break
        try:
            with os.scandir(os.path.join(root, folder)) as entries:
                for entry in entries:
                    path = folder + entry.name
                    if entry.name == ".git":
                        continue
                    if entry.is_dir(follow_symlinks=False):
                        if level < depth:
                            todo.append((path + "/", level + 1))
                    elif matches(glob, path) and entry.is_file():
                        found.append((0 if by_name else -entry.stat().st_mtime_ns, path))
        except OSError:
            unreadable += 1
    paths = [path for _, path in heapq.nsmallest(limit, found)]
    return paths, len(found), complete, unreadable


def main() -> None:
    """ROOT PATTERN LIMIT SECONDS [name]; prints total, complete (1 or 0), unreadable, paths, a NUL behind each."""
    root, pattern, limit, seconds = sys.argv[1:5]
    deadline_s = time.monotonic() + float(seconds)
    by_name = sys.argv[5:] == ["name"]
    paths, total, complete, unreadable = newest_files(root, pattern, int(limit), deadline_s, by_name=by_name)
    fields = [str(total), str(int(complete)), str(unreadable), *paths]
    sys.stdout.buffer.write(b"".join(os.fsencode(field) + b"\0" for field in fields))


if __name__ == "__main__":
    main()
