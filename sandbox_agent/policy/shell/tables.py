"""The tables of programs, wrappers and builtins (`tables.yaml`) as values. Loaded once, on first use."""

from __future__ import annotations

import functools
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from importlib.resources import files
from typing import Any

import yaml

_VERSION = re.compile(r"-?\d+(?:\.\d+)*\Z")


@dataclass(frozen=True, slots=True)
class HazardEntry:
    """Options (or exact words anywhere) with which a program writes or runs something else; with `values` only where
    the option's value holds one of these texts."""

    why: str
    options: frozenset[str] = frozenset()
    words: frozenset[str] = frozenset()
    values: frozenset[str] = frozenset()
    inner: bool = False

    @property
    def word_beginnings(self) -> tuple[str, ...]:
        """What a word begins with, for those written with a star at the end."""
        return tuple(word[:-1] for word in self.words if word.endswith("*"))


@dataclass(frozen=True, slots=True)
class WrittenValue:
    """Options whose value is written; with `given` only beside one of these."""

    options: frozenset[str]
    given: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Program:
    """What the words of one program mean; the keys are explained at the head of `tables.yaml`."""

    read_only: bool = False
    values: frozenset[str] = frozenset()
    hazards: tuple[HazardEntry, ...] = ()
    hazard_prefixes: tuple[str, ...] = ()
    max_operands: int | None = None
    operands: str = "files"
    pattern_from: frozenset[str] = frozenset()
    recursive: frozenset[str] = frozenset()
    shows_hidden: frozenset[str] = frozenset({"always"})
    writes: str = ""
    writes_with: frozenset[str] = frozenset()
    writes_values: tuple[WrittenValue, ...] = ()
    written_after: frozenset[str] = frozenset()
    reads: bool = False
    script: str = ""
    script_options: frozenset[str] = frozenset()
    only: frozenset[str] = frozenset()
    only_options: frozenset[str] = frozenset()
    needs: frozenset[str] = frozenset()
    otherwise: str = ""
    alone: bool = False
    any_operands: bool = False
    style: str = "getopt"
    abbreviates: bool = True
    old_style_options: bool = False
    changes_folder: bool = False
    ends_with: frozenset[str] = frozenset()
    reads_code: bool = False
    assignments: str = ""
    unknown_subcommand: str = ""
    subcommands: Mapping[str, Program] = field(default_factory=dict)
    known: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Wrapper:
    """How a program that runs another one takes its words."""

    transparent: bool = False
    values: frozenset[str] = frozenset()
    positionals: int = 0
    assignments: bool = False
    inspects: frozenset[str] = frozenset()
    strings: frozenset[str] = frozenset()
    split: frozenset[str] = frozenset()
    hazards: frozenset[str] = frozenset()
    options_are_hazards: bool = False
    joins: bool = False
    unknown: bool = False
    replaces: frozenset[str] = frozenset()
    runs_words: bool = True
    optional_positional: bool = False
    complete: bool = False
    permutes: bool = False
    default: str = ""
    subcommand: tuple[str, ...] = ()
    shell: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Tables:
    """All of `tables.yaml`."""

    trusted_folders: frozenset[str]
    wrappers: Mapping[str, Wrapper]
    shells: frozenset[str]
    other_shells: frozenset[str]
    builtins: Mapping[str, str]
    file_commands: Mapping[str, Program]
    version_programs: frozenset[str]
    version_words: frozenset[str]
    inspecting: frozenset[str]
    text_values: frozenset[str]
    programs: Mapping[str, Program]

    def program(self, name: str) -> Program | None:
        """The entry of a program, also of an interpreter under a name with a version: `python3.12`."""
        found = self.programs.get(name)
        if found is None:
            found = self.programs.get(_VERSION.sub("", name))
            found = found if found is not None and found.reads_code else None
        return found


UNKNOWN_PROGRAM = Program()


@functools.cache
def tables() -> Tables:
    """The shipped tables.

    Raises:
        ValueError: the file holds a key this version does not know: a fault of the installation.
    """
    # The C loader takes 30 ms for this file, the pure one 240 ms.
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    raw = yaml.load(files(__package__).joinpath("tables.yaml").read_text("utf-8"), Loader=loader)
    return Tables(
        trusted_folders=frozenset(raw["trusted_folders"]),
        wrappers={name: _build(Wrapper, entry) for name, entry in raw["wrappers"].items()},
        shells=frozenset(raw["shells"]),
        other_shells=frozenset(raw["other_shells"]),
        builtins=raw["builtins"],
        file_commands={name: _build(Program, entry) for name, entry in raw["file_commands"].items()},
        version_programs=frozenset(raw["version_only"]["programs"]),
        version_words=frozenset(raw["version_only"]["words"]),
        inspecting=frozenset([*raw["version_only"]["words"], "-h", "--help"]),
        text_values=frozenset(raw["text_values"]),
        programs={name: _program(entry) for name, entry in raw["programs"].items()},
    )


def _program(entry: Mapping[str, Any]) -> Program:
    given = dict(entry)
    given["hazards"] = tuple(_build(HazardEntry, item) for item in entry.get("hazards", ()))
    given["writes_values"] = tuple(_build(WrittenValue, item) for item in entry.get("writes_values", ()))
    given["subcommands"] = {name: _program(sub) for name, sub in entry.get("subcommands", {}).items()}
    program: Program = _build(Program, given)
    return program


def _build(kind: type[Any], entry: Mapping[str, Any]) -> Any:
    known = {item.name: str(item.type) for item in fields(kind)}
    unknown = set(entry) - set(known)
    if unknown:
        raise ValueError(f"tables.yaml: unknown keys {sorted(unknown)}")
    return kind(**{name: _convert(known[name], value) for name, value in entry.items()})


def _convert(kind: str, value: Any) -> Any:
    if kind.startswith("frozenset"):
        return frozenset([value] if isinstance(value, str) else value)
    return tuple(value) if kind.startswith("tuple") else value
