"""Commands of the read-only list with every option that the programs of the image name, for trying what they do."""

from __future__ import annotations

import re
import string
from collections.abc import Iterator, Mapping, Sequence

from sandbox_agent.policy.shell.analyse import blockers
from sandbox_agent.policy.shell.facts import with_facts
from sandbox_agent.policy.shell.model import SimpleCommand, Word
from sandbox_agent.policy.shell.tables import tables
from sandbox_agent.sandboxes.base import Sandbox

OPERANDS = ("f", "g")
VALUES = ("out", "/workspace/.forms/bin/mark")
_LONG = re.compile(r"(?<![\w-])--?[A-Za-z][\w-]*")


def programs() -> list[tuple[str, ...]]:
    """The words that begin a command of the list: a program, or one with a subcommand. Not what runs other commands:
    those are judged by themselves."""
    found: list[tuple[str, ...]] = []
    for name, program in tables().programs.items():
        if program.read_only and name not in tables().wrappers:
            found.append((name,))
        found += [(name, sub) for sub, entry in program.subcommands.items() if entry.read_only]
    return found


async def options(sandbox: Sandbox, heads: Sequence[tuple[str, ...]]) -> Mapping[tuple[str, ...], list[str]]:
    """What each of these programs says of its options, and all single letters; only of those in the image."""
    found = {}
    for head in heads:
        help_words = [*head, "-h"] if head[0] == "git" else [*head, "--help"]
        there = await sandbox.exec(["bash", "-c", 'type -P -- "$1"', "-", head[0]], timeout_s=10)
        if there.exit_code != 0:
            continue
        said = await sandbox.exec(help_words, timeout_s=10, merge_stderr=True)
        named = set(_LONG.findall(said.stdout.decode("utf-8", "replace")))
        found[head] = sorted(named | {"-" + letter for letter in string.ascii_letters + string.digits})
    return found


def commands(head: Sequence[str], names: Sequence[str]) -> Iterator[tuple[str, ...]]:
    """Each option by itself, with a value joined and apart, as words."""
    for name in names:
        yield (*head, name, *OPERANDS)
        for value in VALUES:
            yield (*head, f"{name}={value}" if name.startswith("--") else name + value, *OPERANDS)
            yield (*head, name, value, *OPERANDS)


def listed(words: Sequence[str]) -> bool:
    """Whether the judge lets this command run unasked because it only reads."""
    command = with_facts(SimpleCommand(tuple(Word(word) for word in words), ""))
    return command.on_read_only_list and not command.writes and not blockers(command, listed=True)
