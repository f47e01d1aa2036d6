"""How the API double says no: one exception, and the checks that raise it with a place in the text."""

from __future__ import annotations

from collections.abc import Set
from typing import Any, NoReturn

_TYPE_NAMES = {str: "string", int: "integer", bool: "boolean", list: "array", dict: "object"}


class Refused(Exception):
    """A request is refused: HTTP status, the API's error type, and a text for people."""

    def __init__(self, status: int, kind: str, message: str) -> None:
        super().__init__(message)
        self.status = status
        self.kind = kind
        self.message = message


def refuse(where: str, what: str) -> NoReturn:
    """Refuse as an invalid request, naming the place."""
    raise Refused(400, "invalid_request_error", f"{where}: {what}")


def expect_type(value: Any, kind: type, where: str) -> None:
    """Refuse a value that is not of the JSON type; a boolean is no integer."""
    if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
        refuse(where, f"Input should be a valid {_TYPE_NAMES[kind]}" if value is not None else "Field required")


def expect_keys(value: dict[str, Any], allowed: Set[str], where: str) -> None:
    """Refuse keys the API does not know."""
    for key in value:
        if key not in allowed:
            refuse(f"{where}.{key}".lstrip("."), "Extra inputs are not permitted")
