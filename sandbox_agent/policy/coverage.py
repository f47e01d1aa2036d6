"""Whether one simple command of a text is covered: by the read-only list, the mode, or an allow rule, and if not, why.

`shell_judge` puts the answers for all of them together, `explain` shows each by itself.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator
from dataclasses import dataclass, replace

from sandbox_agent.policy.calls import access_is_protected, may_be_edited_unasked
from sandbox_agent.policy.paths import PathPattern, in_workspace
from sandbox_agent.policy.reach import glob_may_reach, search_may_reach
from sandbox_agent.policy.rules import Rule, RuleSet
from sandbox_agent.policy.shell.analyse import (
    ShellAnalysis,
    absolute,
    analyse,
    blockers,
    changes_folder,
    file_writes,
    operands,
    starts_anyhow,
)
from sandbox_agent.policy.shell.facts import subcommand_index, with_facts
from sandbox_agent.policy.shell.model import ANY_WORD, Hazard, SimpleCommand, Word, WordKind
from sandbox_agent.policy.shell.tables import tables
from sandbox_agent.policy.shell.wrappers import file_command, unwrap
from sandbox_agent.types import WORKSPACE_MOUNT, Mode, PathAccess, PermissionRequest

_MAX_SHOWN_CHARS = 120
_MAX_DOUBTED_WORDS = 30
_MAX_DOUBTED_CHARS = 1000
_BEFORE_COMMAND = re.compile(r"""[:;&|\n(){}"'`$!,=<>]+""")
# Links of a process: they lead where it is, or to what it has open, whatever rules say about names.
_PROCESS_LINK = re.compile(r"/+(?:proc/[^/]+/(?:task/[^/]+/)?(?:cwd|root|fd)|dev/fd)(?:/|\Z)")


@dataclass(frozen=True, slots=True)
class Case:
    """One command under judgement: its analysis, the rules, and where its paths lead."""

    analysis: ShellAnalysis
    rules: RuleSet
    mode: Mode
    tool: str
    cwd: str
    folders: tuple[str, ...]
    """`cwd`, and where each `cd` may lead."""
    accesses: tuple[PathAccess, ...]


@dataclass(frozen=True, slots=True)
class Covered:
    """A part that runs unasked: by this rule, or without one, and how."""

    how: str
    rule: Rule | None = None


@dataclass(frozen=True, slots=True)
class Uncovered:
    """A part that nothing allows, and what stands in the way where a rule alone would not help."""

    source: str
    why: str = ""


def case_of(rules: RuleSet, request: PermissionRequest, mode: Mode) -> Case:
    """The case of a request about a shell command."""
    analysis = analyse(request.subject.command or "")
    cwd = request.subject.cwd
    resolved = {access.path: access.resolved for access in request.subject.paths}
    named = [PathAccess(a.path, a.write, resolved.get(a.path, a.resolved)) for a in analysis.accesses(cwd)]
    accesses = tuple(dict.fromkeys((*named, *request.subject.paths)))
    return Case(analysis, rules, mode, request.tool, cwd, analysis.folders(cwd), accesses)


def shown(source: str) -> str:
    """A part on one line of at most 120 characters."""
    line = " ".join(source.replace(ANY_WORD, "...").split())
    return line if len(line) <= _MAX_SHOWN_CHARS else line[: _MAX_SHOWN_CHARS - 3] + "..."


def cover(case: Case, part: SimpleCommand) -> Covered | Uncovered:
    """How a part is covered, or why it is not."""
    listed = _runs_by_list(case, part)
    obstacle = next(iter(blockers(part, listed=listed)), None) or _write_obstacle(case, part)
    obstacle = obstacle or _read_obstacle(case, part) or _folder_obstacle(case, part)
    if obstacle is not None:
        return Uncovered(part.source, obstacle)
    if listed:
        return Covered("it is on the list of commands that only read")
    if not part.words:
        return Covered("it only redirects")
    if part.transparent:
        hazard = part.hazards[0].why if part.hazards else None
        return Uncovered(part.source, hazard) if hazard else Covered("what it runs decides")
    part = replace(part, hazards=(*part.hazards, *_doubts(case, part)))
    rule = next((r for r in case.rules.allow if r.names(case.tool) and _grants(r, part)), None)
    if rule is not None:
        return Covered(f"{rule.label} allows it", rule)
    if _runs_by_mode(case, part):
        return Covered("the mode acceptEdits covers simple file commands in the workspace")
    return Uncovered(part.source, part.hazards[0].why if part.hazards else "")


def speaks_of(rule: Rule, part: SimpleCommand) -> bool:
    """True if the command pattern of a deny or ask rule covers the part, however it is spelled."""
    pattern = rule.command
    return pattern is not None and bool(part.words) and any(pattern.matches(words) for words in _forms(part))


def _forms(command: SimpleCommand) -> Iterator[tuple[str, ...]]:
    """How a command may be spelled for deny and ask: by base name, and without options before a subcommand."""
    words = tuple(word.match_text for word in command.words)
    base = (command.program or words[0], *words[1:])
    yield base
    index = subcommand_index(command)
    if index > 1:
        yield (base[0], *base[index:])


def _grants(rule: Rule, part: SimpleCommand) -> bool:
    """The rule's words cover the part, and reach far enough to name what is hazardous in it."""
    pattern = rule.command
    if pattern is None:
        return rule.bare and not part.hazards
    words = tuple(word.text for word in part.words)
    folder, _, name = words[0].rpartition("/")
    if not pattern.matches(words) and not (folder in tables().trusted_folders and pattern.matches((name, *words[1:]))):
        return False
    return all(hazard.index < pattern.literal_words for hazard in part.hazards)


