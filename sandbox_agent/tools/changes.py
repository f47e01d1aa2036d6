"""The unified diff of a change, for people; shared by Write and Edit."""

from __future__ import annotations

import difflib

from sandbox_agent.tools.lines import BOM

_CONTEXT = 3
_MAX_DIFFED_LINES = 2000
"""difflib needs quadratic time at worst; past this the changed middle is shown as removed and added as a whole."""

_MAX_DIFF_LINES = 2000


def unified_diff(path: str, before: bytes, after: bytes) -> str:
    """A unified diff of two contents of `path`, "" if they are equal. Bytes that are not UTF-8 show as U+FFFD.

    Equal lines at both ends are set aside first, so a small edit of a large file costs little.
    """
    if before == after:
        return ""
    old, new = _lines(before), _lines(after)
    head = _common(old, new)
    tail = _common(old[head:][::-1], new[head:][::-1])
    start = max(0, head - _CONTEXT)
    keep = max(0, tail - _CONTEXT)
    old_part, new_part = old[start : len(old) - keep], new[start : len(new) - keep]
    if len(old_part) + len(new_part) > _MAX_DIFFED_LINES:
        body = [
            f"@@ -{head + 1},{len(old) - head - tail} +{head + 1},{len(new) - head - tail} @@",
            *("-" + line for line in old[head : len(old) - tail]),
            *("+" + line for line in new[head : len(new) - tail]),
        ]
    else:
        body = _hunks(old_part, new_part, start)
    if len(body) > _MAX_DIFF_LINES:
        body = [*body[:_MAX_DIFF_LINES], f"[... {len(body) - _MAX_DIFF_LINES:,} more lines of diff ...]"]
    return "\n".join([f"--- {path if before else '/dev/null'}", f"+++ {path}", *body]) + "\n"


def _lines(data: bytes) -> list[str]:
    """Lines with CR kept out of sight but not lost: a change of line ends alone must show."""
    text = data.removeprefix(BOM).decode("utf-8", "replace").replace("\r", "␍")
    lines = text.split("\n")
    if lines[-1] == "":
        return lines[:-1]
    return [*lines[:-1], lines[-1] + "\n\\ No newline at end of file"]


def _common(old: list[str], new: list[str]) -> int:
    count = 0
    for left, right in zip(old, new, strict=False):
        if left != right:
            break
        count += 1
    return count


def _hunks(old: list[str], new: list[str], start: int) -> list[str]:
    """Hunks whose line numbers count from `start` lines above both parts."""
    body: list[str] = []
    for group in difflib.SequenceMatcher(None, old, new, autojunk=False).get_grouped_opcodes(_CONTEXT):
        first, last = group[0], group[-1]
        body.append(f"@@ {_span('-', start, first[1], last[2])} {_span('+', start, first[3], last[4])} @@")
        for tag, a, b, c, d in group:
            if tag == "equal":
                body += [" " + line for line in old[a:b]]
                continue
            body += ["-" + line for line in old[a:b]]
            body += ["+" + line for line in new[c:d]]
    return body


def _span(sign: str, start: int, first: int, last: int) -> str:
    count = last - first
    return f"{sign}{start + first + (1 if count else 0)},{count}"
