"""Programs that run other commands: what they would run, as words or as shell text, so that it is judged as well.

Where a wrapper's options are not understood, every later word that could be the program is taken for deny rules.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence

from sandbox_agent.policy.shell.inputs import NAMES, doubtful
from sandbox_agent.policy.shell.model import NEVER, Hazard, SimpleCommand, Word, WordKind
from sandbox_agent.policy.shell.options import parse_options
from sandbox_agent.policy.shell.runners import RUN_TIME_WORD, Unwrapped, fd_runs, find_runs, git_runs, joined, replaced
from sandbox_agent.policy.shell.tables import Program, Wrapper, tables

_ASSIGNMENT = re.compile(r"[^=\s/]+=")
"""env takes names that no shell does, `BASH_FUNC_ls%%` among them, which makes bash take in a function."""
_GUESSED_WORDS = 8
"""After the first word that may be the command, where an option of a wrapper is not known: it may have had a value."""
_SHELL_VALUES = frozenset({"-o", "+o", "-O", "+O", "--rcfile", "--init-file"})


def unwrap(command: SimpleCommand) -> Unwrapped:
    """What this command would run, nothing if it is no wrapper."""
    found = Unwrapped()
    name = command.program
    words = command.words
    if name in tables().shells:
        _shell(command, found)
    elif name in ("eval", "trap"):
        _text_builtin(name, words, found)
    elif name in ("source", "."):
        if any(word.text in NAMES for word in words[1:]):
            found.scripts += doubtful(command.input_texts)
    elif name == "find":
        found.inner += list(find_runs(words))
    elif name in ("fd", "fdfind"):
        found.inner += list(fd_runs(words))
    elif name == "git":
        git_runs(words, found)
    elif name in tables().wrappers:
        _wrapper(command, tables().wrappers[name], found)
    return found


def _shell(command: SimpleCommand, found: Unwrapped) -> None:
    """`bash -c TEXT`, `bash FILE`, or text on standard input."""
    words = command.words
    if len(words) == 2 and words[1].text in tables().inspecting:
        return
    index = 1
    text_next = from_input = False
    while (
        index < len(words) and words[index].static and words[index].text[:1] in ("-", "+") and words[index].text != "+"
    ):
        text = words[index].text
        if text in ("-", "--"):
            index += 1
            break
        if text in ("--rcfile", "--init-file"):
            found.hazards.append(Hazard(index, "runs a start-up file that is not seen"))
        text_next |= text[0] == "-" and text[1] != "-" and "c" in text
        from_input |= text[0] == "-" and text[1] != "-" and "s" in text
        index += 2 if text in _SHELL_VALUES or (text[1] != "-" and text[-1] in "oO") else 1
    if text_next:
        _script_word(words, index, found)
    elif index < len(words) and not from_input and words[index].text not in NAMES:
        found.hazards.append(Hazard(index, "runs a script that is not seen"))
        found.scripts += () if words[index].static else doubtful(command.input_texts)
    else:
        _from_input(command, found)


def _from_input(command: SimpleCommand, found: Unwrapped) -> None:
    """A shell that runs what is on its input."""
    found.scripts += doubtful(command.input_texts)
    found.hazards.append(Hazard(NEVER, "runs text from its input, which may not be what is seen"))


def _script_word(words: tuple[Word, ...], index: int, found: Unwrapped) -> None:
    if index < len(words):
        found.scripts.append(words[index])
    else:
        found.hazards.append(Hazard(NEVER, "runs text that is not seen"))


def _text_builtin(name: str, words: tuple[Word, ...], found: Unwrapped) -> None:
    rest = [word for word in words[1:] if word.text != "--"]
    if name == "trap":
        found.hazards.append(Hazard(0, "it runs text when a signal comes or the shell ends"))
        rest = [word for word in rest if not (word.static and word.text in ("-p", "-l", "-", ""))][:1]
    if rest:
        found.scripts.append(joined(rest))


def _wrapper(command: SimpleCommand, wrapper: Wrapper, found: Unwrapped) -> None:
    words = command.words
    start = _after_subcommand(words, wrapper)
    if start is None:
        return
    _strings(words, wrapper, found)
    if not wrapper.runs_words:
        _shell_alone(command, wrapper, found)
        return
    index, understood = _skip_options(words, start, wrapper, found)
    if index is None:
        return
    index = _skip_assignments(words, index, wrapper, found)
    skipped = 0
    while skipped < wrapper.positionals and index < len(words):
        index, skipped = index + 1, skipped + 1
    if skipped:  # `ssh HOST -p 22 CMD`, `kubectl exec POD -c NAME -- CMD`
        behind, _ = _skip_options(words, index, wrapper, found)
        index = index if behind is None else behind
    rest = words[index:]
    found.transparent = wrapper.transparent and bool(rest)
    if wrapper.unknown:
        rest = _filled_in(words[1:index], rest or ((Word(wrapper.default),) if wrapper.default else ()), wrapper)
        found.hazards += [] if words[index:] or wrapper.default else [Hazard(NEVER, "runs commands from its input")]
    if not rest:
        _shell_alone(command, wrapper, found)
        return
    if wrapper.joins:
        found.scripts.append(joined(rest))
        found.guesses.append(rest)
    else:
        found.inner.append(rest)
    if wrapper.permutes:
        found.guesses.append(tuple(word for word in rest if not word.text.startswith("-")))
    if wrapper.optional_positional:
        found.guesses.append(rest[1:])
    if not understood:
        found.guesses += [words[i:] for i in range(index + 1, min(len(words), index + 1 + _GUESSED_WORDS))]


def _shell_alone(command: SimpleCommand, wrapper: Wrapper, found: Unwrapped) -> None:
    """Without a command it may run a shell: always, or with one of these options."""
    options = {word.text for word in command.words}
    if not found.scripts and ("always" in wrapper.shell or not options.isdisjoint(wrapper.shell)):
        _from_input(command, found)


def _filled_in(options: Sequence[Word], rest: tuple[Word, ...], wrapper: Wrapper) -> tuple[Word, ...]:
    """The words with those that its input replaces (`xargs -I{}`), or with one more at the end."""
    marks = {"{}"}
    for index, word in enumerate(options):
        name, value, takes_next = _valued_option(word.text, wrapper)
        if name in wrapper.replaces:
            marks.add(_text_at(tuple(options), index + 1) if takes_next else value or "{}")
        else:  # `-i%`, `--replace=%`: the value is optional, so it is always joined
            marks |= {word.text[len(one) :].removeprefix("=") for one in wrapper.replaces if word.text.startswith(one)}
    return (*replaced(rest, marks), RUN_TIME_WORD)


def _after_subcommand(words: tuple[Word, ...], wrapper: Wrapper) -> int | None:
    """Where the wrapper's own options begin; None if this use of the program runs nothing."""
    if not wrapper.subcommand:
        return 1
    for name in wrapper.subcommand:
        parts = name.split()
        for start in range(1, len(words)):
            if [word.text for word in words[start : start + len(parts)]] == parts:
                return start + len(parts)
    return None


