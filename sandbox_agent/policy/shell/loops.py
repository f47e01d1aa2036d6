"""Loops over words that are written out: `for f in a b; do grep x "$f"; done` runs `grep x a` and `grep x b`, and is
judged as these. Only where nothing in the whole text can give the variable another value.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from sandbox_agent.policy.shell.model import Word, WordKind
from sandbox_agent.policy.shell.parser import Node
from sandbox_agent.policy.shell.words import plain_variable, resolve

MAX_EXPANDED_WORDS = 1000
"""In all loops of a text together; what goes beyond stays a word that is only known at run time."""

Values = dict[str, tuple[Word, ...]]

# Builtins that can set a variable, or run text that can.
_SETTING = frozenset(
    (
        *(".", "--", "alias", "bind", "builtin", "compgen", "complete", "coproc", "declare", "enable", "eval", "exec"),
        *("export", "fc", "getopts", "history", "let", "local", "mapfile", "nameref", "read", "readarray", "readonly"),
        *("shopt", "source", "trap", "typeset", "unset", "wait"),
    )
)
_STRICTER = re.compile(r"[-+][euxo]+|pipefail|errexit|nounset|xtrace")
_SETTING_CONSTRUCTS = frozenset(
    ("DeclClause", "FuncDecl", "CoprocClause", "ArithmCmd", "ArithmExp", "LetClause", "CStyleLoop")
)


def sets_variables(tree: Node) -> bool:
    """True unless the loops of the text are surely all that gives a variable a value."""
    waiting: list[tuple[Any, frozenset[str]]] = [(tree, frozenset())]
    while waiting:
        node, looping = waiting.pop()
        if isinstance(node, list):
            waiting += [(child, looping) for child in node]
        elif isinstance(node, dict):
            if _sets(node, looping):
                return True
            looping |= {_loop_name(node)} if node.get("Type") == "ForClause" else set()
            waiting += [(child, looping) for child in node.values()]
    return False


def values(items: Iterable[Word]) -> tuple[Word, ...]:
    """What a loop over these words goes through; () where one of them is only known at run time."""
    found = tuple(items)
    return found if all(word.kind is not WordKind.DYNAMIC for word in found) else ()


def bindings(nodes: Sequence[Node], known: Values, budget_words: int) -> list[dict[str, Word]]:
    """One mapping from variable to value for each way the nodes can come out, or a single empty one: nothing is used,
    or it would be more than the budget."""
    used = [name for name in known if any(name in plain_variables(node) for node in nodes)]
    ways = list(itertools.islice(itertools.product(*(known[name] for name in used)), budget_words + 1))
    if not used or len(ways) * len(nodes) > budget_words:
        return [{}]
    return [dict(zip(used, way, strict=True)) for way in ways]


def plain_variables(node: Any) -> set[str]:
    """Names in `$f` and `${f}` anywhere in a word, outside of substitutions."""
    if isinstance(node, list):
        return set().union(*(plain_variables(child) for child in node))
    if not isinstance(node, dict) or node.get("Type") in ("CmdSubst", "ProcSubst"):
        return set()
    name = plain_variable(node)
    return {name} if name else set().union(*(plain_variables(child) for child in node.values()))


def _sets(node: Mapping[str, Any], looping: frozenset[str]) -> bool:
    kind = node.get("Type")
    if kind in _SETTING_CONSTRUCTS or node.get("Assigns") or node.get("Select"):
        return True
    if kind == "ForClause" and _loop_name(node) in looping:
        return True
    if kind == "ParamExp" and (node.get("Exp") or {}).get("Op") in ("=", ":="):
        return True
    name = node.get("N")
    if isinstance(name, dict) and str(name.get("Value", "")).startswith("{"):
        return True
    return kind == "CallExpr" and _may_set(list(_words(node)))


def _loop_name(node: Mapping[str, Any]) -> str:
    return str(((node.get("Loop") or {}).get("Name") or {}).get("Value", ""))


def _words(node: Mapping[str, Any]) -> Iterator[Word]:
    return (resolve(item) for item in node.get("Args") or ())


def _may_set(words: list[Word]) -> bool:
    if not words:
        return False
    name, first = words[0].text, words[1] if len(words) > 1 else Word("")
    if not words[0].static:
        return True
    match name:
        case "command":
            return first.text not in ("-v", "-V")
        case "set":
            return not all(word.static and _STRICTER.fullmatch(word.text) for word in words[1:])
        case "printf":  # `printf -v NAME`: its first word must plainly be a format
            return not first.static or first.text.startswith("-")
    return name in _SETTING
