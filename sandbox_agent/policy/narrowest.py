"""The narrowest allow rules for a call: what "always" saves, what `policy explain` proposes and `policy learn` writes.

Candidates only: whether they really allow the call is for `Policy.suggest`, which asks the judge itself.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterable

from sandbox_agent.policy.coverage import Case, Uncovered, case_of, cover
from sandbox_agent.policy.paths import TOOLS_HOME, below
from sandbox_agent.policy.rules import RuleSet, takes_specifier
from sandbox_agent.policy.shell.analyse import absolute, file_writes
from sandbox_agent.policy.shell.model import SimpleCommand
from sandbox_agent.types import WORKSPACE_MOUNT, Mode, PathAccess, PermissionRequest

MAX_RULES = 20
"""A person cannot judge more at once; a call that needs more is remembered as it is, for the session alone."""


def candidates(rules: RuleSet, request: PermissionRequest, mode: Mode) -> tuple[str, ...]:
    """Rules that name what is not covered of this call and nothing else; empty where no rule can.

    Words that are only known at run time, assignments and what outlives the call are beyond every rule.
    """
    subject = request.subject
    if subject.command is not None:
        return _for_command(case_of(rules, request, mode))
    if subject.paths:
        return _unique(_file_rule(access) for access in subject.paths)
    if subject.specifier is None:
        return (request.tool,)
    if set("*?[]") & set(subject.specifier) or not takes_specifier(request.tool):
        return ()
    return (f"{request.tool}({subject.specifier})",)


def _for_command(case: Case) -> tuple[str, ...]:
    if case.analysis.problem is not None or case.analysis.concerns:
        return ()
    found: list[str] = []
    for part in case.analysis.commands:
        if isinstance(cover(case, part), Uncovered):
            of_part = _for_part(case, part)
            if of_part is None:
                return ()
            found += of_part
    return _unique(found)


def _for_part(case: Case, part: SimpleCommand) -> list[str] | None:
    """Its words as they are, and an Edit rule for each file it redirects into; None where no rule can."""
    if part.assigns or part.background or not all(word.static for word in part.words):
        return None
    written = {absolute(folder, word.text) for word in file_writes(part) for folder in case.folders}
    rules = [f"{case.tool}({quoted(word.text for word in part.words)})"] if part.words else []
    return rules + [_file_rule(access) for access in case.accesses if access.write and access.path in written]


def quoted(words: Iterable[str]) -> str:
    """The words as a rule spells them: quoted where bash would need it, a literal star escaped."""
    return " ".join(shlex.quote(word).replace("*", "\\*") for word in words)


def _file_rule(access: PathAccess) -> str:
    return f"{'Edit' if access.write else 'Read'}({_path_rule(access.path)})"


def _path_rule(path: str) -> str:
    for base, mark in ((WORKSPACE_MOUNT, "/"), (TOOLS_HOME, "~/")):
        relative = below(base, path)
        if relative:
            return mark + _escaped(relative)
    return "//" + _escaped(path.lstrip("/"))


def _escaped(path: str) -> str:
    """The gitignore pattern that matches exactly this path."""
    return "".join("\\" + char if char in "\\*?[ " else char for char in path)


def _unique(rules: Iterable[str]) -> tuple[str, ...]:
    found = tuple(dict.fromkeys(rules))
    return found if len(found) <= MAX_RULES else ()
