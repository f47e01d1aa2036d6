"""Glob patterns, and the walk that lists the newest files of a tree.

This file works in two places: tools import it on the host, and Glob sends its text to the container's own Python.
So it uses the standard library only. Matching never backtracks further than one `*`, whatever the pattern.
"""

from __future__ import annotations

import fnmatch
import heapq
import json
import os
import re
import sys
import time
from typing import NamedTuple

MAX_ALTERNATIVES = 512
ANY_DEPTH = "**"


class Segment(NamedTuple):
    """One part of a pattern between slashes; `regex` is None for `**`."""

    text: str
    regex: re.Pattern[str] | None


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
        return Segment(text, None)
    return Segment(text, re.compile(fnmatch.translate(text.replace("[^", "[!"))))


def _name_matches(segment: Segment, name: str) -> bool:
    """A name that is spelled like the pattern matches too: `[id].tsx` is a common name of files."""
    return name == segment.text or (segment.regex is not None and segment.regex.match(name) is not None)


def _all_match(segments: list[Segment], names: list[str]) -> bool:
    """The classic walk for `*` with one place to go back to, over names instead of letters."""
    at = name_at = 0
    star = -1
    star_name = 0
    while name_at < len(names):
        if at < len(segments) and segments[at].text == ANY_DEPTH:
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
    return all(segment.text == ANY_DEPTH for segment in segments[at:])


def newest_files(root: str, pattern: str, limit: int, deadline_s: float) -> dict[str, object]:
    """The `limit` newest files below `root` that match, ties by path, and how many match in all.

    `.git` is never entered, links to directories are not followed, links to files count as files.
    """
    glob = compile_glob(pattern)
    depth = max(len(segments) for segments in glob)
    if any(segment.text == ANY_DEPTH for segments in glob for segment in segments):
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
                        found.append((-entry.stat().st_mtime_ns, path))
        except OSError:
            unreadable += 1
    paths = [path for _, path in heapq.nsmallest(limit, found)]
    return {"paths": paths, "total": len(found), "complete": complete, "unreadable": unreadable}


def main() -> None:
    """ROOT PATTERN LIMIT SECONDS; prints one JSON object."""
    root, pattern, limit, seconds = sys.argv[1:5]
    print(json.dumps(newest_files(root, pattern, int(limit), time.monotonic() + float(seconds))))


if __name__ == "__main__":
    main()
