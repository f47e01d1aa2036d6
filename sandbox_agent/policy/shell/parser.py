"""Text to syntax tree, by shfmt, in a bounded process. There is no second way: what it cannot read is unreadable.

The binary comes from the package `shfmt-py`, found by the package's own record, never by PATH.
"""

from __future__ import annotations

import contextlib
import functools
import importlib.metadata
import json
import os
import re
import subprocess
import threading
import unicodedata
from typing import Any

MAX_COMMAND_BYTES = 64 * 1024
MAX_NESTING = 50
"""Brackets open at once, and substitutions inside one another. Beyond, shfmt's output grows with the square."""
MAX_TREE_BYTES = 5 * 1024 * 1024
"""About 1 KiB for each word; more takes too long to read."""
PARSE_TIMEOUT_S = 1.5
# One thread less to start, and the other cores stay free for what else runs: 15 % quicker.
_ENVIRONMENT = {"GOMAXPROCS": "1"}

# shfmt 3.14 joins the line after such a comment to the command before it; bash ends the comment there.
# Letters and marks by their category, and shown as nothing or as a blank. Not the marks that make a sign an emoji.
_BLANK = frozenset("\u034f\u115f\u1160\u17b4\u17b5\u180b\u180c\u180d\u180f\u2800\u3164\uffa0") | frozenset(
    map(chr, (*range(0xFE00, 0xFE0E), *range(0xE0100, 0xE01F0)))
)
_COMMENT_CONTINUED = re.compile(rb"#[^\n]*\\\n")

Node = dict[str, Any]


class UnreadableError(ValueError):
    """The text is not bash, or is beyond a cap, or the parser is missing or failed. The message says which.

    `passing` is True for what may be otherwise the next time: a busy machine, not the text. `starved` says that it was
    the machine: the parser had got hardly any of its time.
    """

    def __init__(self, text: str, *, passing: bool = False, starved: bool = False) -> None:
        super().__init__(text)
        self.passing = passing
        self.starved = starved


def parse(text: str, *, dialect: str = "bash", timeout_s: float = PARSE_TIMEOUT_S) -> Node:
    """The syntax tree of a bash text, as `shfmt --to-json` writes it; in `PARSE_TIMEOUT_S` at most. The dialect
    "posix" is what a plain `sh` reads.

    Raises:
        UnreadableError: always the same way, whatever the cause.
    """
    return parse_with(shfmt_binary(), text, dialect=dialect, timeout_s=min(timeout_s, PARSE_TIMEOUT_S))


def parse_with(binary: str | None, text: str, *, dialect: str = "bash", timeout_s: float = PARSE_TIMEOUT_S) -> Node:
    """The same with the parser at this path; None means that there is none.

    Raises:
        UnreadableError: always the same way, whatever the cause.
    """
    try:
        raw = text.encode("utf-8")
    except UnicodeEncodeError as exc:
        raise UnreadableError("it is not text") from exc
    if b"\0" in raw:
        raise UnreadableError("it holds a NUL byte")
    if len(raw) > MAX_COMMAND_BYTES:
        raise UnreadableError(
            f"it is longer than {MAX_COMMAND_BYTES // 1024} KiB; write the text to a file and run that"
        )
    if _open_brackets(text) > MAX_NESTING:
        raise UnreadableError(f"brackets are nested more than {MAX_NESTING} deep")
    tree = _tree(_run(binary, raw, dialect, timeout_s))
    if not tree.get("Stmts") and any(line.strip() and line.lstrip()[:1] != b"#" for line in raw.split(b"\n")):
        raise UnreadableError("the shell parser found nothing in it")
    if _COMMENT_CONTINUED.search(raw) and _has_continued_comment(tree):
        raise UnreadableError("a comment ends in a backslash, and what follows it would be read wrongly; take it out")
    return tree


