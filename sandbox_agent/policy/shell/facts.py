"""What the tables say about one simple command: hazards, files it reads and writes, whether it is on the read-only
list. A function from a command to the same command with those facts filled in.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace

from sandbox_agent.policy.shell.files import Entry, file_operands, given, searched, words_read, words_written
from sandbox_agent.policy.shell.model import NEVER, Hazard, SimpleCommand, Word, WordKind
from sandbox_agent.policy.shell.options import Parsed, means, parse_options
from sandbox_agent.policy.shell.scripts import harmless
from sandbox_agent.policy.shell.tables import UNKNOWN_PROGRAM, Program, tables


def with_facts(command: SimpleCommand) -> SimpleCommand:
    """The command with what the tables know about it."""
    if not command.words:
        return command
    entry = _entry(command)
    parsed = parse_options(command.words, entry.program, start=entry.start)
    hazards = (*_program_hazards(command), *entry.hazards, *_hazards(command, entry, parsed))
    only_writes = entry.program.writes == "all" and not entry.program.reads
    below = tuple(searched(entry.program, parsed))
    return replace(
        command,
        hazards=(*command.hazards, *hazards),
        on_read_only_list=_on_list(command, entry, parsed) and all(h.inner for h in (*hazards, *command.hazards)),
        any_operands=entry.program.any_operands,
        reads=() if only_writes else tuple(words_read(command, entry, parsed)),
        writes=tuple(words_written(command, entry, parsed)),
        searches_below=below,
        skips_hidden=bool(below) and not given(entry.program.shows_hidden, entry.program, parsed),
    )


def _entry(command: SimpleCommand) -> Entry:
    program = tables().program(command.program) or UNKNOWN_PROGRAM
    if not program.subcommands:
        return Entry(program)
    return _subcommand(command, program)


def _subcommand(command: SimpleCommand, program: Program) -> Entry:
    """`git --no-pager log`: the options in front are the program's, the rest is the subcommand's."""
    front = _front(command.words, program)
    parsed = parse_options(command.words[:front], program)
    hazards = tuple(_listed(program, parsed, command.words[:front]))
    if front >= len(command.words):
        return Entry(program, len(command.words), hazards)
    word = command.words[front]
    found = program.subcommands.get(word.text) if word.static else None
    if found is not None:
        return Entry(found, front + 1, hazards)
    if word.static and word.text not in program.known and program.unknown_subcommand:
        hazards = (*hazards, Hazard(front, f"{word.text} {program.unknown_subcommand}"))
    return Entry(UNKNOWN_PROGRAM, front + 1, hazards)


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


def _hazards(command: SimpleCommand, entry: Entry, parsed: Parsed) -> Iterator[Hazard]:
    program = entry.program
    yield from _listed(program, parsed, command.words)
    if program.only_options:
        for option in parsed.options:
            if option.name not in program.only_options:
                yield Hazard(option.index, f"{option.name} is not among the options known to be harmless")
    if program.otherwise and not _among_known_forms(program, parsed):
        yield Hazard(entry.start - 1, program.otherwise)
    yield from _code(program, parsed)
    operands = file_operands(program, parsed)
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
                yield Hazard(index, f"{word.text}: {entry.why}", inner=entry.inner)


def _holds(value: Word | None, texts: Iterable[str]) -> bool:
    return value is not None and (not value.static or any(text in value.text for text in texts))


def _code(program: Program, parsed: Parsed) -> Iterator[Hazard]:
    """Programs that run what is on their input, and makefile variables."""
    names = {option.name for option in parsed.options}
    first = parsed.operands[0][1] if parsed.operands else None
    from_input = first is None or first.text in ("-", "/dev/stdin") or not first.static
    if program.reads_code and from_input and not names & (program.ends_with | tables().inspecting):
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


def _on_list(command: SimpleCommand, entry: Entry, parsed: Parsed) -> bool:
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