def _doubts(case: Case, part: SimpleCommand) -> Iterator[Hazard]:
    """A program that nobody here knows, with a restricted command among its words, may be one that runs it."""
    known = tables()
    name = part.program
    if known.program(name) or name in known.shells or name in known.builtins:
        return
    if name in known.wrappers and unwrap(part).runs_something:
        return
    restricting = [rule for rule in (*case.rules.deny, *case.rules.ask) if rule.names(case.tool)]
    for index in range(1, min(len(part.words), _MAX_DOUBTED_WORDS)):
        for words in (part.words[index:], *_commands_in(part.words[index].text)):
            inner = replace(part, words=words)
            rule = next((rule for rule in restricting if speaks_of(rule, inner)), None)
            if rule is not None:
                yield Hazard(index, f"{name} may run {words[0].text}, which {rule.label} restricts")
                break


def _commands_in(text: str) -> Iterator[tuple[Word, ...]]:
    """What may be commands in one word: `rm x; ls`, `--run=rm`, `system("rm x")`."""
    pieces = [piece.split() for piece in _BEFORE_COMMAND.split(text[:_MAX_DOUBTED_CHARS])]
    if len(pieces) > 1 or len(pieces[0]) > 1:
        yield from (tuple(map(Word, words)) for words in pieces if words)


def _runs_by_list(case: Case, part: SimpleCommand) -> bool:
    """The shipped read-only list speaks for it, unless an allow rule of the policy names this very command: whoever
    writes `Bash(git status)` means that and no more."""
    if not case.rules.read_only_commands or not part.on_read_only_list:
        return False
    open_names = any(word.text == ANY_WORD or starts_anyhow(word) for word in part.words)
    if open_names and case.rules.restricts_files(write=False):
        return False
    if changes_folder(part):
        return len(part.words) == 2 and in_workspace(absolute(case.cwd, part.words[1].text))
    known = tables().program(part.program)
    if known is None or not (known.read_only or known.subcommands):
        return True
    index = subcommand_index(part)
    head = (
        (part.program, *(word.text for word in part.words[index : index + 1])) if known.subcommands else (part.program,)
    )
    own = (rule.command for rule in case.rules.allow if rule.names(case.tool) and rule.command is not None)
    return not any(pattern.words[: len(head)] == head and _would_be_listed(pattern.words) for pattern in own)


@functools.lru_cache(maxsize=256)
def _would_be_listed(words: tuple[str, ...]) -> bool:
    """Whether a rule's words are on the read-only list themselves. One that names a hazard, such as saved answers do
    (`git log --output=x`), says nothing about how far the list goes."""
    return with_facts(SimpleCommand(tuple(Word(word) for word in words), "")).on_read_only_list


def _runs_by_mode(case: Case, part: SimpleCommand) -> bool:
    """acceptEdits: simple file commands whose every operand is a plain path in the workspace."""
    files = file_command(part) if case.mode is Mode.ACCEPT_EDITS else None
    if files is None or len(case.folders) > 1:
        return False
    paths = {absolute(case.cwd, word.text) for word in files}
    known = [access for access in case.accesses if access.path in paths]
    inside = all(may_be_edited_unasked(access) and access.path != WORKSPACE_MOUNT for access in known)
    return inside and {access.path for access in known} == paths


def _write_obstacle(case: Case, part: SimpleCommand) -> str | None:
    """A redirect to a file needs an Edit rule or the mode acceptEdits; protected paths are never written unasked."""
    folders = case.folders
    written = {absolute(folder, word.text) for word, write in operands(part) if write for folder in folders}
    redirected = {absolute(folder, word.text) for word in file_writes(part) for folder in folders}
    for access in case.accesses:
        if not access.write or access.path not in written:
            continue
        if access_is_protected(access):
            return f"it writes {access.path}, which can run code later"
        by_mode = case.mode is Mode.ACCEPT_EDITS and may_be_edited_unasked(access)
        if access.path in redirected and not by_mode and not any(rule.permits(access) for rule in case.rules.allow):
            return f"it writes {access.path}"
    return None


def _read_obstacle(case: Case, part: SimpleCommand) -> str | None:
    """A file pattern, or a search below a folder, that could reach what a rule restricts."""
    for rule in (*case.rules.deny, *case.rules.ask):
        if rule.path is None:
            continue
        by_process = next((word.text for word, _ in operands(part) if _PROCESS_LINK.match(word.text)), None)
        if by_process is not None:
            return f"where {by_process} leads is not known, and {rule.label} restricts files"
        for folder in case.folders:
            for word, write in operands(part):
                pattern = word.kind is WordKind.GLOB and rule.is_about_files(write=write)
                if pattern and glob_may_reach(rule.path, absolute(folder, word.text)):
                    return f"{word.text} could be a file that {rule.label} restricts"
            for word in part.searches_below:
                if rule.is_about_files(write=False) and _search_reaches(rule.path, part, word, folder):
                    return f"it reads everything below {word.text}, and {rule.label} restricts some of it"
    return None


def _search_reaches(pattern: PathPattern, part: SimpleCommand, word: Word, folder: str) -> bool:
    below = absolute(folder, word.text)
    return not word.static or search_may_reach(pattern, below, skips_hidden=part.skips_hidden)


def _folder_obstacle(case: Case, part: SimpleCommand) -> str | None:
    """git in another folder is never allowed: that repository's hooks and configuration would run."""
    if part.program == "git" and any(folder != case.cwd for folder in case.folders):
        return "git after cd may run another repository's programs"
    return None
