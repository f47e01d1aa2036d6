"""What the tables say about one simple command: hazards, files it reads and writes, whether it is on the read-only
list. A function from a command to the same command with those facts filled in.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

from sandbox_agent.policy.shell.model import NEVER, Hazard, SimpleCommand, Word, WordKind
from sandbox_agent.policy.shell.options import Parsed, means, parse_options
from sandbox_agent.policy.shell.scripts import harmless
from sandbox_agent.policy.shell.tables import UNKNOWN_PROGRAM, Program, tables


@dataclass(frozen=True, slots=True)
class _Entry:
    """The table entry that speaks for a command, and where its own words begin."""

    program: Program
    start: int = 1
    hazards: tuple[Hazard, ...] = ()


def with_facts(command: SimpleCommand) -> SimpleCommand:
    """The command with what the tables know about it."""
    if not command.words:
        return command
    entry = _entry(command)
    parsed = parse_options(command.words, entry.program, start=entry.start)
    hazards = (*_program_hazards(command), *entry.hazards, *_hazards(command, entry, parsed))
    writes = tuple(_writes(entry.program, parsed))
    reads = () if entry.program.writes == "all" else tuple(_reads(command, entry, parsed))
    below = tuple(_searched(entry.program, parsed))
    return replace(
        command,
        hazards=(*command.hazards, *hazards),
        on_read_only_list=_on_list(command, entry, parsed) and not hazards and not command.hazards,
        any_operands=entry.program.any_operands,
        reads=reads,
        writes=writes,
        searches_below=below,
        skips_hidden=bool(below) and not _given(entry.program.shows_hidden, entry.program, parsed),
    )


def _entry(command: SimpleCommand) -> _Entry:
    program = tables().program(command.program) or UNKNOWN_PROGRAM
    if not program.subcommands:
        return _Entry(program)
    return _subcommand(command, program)


def _subcommand(command: SimpleCommand, program: Program) -> _Entry:
    """`git --no-pager log`: the options in front are the program's, the rest is the subcommand's."""
    front = _front(command.words, program)
    parsed = parse_options(command.words[:front], program)
    hazards = tuple(_listed(program, parsed, command.words[:front]))
    if front >= len(command.words):
        return _Entry(program, len(command.words), hazards)
    word = command.words[front]
    found = program.subcommands.get(word.text) if word.static else None
    if found is not None:
        return _Entry(found, front + 1, hazards)
    if word.static and word.text not in program.known and program.unknown_subcommand:
        hazards = (*hazards, Hazard(front, f"{word.text} {program.unknown_subcommand}"))
    return _Entry(UNKNOWN_PROGRAM, front + 1, hazards)


def _front(words: tuple[Word, ...], program: Program) -> int:
    """The index of the subcommand: the first word that is neither an option nor the value of one."""
    index = 1
    while index < len(words) and words[index].static and words[index].text.startswith("-"):
        text = words[index].text
        index += 2 if text in program.values and "=" not in text else 1
    return min(index, len(words))


def subcommand_index(command: SimpleCommand) -> int:
    """Where the subcommand of a program that has such stands; 1 for all others."""
    program = tables().program(command.program)
    return _front(command.words, program) if program is not None and program.subcommands else 1


def _program_hazards(command: SimpleCommand) -> Iterator[Hazard]:
    word = command.words[0]
    if not word.static:
        return
    text = word.text
    why = tables().builtins.get(text)
    if why is not None:
        yield Hazard(0, why)
    if "/" in text and text.rpartition("/")[0] not in tables().trusted_folders:
        yield Hazard(0, "it is a file whose content is not seen, not a program of the system")
    if not text.isascii():
        yield Hazard(0, "the program's name has letters that look like others")


def _hazards(command: SimpleCommand, entry: _Entry, parsed: Parsed) -> Iterator[Hazard]:
    program = entry.program
    yield from _listed(program, parsed, command.words)
    if program.only_options:
        for option in parsed.options:
            if option.name not in program.only_options:
                yield Hazard(option.index, f"{option.name} is not among the options known to be harmless")
    if program.otherwise and not _among_known_forms(program, parsed):
        yield Hazard(entry.start - 1, program.otherwise)
    yield from _code(program, parsed)
    operands = _file_operands(program, parsed)
    if program.max_operands is not None and len(parsed.operands) > program.max_operands:
        yield Hazard(parsed.operands[program.max_operands][0], "one operand more is a file it writes, or a setting")
    if program.script:
        for index, script in _scripts(program, parsed):
            if script.kind is WordKind.DYNAMIC or not harmless(program.script, script.text):
                yield Hazard(index, f"the {program.script} program may run or write something")
    if program.writes == "last" and operands and operands[-1][1].kind is not WordKind.STATIC:
        yield Hazard(operands[-1][0], "what it writes is not known")
    if command.program in tables().programs:
        prefixes = tables().programs[command.program].hazard_prefixes
        for index, word in enumerate(command.words):
            if prefixes and word.text.startswith(prefixes):
                yield Hazard(index, "the address names a program to run")


def _listed(program: Program, parsed: Parsed, words: tuple[Word, ...]) -> Iterator[Hazard]:
    for entry in program.hazards:
        for option in parsed.options:
            meant = any(means(option.name, bad, abbreviates=program.abbreviates) for bad in entry.options)
            if meant and (not entry.values or _holds(option.value, entry.values)):
                yield Hazard(option.index, f"{option.name}: {entry.why}")
        for index, word in enumerate(words):
            if word.text in entry.words or word.text.startswith(entry.word_beginnings):
                yield Hazard(index, f"{word.text}: {entry.why}")


def _holds(value: Word | None, texts: Iterable[str]) -> bool:
    return value is not None and (not value.static or any(text in value.text for text in texts))


def _code(program: Program, parsed: Parsed) -> Iterator[Hazard]:
    """Programs that run what is on their input, and makefile variables."""
    given = {option.name for option in parsed.options}
    first = parsed.operands[0][1] if parsed.operands else None
    from_input = first is None or first.text in ("-", "/dev/stdin") or not first.static
    if program.reads_code and from_input and not given & (program.ends_with | tables().inspecting):
        yield Hazard(NEVER, "runs text from its input, which is not seen")
    if program.assignments:
        for index, word in parsed.operands:
            if "=" in word.text:
                yield Hazard(index, f"{word.text}: {program.assignments}")


def _scripts(program: Program, parsed: Parsed) -> list[tuple[int, Word]]:
    if program.operands == "pattern":
        return parsed.operands  # which of them is the program hangs on options that take two words (jq --arg)
    given = [(o.index, o.value) for o in parsed.options if o.name in program.script_options and o.value is not None]
    return given or parsed.operands[:1]


def _file_operands(program: Program, parsed: Parsed) -> list[tuple[int, Word]]:
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
            return parsed.operands if _given(program.pattern_from, program, parsed) else parsed.operands[1:]
    if program.script:
        return parsed.operands if _given(program.script_options, program, parsed) else parsed.operands[1:]
    return parsed.operands


def _given(names: Iterable[str], program: Program, parsed: Parsed) -> bool:
    if "always" in names:
        return True
    return any(means(o.name, name, abbreviates=program.abbreviates) for o in parsed.options for name in names)


def _reads(command: SimpleCommand, entry: _Entry, parsed: Parsed) -> Iterator[Word]:
    """Every word that may name a file it reads, and what is joined to it: `if=FILE`, `HEAD:FILE`, `@FILE`."""
    for word in _file_words(command, entry, parsed):
        yield word
        for mark in ("=", ":", "@"):
            head, found, tail = word.text.partition(mark)
            if found and tail and "/" not in head:
                yield replace(word, text=tail)
                if tail[0] in "@<":  # curl -F a=@FILE
                    yield replace(word, text=tail[1:])


def _file_words(command: SimpleCommand, entry: _Entry, parsed: Parsed) -> Iterator[Word]:
    for _, word in _file_operands(entry.program, parsed):
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


def _writes(program: Program, parsed: Parsed) -> Iterator[Word]:
    operands = [word for _, word in _file_operands(program, parsed)]
    if program.writes == "all" or _given(program.writes_with, program, parsed):
        yield from operands
    elif program.writes == "last" and operands:
        yield operands[-1]
    elif program.writes == "assign":
        for word in operands:
            name, found, value = word.text.partition("=")
            if found and name == "of":
                yield replace(word, text=value)


def _searched(program: Program, parsed: Parsed) -> list[Word]:
    if not program.recursive or not _given(program.recursive, program, parsed):
        return []
    return [word for _, word in _file_operands(program, parsed)] or [Word(".")]


def _on_list(command: SimpleCommand, entry: _Entry, parsed: Parsed) -> bool:
    words = command.words[entry.start :]
    texts = [word.text for word in words]
    program = entry.program
    if command.program in tables().version_programs and len(texts) == 1 and texts[0] in tables().version_words:
        return True
    return program.read_only and command.words[0].static and _among_known_forms(program, parsed)


def _among_known_forms(program: Program, parsed: Parsed) -> bool:
    """Programs with a list of harmless forms (`only`) are on the list in just these."""
    texts = [option.name for option in parsed.options] + [word.text for _, word in parsed.operands]
    if program.alone and texts:
        return False
    if program.only and not all(text in program.only for text in texts):
        return False
    return not program.needs or any(text in program.needs for text in texts)
