"""`sandbox.allow_hosts` of a policy: its entries in their forms, and which of two lists is the wider one. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any

from pydantic import BeforeValidator, PlainSerializer, PlainValidator, WithJsonSchema

from sandbox_agent.hostnames import HOST_GROUPS, HostEntry, HostnameError, entry_of

_KEYS = ("host", "port", "allow_private")
_GROUP = f"@(?:{'|'.join(name[1:] for name in HOST_GROUPS)})"
_PORT = {"type": "integer", "minimum": 1, "maximum": 65_535}


def parse_entry(value: Any) -> HostEntry:
    """The entry that a text or a mapping stands for.

    Raises:
        ValueError: it is none; the text says what one is.
    """
    fields = {"host": value} if isinstance(value, str) else value
    if not isinstance(fields, dict) or not isinstance(fields.get("host"), str) or not {*fields} <= {*_KEYS}:
        raise ValueError(f"host:port, one of {', '.join(HOST_GROUPS)}, or a mapping of {', '.join(_KEYS)}")
    host, port, allow_private = fields["host"], fields.get("port"), fields.get("allow_private", False)
    if type(allow_private) is not bool or not (port is None or type(port) is int):
        raise ValueError("an entry whose port is a number, and whose allow_private is true or false")
    try:
        return entry_of(host if port is None else f"{host}:{port}", allow_private=allow_private)
    except HostnameError as exc:
        where = "" if isinstance(value, str) else f" in {host!r}"
        raise ValueError(f"host:port or one of {', '.join(HOST_GROUPS)} ({exc}{where})") from exc


def is_wider(offered: Sequence[HostEntry], held: Sequence[HostEntry]) -> bool:
    """True if a list opens something that the other does not."""
    return not all(any(_within(one, other) for other in held) for one in offered)


def shown_entry(entry: HostEntry) -> str | dict[str, object]:
    """As it is written in a file: the short form where that says all."""
    if not entry.allow_private:
        return entry.text
    return {key: value for key, value in entry.as_json().items() if value is not None}


def _within(one: HostEntry, other: HostEntry) -> bool:
    if one.allow_private and not other.allow_private:
        return False
    if (one.host, one.port) == (other.host, other.port):
        return True
    return one.port is not None and other.covers(one.host.removeprefix("*."), one.port)


HostList = Annotated[
    list[Annotated[HostEntry, PlainValidator(parse_entry), PlainSerializer(shown_entry)]],
    BeforeValidator(lambda value: [] if value is None else value),
    WithJsonSchema(
        {
            "anyOf": [
                {
                    "type": "array",
                    "items": {
                        "anyOf": [
                            {"type": "string", "pattern": rf"^(?:{_GROUP}|[^\s/@]+:[0-9]{{1,5}})$"},
                            {
                                "type": "object",
                                "properties": {
                                    "host": {"type": "string", "minLength": 1},
                                    "port": {"anyOf": [_PORT, {"type": "null"}]},
                                    "allow_private": {"type": "boolean"},
                                },
                                "required": ["host"],
                                "additionalProperties": False,
                            },
                        ]
                    },
                },
                {"type": "null"},
            ],
            "examples": [["packages.example.org:443", "@python"]],
        }
    ),
]
