"""What a `[[ ]]` test consists of. With static words and plain operators it reads at most."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from sandbox_agent.policy.shell.model import Word, WordKind
from sandbox_agent.policy.shell.parser import Node

_SAFE_TESTS = frozenset({f"-{letter}" for letter in "abcdefghkprstuwxzGLNOSn"} | {"-nt", "-ot", "-ef"}) | frozenset(
    {"!", "==", "=", "!=", "<", ">", "=~", "&&", "||"}
)


@dataclass(frozen=True, slots=True)
class Condition:
    """The words of a test in order, and the first operator that evaluates its operand as arithmetic, if any."""

    words: tuple[Word, ...]
    unsafe: str | None


def condition(node: Any, resolve: Callable[[Node], Word]) -> Condition:
    """The test at this node."""
    words: list[Word] = []
    unsafe: list[str] = []
    waiting = [node]
    while waiting:
        current = waiting.pop()
        if not isinstance(current, dict):
            continue
        if current.get("Type") == "Word":
            word = resolve(current)
            # No names of files are put in for a pattern here.
            words.append(Word(word.text) if word.kind is WordKind.GLOB else word)
            continue
        if current.get("Op") and current["Op"] not in _SAFE_TESTS:
            unsafe.append(current["Op"])
        waiting += [current.get("Y"), current.get("X")]
    return Condition(tuple(words), unsafe[0] if unsafe else None)
