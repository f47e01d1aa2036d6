from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class SimpleCommand:
    static_words: tuple[str, ...] | None


@dataclass(frozen=True, slots=True)
class ShellAnalysis:
    commands: tuple[SimpleCommand, ...] = ()
    read_only: bool = False


def analyse(command: str) -> ShellAnalysis:
    return ShellAnalysis()
