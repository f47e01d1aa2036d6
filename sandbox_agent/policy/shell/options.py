"""Words of a program to options and operands, as getopt reads them, with the program's table for what takes a value."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from sandbox_agent.policy.shell.model import Word
from sandbox_agent.policy.shell.tables import Program


@dataclass(frozen=True, slots=True)
class Option:
    """One option: `-x` or `--name`, its value where the table says it takes one, and the index of its word."""

    name: str
    index: int
    value: Word | None = None


@dataclass(slots=True)
class Parsed:
    """Options and operands with the index of their word in the command."""

    options: list[Option] = field(default_factory=list)
    operands: list[tuple[int, Word]] = field(default_factory=list)


def parse_options(words: Sequence[Word], program: Program, *, start: int = 1) -> Parsed:
    """Read `words[start:]`. Words that are not static count as operands: what they become is not known."""
    parsed = Parsed()
    index = start
    ended = program.style == "words"
    while index < len(words):
        word = words[index]
        is_option = word.text.startswith("-") and word.text != "-" and (word.static or word.names_option)
        if ended or not is_option:
            parsed.operands.append((index, word))
            index += 1
        elif word.text == "--":
            ended = True
            index += 1
        elif word.text.startswith("--"):
            index = _long(words, index, program, parsed)
        else:
            index = _cluster(words, index, program, parsed)
        ended |= program.style == "first" and bool(parsed.operands)
        ended |= bool(parsed.options) and parsed.options[-1].name in program.ends_with
    if program.old_style_options and parsed.operands and parsed.operands[0][0] == start:
        _old_style(program, parsed)
    return parsed


def _old_style(program: Program, parsed: Parsed) -> None:
    """`tar cf a.tar b`: the first word is options without a dash, whose values follow in the same order."""
    (index, first), *rest = parsed.operands
    if not first.static:
        return
    for letter in first.text:
        value = rest.pop(0)[1] if "-" + letter in program.values and rest else None
        parsed.options.append(Option("-" + letter, index, value))
    parsed.operands = rest


def means(given: str, option: str, *, abbreviates: bool) -> bool:
    """True if the option as given is, or abbreviates, this option."""
    if given == option:
        return True
    return abbreviates and len(given) > 2 and given.startswith("--") and option.startswith(given)


def _long(words: Sequence[Word], index: int, program: Program, parsed: Parsed) -> int:
    name, joined, value = words[index].text.partition("=")
    if joined:
        parsed.options.append(Option(name, index, replace(words[index], text=value)))
        return index + 1
    takes = any(means(name, known, abbreviates=program.abbreviates) for known in program.values)
    if takes and index + 1 < len(words):
        parsed.options.append(Option(name, index, words[index + 1]))
        return index + 2
    parsed.options.append(Option(name, index))
    return index + 1


def _cluster(words: Sequence[Word], index: int, program: Program, parsed: Parsed) -> int:
    """`-abc`: letters up to one that takes a value, which is the rest or the next word."""
    text = words[index].text
    if text in program.values and len(text) > 2:
        parsed.options.append(Option(text, index, words[index + 1] if index + 1 < len(words) else None))
        return index + 2
    for position, letter in enumerate(text[1:], start=1):
        name = "-" + letter
        if name not in program.values:
            parsed.options.append(Option(name, index))
            continue
        rest = text[position + 1 :]
        if rest:
            parsed.options.append(Option(name, index, Word(rest)))
            return index + 1
        parsed.options.append(Option(name, index, words[index + 1] if index + 1 < len(words) else None))
        return index + 2
    return index + 1
