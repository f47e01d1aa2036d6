"""The rules of the `Sandbox` contract on what may be asked for, the same for every back end."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from sandbox_agent.sandboxes.base import KIB, MAX_FILE_BYTES, MIB

MAX_ARGUMENT_BYTES = 128 * KIB
"""Of one argument or one environment entry, with its closing NUL: the kernel's MAX_ARG_STRLEN."""

MAX_COMMAND_BYTES = 2 * MIB
"""Of all arguments and environment together: a quarter of the 8 MiB stack that the kernel grants by default."""


def encoded(text: str) -> bytes:
    """The bytes of a name or argument; undecodable bytes travel as surrogate escapes.

    Raises:
        ValueError: it holds a NUL, or a surrogate that is no escaped byte.
    """
    if "\0" in text:
        raise ValueError(f"{text[:40]!r} holds a NUL character")
    return text.encode("utf-8", "surrogateescape")


def check_command(argv: Sequence[str], env: Mapping[str, str] | None) -> int:
    """The total size in bytes of what `exec` or `open` was given.

    Raises:
        ValueError: argv is empty, something holds a NUL, or one entry is 128 KiB or longer.
    """
    if not argv or not argv[0]:
        raise ValueError("argv is empty: it needs a program")
    total = 0
    for number, argument in enumerate(argv):
        size = len(encoded(argument)) + 1
        if size > MAX_ARGUMENT_BYTES:
            raise ValueError(f"argument {number} has {size - 1} bytes; one argument must be shorter than 128 KiB")
        total += size + 8
    for name, value in (env or {}).items():
        size = len(encoded(name)) + len(encoded(value)) + 2
        if not name or "=" in name:
            raise ValueError(f"{name!r} is no name for an environment variable")
        if size > MAX_ARGUMENT_BYTES:
            raise ValueError(f"environment variable {name} has {size} bytes; it must be shorter than 128 KiB")
        total += size + 8
    return total


def check_stdin(stdin: bytes) -> None:
    """Refuse more input than the contract allows.

    Raises:
        ValueError: more than `MAX_FILE_BYTES`.
    """
    if len(stdin) > MAX_FILE_BYTES:
        raise ValueError(f"stdin has {len(stdin)} bytes; at most {MAX_FILE_BYTES} are taken")


def check_output_file(spill_path: str | None, live_path: str | None) -> str | None:
    """The one file that output is to go to, if any.

    Raises:
        ValueError: both were given, or it is not absolute, or not a name a file can have.
    """
    if spill_path is not None and live_path is not None:
        raise ValueError("output goes to one file: spill_path or live_path")
    path = live_path if spill_path is None else spill_path
    if path is not None:
        check_path(path)
    return path


def check_path(path: str) -> None:
    """Refuse what is no absolute path.

    Raises:
        ValueError: not absolute, or not a name a file can have.
    """
    encoded(path)
    if not path.startswith("/"):
        raise ValueError(f"{path!r} is not an absolute path")
