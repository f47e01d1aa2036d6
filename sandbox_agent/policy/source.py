"""Reading YAML so that every value knows its line, and finding the shipped policies. Loading files is the only I/O."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from sandbox_agent.errors import PolicyError

MAX_FILE_BYTES = 1024 * 1024
_MAX_DEPTH = 20

KeyPath = tuple[str | int, ...]


@dataclass(frozen=True, slots=True)
class Document:
    """A YAML mapping with the line of every key and item in it."""

    name: str
    data: dict[str, Any]
    lines: dict[KeyPath, int]

    def location(self, path: KeyPath) -> str:
        """`file:line` of a value, or of the nearest thing around it."""
        while path and path not in self.lines:
            path = path[:-1]
        return f"{self.name}:{self.lines.get(path, 1)}"


def shipped_dir() -> Path:
    """Where the shipped policies are: in the installed package, else in the repository beside it."""
    package = Path(__file__).resolve().parents[1]
    installed = package / "_data" / "policies"
    return installed if installed.is_dir() else package.parent / "policies"


def shipped_names() -> list[str]:
    """The names of the shipped policies, sorted."""
    return sorted(path.stem for path in shipped_dir().glob("*.yaml"))


def read_document(path: Path, name: str) -> Document:
    """The document in a file; `name` is what messages call it.

    Raises:
        PolicyError: it cannot be read, is longer than 1 MiB, or is not a plain YAML mapping.
    """
    try:
        with path.open("rb") as file:
            raw = file.read(MAX_FILE_BYTES + 1)
        text = raw.decode("utf-8")
    except OSError as exc:
        raise PolicyError(f"the policy cannot be read: {exc.strerror or exc}", location=name) from exc
    except UnicodeDecodeError as exc:
        raise PolicyError(f"the policy is not UTF-8 text (byte {exc.start})", location=name) from exc
    if len(raw) > MAX_FILE_BYTES:
        raise PolicyError("the policy is longer than 1 MiB", location=name)
    return parse_document(text, name)


def parse_document(text: str, name: str) -> Document:
    """The document in a text.

    Raises:
        PolicyError: it is not YAML, repeats a key, uses anchors, or is not a mapping.
    """
    try:
        for event in yaml.parse(text, Loader=yaml.SafeLoader):
            # An alias can make a small file huge, or a value contain itself.
            if isinstance(event, yaml.AliasEvent):
                raise PolicyError(
                    f"YAML aliases (*{event.anchor}) are not taken; write the value out",
                    location=_at(event.start_mark, name),
                )
        node = yaml.compose(text, Loader=yaml.SafeLoader)
    except yaml.YAMLError as exc:
        raise PolicyError(*_yaml_fault(exc), location=_yaml_location(exc, name)) from exc
    except RecursionError as exc:
        raise PolicyError("the policy is nested too deeply", location=name) from exc
    lines: dict[KeyPath, int] = {(): 1}
    data = {} if node is None else _construct(node, (), lines, name)
    if not isinstance(data, dict):
        raise PolicyError("a policy is a mapping of keys such as mode: and rules:", location=f"{name}:1")
    return Document(name, data, lines)


def _yaml_fault(exc: yaml.YAMLError) -> tuple[str]:
    problem = getattr(exc, "problem", None) or getattr(exc, "reason", None) or str(exc)
    return (f"not valid YAML: {problem}",)


def _yaml_location(exc: yaml.YAMLError, name: str) -> str:
    return _at(getattr(exc, "problem_mark", None), name)


def _at(mark: object, name: str) -> str:
    line = getattr(mark, "line", None)
    return name if line is None else f"{name}:{line + 1}"


def _construct(node: yaml.Node, path: KeyPath, lines: dict[KeyPath, int], name: str) -> Any:
    line = node.start_mark.line + 1
    lines.setdefault(path, line)
    if len(path) > _MAX_DEPTH:
        raise PolicyError("the policy is nested too deeply", location=f"{name}:{line}")
    if isinstance(node, yaml.SequenceNode):
        return [_construct(item, (*path, index), lines, name) for index, item in enumerate(node.value)]
    if not isinstance(node, yaml.MappingNode):
        return _scalar(node, name)
    found: dict[str, Any] = {}
    for key_node, value_node in node.value:
        key = str(key_node.value)
        key_line = key_node.start_mark.line + 1
        if key in found:
            raise PolicyError(f"the key {key!r} is there twice", location=f"{name}:{key_line}")
        lines[*path, key] = key_line
        found[key] = _construct(value_node, (*path, key), lines, name)
    return found


def _scalar(node: yaml.Node, name: str) -> Any:
    loader = yaml.SafeLoader("")
    try:
        return loader.construct_object(node)
    except (yaml.YAMLError, ValueError) as exc:
        location = f"{name}:{node.start_mark.line + 1}"
        raise PolicyError(f"{node.value!r} is not a value a policy takes", location=location) from exc
    finally:
        loader.dispose()