def _skip_options(words: tuple[Word, ...], index: int, wrapper: Wrapper, found: Unwrapped) -> tuple[int | None, bool]:
    """The index after the options, None if with them nothing is run; and whether every one of them is known."""
    understood = True
    while index < len(words) and words[index].static and words[index].text.startswith("-"):
        text = words[index].text
        if text == "-" and not wrapper.assignments:
            break
        if text == "--":
            return index + 1, understood
        if text in wrapper.inspects:
            return None, True
        name, value, takes_next = _valued_option(text, wrapper)
        if wrapper.options_are_hazards or name in wrapper.hazards:
            found.hazards.append(Hazard(index, f"{text}: changes what the command sees or writes"))
        understood &= name in _valued(wrapper) or wrapper.complete
        if takes_next and not wrapper.complete:
            found.guesses.append(words[index + 1 :])
        after = index + (2 if takes_next else 1)
        if name in wrapper.split:
            _split_value(value if value is not None else _text_at(words, index + 1), words[after:], found)
        index = after
    return index, understood


def _valued(wrapper: Wrapper) -> frozenset[str]:
    return wrapper.values | wrapper.split | wrapper.strings


def _valued_option(text: str, wrapper: Wrapper) -> tuple[str, str | None, bool]:
    """Of one word with options: the one that takes a value (else the whole), the value joined to it, and whether the
    value is the next word."""
    if text.startswith("--"):
        given, equals, value = text.partition("=")
        # GNU programs take any beginning of a long option.
        name = next((known for known in sorted(_valued(wrapper)) if len(given) > 2 and known.startswith(given)), given)
        return name, value if equals else None, name in _valued(wrapper) and not equals
    for position, letter in enumerate(text[1:], start=1):
        if "-" + letter in _valued(wrapper):
            rest = text[position + 1 :]
            return "-" + letter, rest or None, not rest
    return text, None, False


def _text_at(words: tuple[Word, ...], index: int) -> str:
    return words[index].text if index < len(words) else ""


def _strings(words: tuple[Word, ...], wrapper: Wrapper, found: Unwrapped) -> None:
    """Shell text in options, wherever they stand: `su root -c TEXT`, `flock FILE -c TEXT`."""
    for index, word in enumerate(words[1:], start=1):
        if not wrapper.strings or not word.static or not word.text.startswith("-"):
            continue
        name, value, takes_next = _valued_option(word.text, wrapper)
        if name not in wrapper.strings:
            continue
        if not takes_next:
            found.scripts.append(Word(value or ""))
        elif index + 1 < len(words):
            found.scripts.append(words[index + 1])


def _split_value(text: str, rest: tuple[Word, ...], found: Unwrapped) -> None:
    """`env -S "CMD ARG"`: the text is split into words, the rest follows."""
    try:
        # `\\_` is a blank there, and `${NAME}` a variable.
        split = shlex.split(text.replace("\\_", " "), comments=True)
    except ValueError:
        found.hazards.append(Hazard(NEVER, "its text cannot be split into words"))
        return
    words = [Word(word, WordKind.DYNAMIC if "$" in word else WordKind.STATIC) for word in split]
    found.inner.append((Word("env"), *words, *rest))


def _skip_assignments(words: tuple[Word, ...], index: int, wrapper: Wrapper, found: Unwrapped) -> int:
    while wrapper.assignments and index < len(words) and _ASSIGNMENT.match(words[index].text):
        found.hazards.append(Hazard(NEVER, "sets variables for the command"))
        index += 1
    return index


def file_command(command: SimpleCommand) -> tuple[Word, ...] | None:
    """The operands of a simple file command (mkdir, mv, ...), for the mode acceptEdits; None if it is none."""
    entry: Program | None = tables().file_commands.get(command.program)
    if entry is None or command.hazards or command.assigns or command.background:
        return None
    operands = [word for _, word in parse_options(command.words, entry).operands]
    return tuple(operands) if operands and all(word.static for word in command.words) else None
