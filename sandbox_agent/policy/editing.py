"""Changing a policy's text so that a person can review it: rules and hosts are added and limits set where they stand,
and everything else, comments too, stays as it is.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import yaml

from sandbox_agent.errors import PolicyError
from sandbox_agent.types import Limits

_ALLOW, _HOSTS = ("rules", "allow"), ("sandbox", "allow_hosts")


def edited(
    text: str, name: str, *, allow: Sequence[str] = (), hosts: Sequence[str] = (), limits: Limits | None = None
) -> str:
    """The text with further allow rules and hosts at the end of their lists, and with these limits.

    Raises:
        PolicyError: it is no YAML mapping, or is written in a way that cannot be added to (tabs, odd flow style).
    """
    _root(text, name)
    before: Any = yaml.safe_load(text) or {}
    wanted = {place: [*_list(before, *place), *items] for place, items in ((_ALLOW, allow), (_HOSTS, hosts))}
    for place, items in ((_ALLOW, allow), (_HOSTS, hosts)):
        if items:
            text = _with_items(text, _root(text, name), *place, items)
    for key, value in (("turns", limits.turns), ("wall_s", limits.wall_s)) if limits is not None else ():
        text = _with_limit(text, _root(text, name), key, "null" if value is None else f"{value:g}")
    try:
        after: Any = yaml.safe_load(text) or {}
    except yaml.YAMLError:
        after = {}
    if {place: [*_list(after, *place)] for place in wanted} != wanted or before.keys() - after.keys():
        raise PolicyError("its lists are written in a way that cannot be added to; use block style", location=name)
    return text


def _list(document: Any, section: str, key: str) -> Any:
    return (document.get(section) or {}).get(key) or ()


def scalar(text: str) -> str:
    """A text as a YAML value in double quotes, on one line, whatever is in it; every character of it can be seen."""
    written: str = yaml.dump(text, default_style='"', width=float("inf"), allow_unicode=True)
    return visible(written.rstrip("\n"))


def visible(text: str) -> str:
    """What is not shown as such, or turns round what is, as the escapes that YAML reads in double quotes."""
    return "".join(char if char.isprintable() else f"\\U{ord(char):08x}" for char in text)


@dataclass(frozen=True, slots=True)
class _Place:
    """A mapping's entry: the key's column, and the value."""

    column: int
    value: Any


def _with_items(text: str, root: Any, section: str, key: str, items: Sequence[str]) -> str:
    held = _entry(root, section)
    if held is None or _is_empty(held.value):
        return _replaced(text, held, section, f"\n  {key}:\n" + _items(items, 4), root)
    found = _entry(held.value, key)
    if found is None:
        if held.value.flow_style:
            return _before_end(text, held.value, f"{key}: [{_flow(items)}]")
        column = _first_column(held.value)
        return _after(text, held.value, " " * column + f"{key}:\n" + _items(items, column + 2))
    if _is_empty(found.value) and not held.value.flow_style:
        return _replaced(text, found, key, "\n" + _items(items, found.column + 2), held.value)
    if _is_empty(found.value):
        return text[: _start(found.value)] + f"[{_flow(items)}]" + text[_end(found.value) :]
    if found.value.flow_style:
        return _before_end(text, found.value, _flow(items))
    return _after(text, found.value, _items(items, _column(found.value)))


def _with_limit(text: str, root: Any, key: str, value: str) -> str:
    held = _entry(root, "limits")
    if held is None or _is_empty(held.value):
        return _replaced(text, held, "limits", f" {{{key}: {value}}}\n", root)
    entry = _entry(held.value, key)
    if entry is not None:
        return text[: _start(entry.value)] + value + text[_end(entry.value) :]
    if held.value.flow_style:
        return _before_end(text, held.value, f"{key}: {value}")
    return _after(text, held.value, " " * _first_column(held.value) + f"{key}: {value}\n")


def _root(text: str, name: str) -> Any:
    try:
        root = yaml.compose(text, Loader=yaml.SafeLoader)
    except yaml.YAMLError as exc:
        raise PolicyError("not valid YAML", location=name) from exc
    if root is not None and (not isinstance(root, yaml.MappingNode) or root.flow_style):
        raise PolicyError(
            "only a policy in block style can be added to; write keys on lines of their own", location=name
        )
    return root


def _entry(node: Any, key: str) -> _Place | None:
    for key_node, value in node.value if isinstance(node, yaml.MappingNode) else ():
        if key_node.value == key:
            return _Place(key_node.start_mark.column, value)
    return None


def _is_empty(node: yaml.Node) -> bool:
    return not node.value or (isinstance(node, yaml.ScalarNode) and node.value in ("null", "~"))


def _replaced(text: str, held: _Place | None, key: str, value: str, parent: Any) -> str:
    """With the entry's empty value replaced; the entry itself is put at the end of its mapping if it is not there."""
    if held is None:
        column = _first_column(parent) if parent is not None else 0
        return _after(text, parent, " " * column + f"{key}:{value}")
    start, end = _start(held.value), _end(held.value)
    rest = text[end:]
    # What follows on the line is a comment or nothing.
    tail, _, below = rest.partition("\n")
    head = text[:start].rstrip(" ")
    first, _, more = value.partition("\n")
    return f"{head}{first}{'  ' + tail.strip() if tail.strip() else ''}\n{more}{below}"


def _items(items: Sequence[str], column: int) -> str:
    return "".join(f"{' ' * column}- {scalar(item)}\n" for item in items)


def _flow(items: Sequence[str]) -> str:
    return ", ".join(scalar(item) for item in items)


def _before_end(text: str, node: yaml.Node, addition: str) -> str:
    """Into a flow collection, before its closing bracket and after what is last in it."""
    last = _last(node)
    at = _end(last) if last is not node else _end(node) - 1
    return text[:at] + (", " if last is not node else "") + addition + text[at:]


def _after(text: str, node: Any, addition: str) -> str:
    """On lines of its own behind a block collection."""
    if node is None:
        return text + ("" if not text or text.endswith("\n") else "\n") + addition
    last = _last(node)
    mark = last.end_mark
    assert mark is not None
    at = mark.index if mark.column == 0 and mark.index else text.find("\n", mark.index) + 1
    if at <= 0:
        return f"{text}\n{addition}"
    return text[:at] + ("" if text[:at].endswith("\n") else "\n") + addition + text[at:]


def _last(node: Any) -> Any:
    """The innermost value that stands last in a block collection; a flow collection counts as one value."""
    while isinstance(node, yaml.CollectionNode) and node.value:
        inner = node.value[-1]
        inner = inner[1] if isinstance(inner, tuple) else inner
        if node.flow_style:
            return inner
        node = inner
        if isinstance(node, yaml.CollectionNode) and node.flow_style:
            return node
    return node


def _first_column(node: yaml.MappingNode) -> int:
    return _column(node.value[0][0])


def _column(node: yaml.Node) -> int:
    assert node.start_mark is not None
    return node.start_mark.column


def _start(node: yaml.Node) -> int:
    assert node.start_mark is not None
    return node.start_mark.index


def _end(node: yaml.Node) -> int:
    assert node.end_mark is not None
    return node.end_mark.index
