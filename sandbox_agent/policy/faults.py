"""What pydantic found wrong in a policy file, in our words: place, key, near name, what to write."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from typing import Any, get_args

import pydantic

from sandbox_agent.errors import PolicyError
from sandbox_agent.policy.schema import PolicyFile
from sandbox_agent.policy.source import Document, KeyPath

_MAX_SHOWN = 60
_OWN_WORDS = {"missing": "is missing", "string_too_short": "must not be empty"}


def shape_faults(
    document: Document, exc: pydantic.ValidationError, model: type[pydantic.BaseModel] = PolicyFile
) -> list[PolicyError]:
    """One error for each thing that is wrong; `model` is what the document should have been."""
    found: dict[KeyPath, PolicyError] = {}
    # A key that is misspelt is also one that is missing: the first says more.
    for fault in sorted(exc.errors(include_url=False), key=lambda fault: fault["type"] == "missing"):
        path = _real_path(document, tuple(fault["loc"]))
        if path not in found:
            message = _text(document, fault["type"], fault["msg"], path, fault["input"], model)
            found[path] = PolicyError(message, location=document.location(path))
    return [*found.values()]


def _real_path(document: Document, path: KeyPath) -> KeyPath:
    """Without what pydantic adds for its own branches (a union's member)."""
    while path and path not in document.lines and path[:-1] in document.lines and _is_branch(document, path):
        path = path[:-1]
    kept: KeyPath = ()
    for part in path:
        if (*kept, part) in document.lines or part == path[-1]:
            kept = (*kept, part)
    return kept


def _is_branch(document: Document, path: KeyPath) -> bool:
    value: Any = document.data
    for key in path[:-1]:
        value = value[key]
    return not isinstance(value, dict)


def _text(
    document: Document, kind: str, message: str, path: KeyPath, given: Any, model: type[pydantic.BaseModel]
) -> str:
    key = ".".join(str(part) for part in path)
    if kind == "extra_forbidden":
        names = known_keys(path[:-1], model)
        near = difflib.get_close_matches(str(path[-1]), names, n=1)
        return f"unknown key {key!r}; " + (f"did you mean {near[0]!r}?" if near else f"known are {', '.join(names)}")
    if kind in _OWN_WORDS:
        return f"{key}: {_OWN_WORDS[kind]}"
    if kind == "string_pattern_mismatch":
        return f"{key}: must match {message.split(chr(39))[1]}, not {_shown(document, path, given)}"
    message = message.removeprefix("Value error, ").removeprefix("Input should be ")
    if kind == "model_type":
        return f"{key}: must be a mapping of keys, not {_shown(document, path, given)}"
    if kind in ("enum", "literal_error") and isinstance(given, str):
        near = difflib.get_close_matches(given, [word for word in message.split("'")[1::2]], n=1, cutoff=0.7)
        hint = f"; did you mean {near[0]!r}?" if near else ""
        return f"{key}: must be {message}, not {_shown(document, path, given)}{hint}"
    return f"{key}: must be {message}, not {_shown(document, path, given)}"


def _shown(document: Document, path: KeyPath, given: Any) -> str:
    """The value as it was written, in quotes if it is a text."""
    if isinstance(given, dict):
        return "a mapping"
    if isinstance(given, list):
        return "a list"
    if given is None:
        return "empty"
    text = document.texts.get(path, str(given))
    text = text if len(text) <= _MAX_SHOWN else text[:_MAX_SHOWN] + "…"
    return repr(text) if isinstance(given, str) else text


def known_keys(path: Iterable[str | int], root: type[pydantic.BaseModel] = PolicyFile) -> list[str]:
    """The keys that a mapping at this place takes."""
    model: type[pydantic.BaseModel] | None = root
    for part in path:
        if isinstance(part, int) or model is None:
            continue
        field = model.model_fields.get(part)
        if field is not None:  # else it is the name of an entry, such as a server's
            model = _model_in(field.annotation)
    return [] if model is None else [*model.model_fields]


def _model_in(annotation: Any) -> type[pydantic.BaseModel] | None:
    """The model that an annotation is, or is a list, a mapping or an option of."""
    if isinstance(annotation, type) and issubclass(annotation, pydantic.BaseModel):
        return annotation
    return next((found for inner in get_args(annotation) if (found := _model_in(inner)) is not None), None)
