"""Which files a command plainly reads and writes, by its words and its entry in the tables."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

from sandbox_agent.policy.shell.model import Hazard, SimpleCommand, Word
from sandbox_agent.policy.shell.options import Parsed, means
from sandbox_agent.policy.shell.tables import UNKNOWN_PROGRAM, Program, tables


@dataclass(frozen=True, slots=True)
class Entry:
    """The table entry that speaks for a command, and where its own words begin."""

    program: Program
    start: int = 1
    hazards: tuple[Hazard, ...] = ()


def file_operands(program: Program, parsed: Parsed) -> list[tuple[int, Word]]:
    """The operands that name files."""
    match program.operands:
        case "text":
            return []
        case "folders":
            first = next(
                (i for i, (_, word) in enumerate(parsed.operands) if word.text.startswith(("-", "(", "!"))), None
            )
            return parsed.operands[:first]
        case "pattern":
            return parsed.operands if given(program.pattern_from, program, parsed) else parsed.operands[1:]
    if program.script:
        return parsed.operands if given(program.script_options, program, parsed) else parsed.operands[1:]
    return parsed.operands


def given(names: Iterable[str], program: Program, parsed: Parsed) -> bool:
    """True if one of these options is there, or "always" is among them."""
    if "always" in names:
        return True
    return any(means(o.name, name, abbreviates=program.abbreviates) for o in parsed.options for name in names)


def words_read(command: SimpleCommand, entry: Entry, parsed: Parsed) -> Iterator[Word]:
    """Every word that may name a file it reads, and what is joined to it: `if=FILE`, `HEAD:FILE`, `@FILE`."""
    for word in _file_words(command, entry, parsed):
        yield word
        for mark in ("=", ":", "@"):
            head, found, tail = word.text.partition(mark)
            if found and tail and "/" not in head:
                yield replace(word, text=tail)
                if tail[0] in "@<":  # curl -F a=@FILE
                    yield replace(word, text=tail[1:])


def _file_words(command: SimpleCommand, entry: Entry, parsed: Parsed) -> Iterator[Word]:
    for _, word in file_operands(entry.program, parsed):
        yield word
    if entry.program.operands in ("text", "folders"):
        return
    for option in parsed.options:
        if option.value is None:
            continue
        if option.name not in tables().text_values or option.value.text.startswith("@"):
            yield option.value
    for word in command.words[entry.start :] if entry.program is UNKNOWN_PROGRAM else ():
        # `-f.env` of a program without a table: the letters after the first may be a file.
        if word.static and len(word.text) > 2 and word.text[0] == "-" != word.text[1]:
            yield Word(word.text[2:])


def words_written(command: SimpleCommand, entry: Entry, parsed: Parsed) -> Iterator[Word]:
    """Every word that names a file it writes, and for a folder what it would write in there."""
    program = entry.program
    operands = [word for _, word in file_operands(program, parsed)]
    for value in _written_values(program, parsed):
        yield value
        yield _child(value)
    words = command.words
    yield from (words[i + 1] for i in range(len(words) - 1) if words[i].text in program.written_after)
    if program.writes == "all" and program.reads and operands:  # mv: into the last one, if that is a folder
        yield from (_child(operands[-1], word) for word in operands[:-1])
    if program.writes == "all" or given(program.writes_with, program, parsed):
        yield from operands
    elif program.writes == "last" and operands:
        yield operands[-1]
        yield from (_child(operands[-1], word) for word in operands[:-1])
    elif program.writes == "first":
        yield from operands[:1]
    elif program.writes == "second":
        yield from operands[1:]
    elif program.writes == "assign":
        for word in operands:
            if word.text.startswith("of="):
                yield replace(word, text=word.text.removeprefix("of="))


def _child(folder: Word, source: Word | None = None) -> Word:
    """What is written if the target is a folder: a file named as its source, or one of any name."""
    name = source.text.rstrip("/").rpartition("/")[2] if source is not None and source.static else ""
    return replace(folder, text=f"{folder.text.rstrip('/')}/{name or '...'}") if folder.text else folder


def _written_values(program: Program, parsed: Parsed) -> Iterator[Word]:
    for written in program.writes_values:
        if written.given and not given(written.given, program, parsed):
            continue
        for option in parsed.options:
            meant = any(means(option.name, known, abbreviates=program.abbreviates) for known in written.options)
            if meant and option.value is not None:
                yield option.value


def searched(program: Program, parsed: Parsed) -> list[Word]:
    """The folders whose files it reads."""
    if not program.recursive or not given(program.recursive, program, parsed):
        return []
    return [word for _, word in file_operands(program, parsed)] or [Word(".")]