def hidden_character(text: str) -> str | None:
    """The name of the first character that a person does not see or that changes how the text is shown."""
    for char in text:
        if char in "\n\t" or " " <= char <= "~":
            continue
        if unicodedata.category(char) in ("Cc", "Cf", "Zl", "Zp", "Cs", "Co", "Cn") or char in _BLANK:
            return f"U+{ord(char):04X} {unicodedata.name(char, 'control character')}"
    return None


@functools.cache
def shfmt_binary() -> str | None:
    """Where the package `shfmt-py` put its program, or None."""
    try:
        files = importlib.metadata.files("shfmt-py") or []
    except importlib.metadata.PackageNotFoundError:
        return None
    found = [file.locate() for file in files if file.name in ("shfmt", "shfmt.exe")]
    return str(found[0]) if found else None


def _has_continued_comment(tree: Node) -> bool:
    waiting: list[Any] = [tree]
    while waiting:
        node = waiting.pop()
        if isinstance(node, list):
            waiting += node
        elif isinstance(node, dict):
            comments = [*(node.get("Comments") or ()), *(node.get("Last") or ())]
            if any("\n" in str(comment.get("Text", "")) for comment in comments if isinstance(comment, dict)):
                return True
            waiting += node.values()
    return False


def _open_brackets(text: str) -> int:
    """The most round brackets open at once, quotes disregarded: cheap, and never less than the truth by much."""
    most = depth = 0
    for char in text:
        if char == "(":
            depth += 1
            most = max(most, depth)
        elif char == ")":
            depth = max(0, depth - 1)
    return most


def _run(binary: str | None, raw: bytes, dialect: str, timeout_s: float) -> bytes:
    if binary is None:
        raise UnreadableError("the shell parser is missing: reinstall the package shfmt-py")
    try:
        with subprocess.Popen(
            [binary, "--to-json", "-ln", dialect],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=_ENVIRONMENT,
            cwd="/",
        ) as process:
            return _talk(process, raw, timeout_s)
    except OSError as exc:
        raise UnreadableError(f"the shell parser could not be run: {exc.strerror or exc}", passing=True) from exc


def _talk(process: subprocess.Popen[bytes], raw: bytes, timeout_s: float) -> bytes:
    assert process.stdin is not None
    assert process.stdout is not None
    assert process.stderr is not None
    starved: list[bool] = []

    def out_of_time() -> None:
        starved.append(_cpu_s(process.pid) < timeout_s / 2)
        process.kill()

    timer = threading.Timer(timeout_s, out_of_time)
    timer.daemon = True
    timer.start()
    try:
        # One that ends before it has read says why on the other streams.
        with contextlib.suppress(BrokenPipeError):
            process.stdin.write(raw)
            process.stdin.close()
        tree = process.stdout.read(MAX_TREE_BYTES + 1)
        if len(tree) > MAX_TREE_BYTES:
            process.kill()
            raise UnreadableError("it is too large to judge")
        fault = process.stderr.read(4096)
        code = process.wait()
    finally:
        timer.cancel()
    if code < 0:
        raise UnreadableError("reading it took too long", passing=True, starved=any(starved))
    if code != 0:
        raise UnreadableError("it is not valid bash: " + _fault(fault))
    return tree


def _cpu_s(pid: int) -> float:
    """What a process of ours has computed so far; endless where that is not known."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            user, system = file.read().rpartition(b")")[2].split()[11:13]
        return (int(user) + int(system)) / os.sysconf("SC_CLK_TCK")
    except (OSError, ValueError):
        return float("inf")


def _fault(raw: bytes) -> str:
    first = raw.decode("utf-8", "replace").strip().split("\n", 1)[0]
    return first.replace("<standard input>:", "line ")[:200] or "no reason given"


def _tree(raw: bytes) -> Node:
    try:
        tree = json.loads(raw)
    except RecursionError as exc:
        raise UnreadableError("it is nested too deeply to judge") from exc
    except ValueError as exc:
        raise UnreadableError("the shell parser gave no tree") from exc
    if not isinstance(tree, dict):
        raise UnreadableError("the shell parser gave no tree")
    return tree
