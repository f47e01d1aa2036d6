"""Judging a shell command part by part: deny and ask look through everything, allow must cover every part.

What a text could run is in `shell.analyse`; here it meets the rules and the mode. The strictest part decides.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from sandbox_agent.policy.calls import access_is_protected, by_rule, may_be_edited_unasked, plan_denial
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
)
from sandbox_agent.policy.shell.facts import subcommand_index
from sandbox_agent.policy.shell.model import ANY_WORD, SimpleCommand, Word, WordKind
from sandbox_agent.policy.shell.parser import hidden_character
from sandbox_agent.policy.shell.tables import tables
from sandbox_agent.policy.shell.wrappers import file_command
from sandbox_agent.types import WORKSPACE_MOUNT, Decision, Mode, PathAccess, PermissionRequest, Verdict

MAX_NAMED = 5
_MAX_SHOWN_CHARS = 120
# Links of a process: they lead where it is, or to what it has open, whatever rules say about names.
_PROCESS_LINK = re.compile(r"/+(?:proc/[^/]+/(?:task/[^/]+/)?(?:cwd|root|fd)|dev/fd)(?:/|\Z)")


@dataclass(frozen=True, slots=True)
class _Case:
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
class _Uncovered:
    """A part that nothing allows, and what stands in the way where a rule alone would not help."""

    source: str
    why: str = ""


def judge_command(rules: RuleSet, request: PermissionRequest, mode: Mode) -> Decision:
    """Deny, then ask, then the mode, then allow for every part; else what only reads is allowed and the rest asked."""
    text = request.subject.command or ""
    case = _case(analyse(text), rules, request, mode)
    restricted = any(_is_restriction(rule, request.tool) for rule in (*rules.deny, *rules.ask))
    if case.analysis.problem is not None:
        return _unreadable(case.analysis.problem, restricted, mode)
    restricting = _restricting(case)
    if restricting is not None:
        return restricting
    unseen = _unseen_program(case) if restricted else None
    if unseen is not None:
        return Decision(
            Verdict.ASK, f"which program runs is only known at run time ({unseen}), and rules restrict some."
        )
    if mode is Mode.BYPASS:
        return Decision(Verdict.ALLOW, "the mode bypassPermissions allows what no rule forbids.")
    if mode is Mode.PLAN and not case.analysis.only_reads:
        return plan_denial("this command")
    everything = next((r for r in rules.allow if r.names(request.tool) and _is_everything(r)), None)
    if everything is not None and not restricted and _shown_as_it_is(case):
        return by_rule(everything, f"{everything.label} allows every command")
    return _allowing(case)


def _case(analysis: ShellAnalysis, rules: RuleSet, request: PermissionRequest, mode: Mode) -> _Case:
    cwd = request.subject.cwd
    resolved = {access.path: access.resolved for access in request.subject.paths}
    named = [PathAccess(a.path, a.write, resolved.get(a.path, a.resolved)) for a in analysis.accesses(cwd)]
    accesses = tuple(dict.fromkeys((*named, *request.subject.paths)))
    return _Case(analysis, rules, mode, request.tool, cwd, analysis.folders(cwd), accesses)


def _is_restriction(rule: Rule, tool: str) -> bool:
    return rule.names(tool) or rule.is_about_files(write=False) or rule.is_about_files(write=True)


def _is_everything(rule: Rule) -> bool:
    return rule.bare or (rule.command is not None and rule.command.everything)


def _unreadable(problem: str, restricted: bool, mode: Mode) -> Decision:
    """What cannot be read is never allowed; where something is forbidden it cannot be ruled out, so it is denied."""
    if restricted or "NUL" in problem:
        return Decision(Verdict.DENY, f"the command cannot be judged: {problem}.")
    if mode is Mode.BYPASS:
        return Decision(Verdict.ALLOW, "the mode bypassPermissions allows what no rule forbids.")
    return Decision(Verdict.ASK, f"the command cannot be judged: {problem}.")


def _shown_as_it_is(case: _Case) -> bool:
    """There is something to run, what a person sees is what runs, and nothing that runs code later is written."""
    hidden = hidden_character(case.analysis.command) is not None
    protected = any(access.write and access_is_protected(access) for access in case.accesses)
    return bool(case.analysis.commands) and not hidden and not protected


def _restricting(case: _Case) -> Decision | None:
    """The decision of the first deny rule, else the first ask rule, that speaks against any part or file."""
    for rule in (*case.rules.deny, *case.rules.ask):
        covered = _restricted_by(rule, case)
        if covered is not None:
            return by_rule(rule, f"{rule.label} covers {covered}")
    return None


def _restricted_by(rule: Rule, case: _Case) -> str | None:
    """What of the command the rule speaks against, as people read it."""
    if rule.names(case.tool):
        if _is_everything(rule):
            return "every command"
        for part in (*case.analysis.commands, *case.analysis.guesses):
            if part.words and any(_matches(rule, words) for words in _forms(part)):
                return f"`{_shown(part.source)}`"
    return next((access.path for access in case.accesses if rule.touches(access)), None)


def _matches(rule: Rule, words: Sequence[str]) -> bool:
    return rule.command is not None and rule.command.matches(words)


def _forms(command: SimpleCommand) -> Iterator[tuple[str, ...]]:
    """How a command may be spelled for deny and ask: by base name, and without options before a subcommand."""
    words = tuple(word.match_text for word in command.words)
    base = (command.program or words[0], *words[1:])
    yield base
    index = subcommand_index(command)
    if index > 1:
        yield (base[0], *base[index:])


def _unseen_program(case: _Case) -> str | None:
    for part in case.analysis.commands:
        if part.words and not part.words[0].static:
            return _shown(part.source)
    return None


def _allowing(case: _Case) -> Decision:
    uncovered = [_Uncovered(concern.source, concern.why) for concern in case.analysis.concerns]
    covering: list[Rule] = []
    for part in case.analysis.commands:
        found = _cover(case, part)
        if isinstance(found, _Uncovered):
            uncovered.append(found)
        elif found is not None:
            covering.append(found)
    if not any(part.words for part in case.analysis.commands) and not uncovered:
        uncovered.append(_Uncovered(case.analysis.command.strip() or "(empty)", "there is no command in it"))
    if uncovered:
        return Decision(Verdict.ASK, _not_covered(uncovered))
    if not covering:
        return Decision(Verdict.ALLOW, "every part only reads, or is covered by the mode.")
    labels = ", ".join(dict.fromkeys(rule.label for rule in covering))
    return Decision(Verdict.ALLOW, f"every part is covered: {labels}.", covering[0].label, covering[0].location)


def _not_covered(uncovered: Sequence[_Uncovered]) -> str:
    named = dict.fromkeys(f"`{_shown(u.source)}`" + (f" ({u.why})" if u.why else "") for u in uncovered)
    shown = list(named)[:MAX_NAMED]
    more = f" and {len(named) - MAX_NAMED} more" if len(named) > MAX_NAMED else ""
    return f"not covered by any allow rule: {', '.join(shown)}{more}."


def _shown(source: str) -> str:
    line = " ".join(source.replace(ANY_WORD, "...").split())
    return line if len(line) <= _MAX_SHOWN_CHARS else line[: _MAX_SHOWN_CHARS - 3] + "..."


def _cover(case: _Case, part: SimpleCommand) -> Rule | _Uncovered | None:
    """The rule that covers a part, None where none is needed, else why it is not covered."""
    listed = _runs_by_list(case, part)
    obstacle = next(iter(blockers(part, listed=listed)), None) or _write_obstacle(case, part)
    obstacle = obstacle or _read_obstacle(case, part) or _folder_obstacle(case, part)
    if obstacle is not None:
        return _Uncovered(part.source, obstacle)
    if listed or not part.words:
        return None
    if part.transparent:
        return _Uncovered(part.source, part.hazards[0].why) if part.hazards else None
    rule = next((r for r in case.rules.allow if r.names(case.tool) and _grants(r, part)), None)
    if rule is not None or _runs_by_mode(case, part):
        return rule
    return _Uncovered(part.source, part.hazards[0].why if part.hazards else "")


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


def _runs_by_list(case: _Case, part: SimpleCommand) -> bool:
    """The shipped read-only list speaks for it, unless an allow rule of the policy names this very command: whoever
    writes `Bash(git status)` means that and no more."""
    if not case.rules.read_only_commands or not part.on_read_only_list:
        return False
    if any(word.text == ANY_WORD for word in part.words) and case.rules.restricts_files(write=False):
        return False
    if changes_folder(part) and not (len(part.words) == 2 and in_workspace(absolute(case.cwd, part.words[1].text))):
        return False
    known = tables().programs.get(part.program)
    if known is None or not (known.read_only or known.subcommands):
        return True
    index = subcommand_index(part)
    head = (
        (part.program, *(word.text for word in part.words[index : index + 1])) if known.subcommands else (part.program,)
    )
    own = (rule.command for rule in case.rules.allow if rule.names(case.tool) and rule.command is not None)
    return not any(pattern.words[: len(head)] == head for pattern in own)


def _runs_by_mode(case: _Case, part: SimpleCommand) -> bool:
    """acceptEdits: simple file commands whose every operand is a plain path in the workspace."""
    files = file_command(part) if case.mode is Mode.ACCEPT_EDITS else None
    if files is None or len(case.folders) > 1:
        return False
    paths = {absolute(case.cwd, word.text) for word in files}
    known = [access for access in case.accesses if access.path in paths]
    inside = all(may_be_edited_unasked(access) and access.path != WORKSPACE_MOUNT for access in known)
    return inside and {access.path for access in known} == paths


def _write_obstacle(case: _Case, part: SimpleCommand) -> str | None:
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


def _read_obstacle(case: _Case, part: SimpleCommand) -> str | None:
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


def _folder_obstacle(case: _Case, part: SimpleCommand) -> str | None:
    """git in another folder is never allowed: that repository's hooks and configuration would run."""
    if part.program == "git" and any(folder != case.cwd for folder in case.folders):
        return "git after cd may run another repository's programs"
    return None
