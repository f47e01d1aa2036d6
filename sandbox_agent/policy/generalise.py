"""When several alike rules may become one wider rule, without a person naming it. Three rules, all of them strict:

- Only commands whose further words choose among what a project tests and checks (`_RUNNERS`), or git subcommands that
  record work; never a program that runs other programs, an interpreter, or one whose operands are what it writes.
- Only commands that are free of hazards: an option with which a program runs or writes something else stays exact.
- Only files below a common folder of the workspace that is not the workspace itself.
"""

from __future__ import annotations

import posixpath
from collections.abc import Iterable, Sequence

from sandbox_agent.errors import PolicyError
from sandbox_agent.policy.narrowest import quoted
from sandbox_agent.policy.paths import is_protected
from sandbox_agent.policy.rules import Rule, RuleSet, parse_rule
from sandbox_agent.policy.shell.facts import with_facts
from sandbox_agent.policy.shell.model import SimpleCommand, Word
from sandbox_agent.types import Verdict

_RUNNERS = tuple(
    tuple(text.split())
    for text in (
        "pytest",
        "py.test",
        "python -m pytest",
        "python3 -m pytest",
        "python -m unittest",
        "python3 -m unittest",
        "tox",
        "nox",
        "mypy",
        "flake8",
        "pylint",
        "npm test",
        "npm run test",
        "npm run lint",
        "yarn test",
        "pnpm test",
        "jest",
        "vitest",
        "eslint",
        "tsc",
        "cargo test",
        "cargo check",
        "cargo clippy",
        "go test",
        "go vet",
        "ctest",
        "phpunit",
        "rspec",
        "dotnet test",
        "git add",
        "git commit",
    )
)
"""What a rule `Bash(WORDS:*)` may be made for: it runs the project's own code at most, which each of the exact rules
allows as well, or records work in its repository."""


def generalised(held: RuleSet, rules: Sequence[str], at_least: int) -> list[str]:
    """The rules with alike ones replaced by a wider one, where there are at least so many. Order is kept.

    A wider rule that a deny or ask rule already speaks of word for word is not made: the exact ones stay.
    """
    parsed = {text: parse_rule(text, Verdict.ALLOW) for text in rules}
    groups: dict[str, list[str]] = {}
    for text, rule in parsed.items():
        wider = _wider(rule)
        if wider is not None and not _is_spoken_of(held, wider):
            groups.setdefault(wider, []).append(text)
    replaced = {text: wider for wider, texts in groups.items() if len(texts) >= at_least for text in texts}
    return list(dict.fromkeys(replaced.get(text, text) for text in rules))


def _wider(rule: Rule) -> str | None:
    if rule.command is not None:
        return _wider_command(rule.command.words)
    if rule.tool == "Edit" and rule.specifier is not None:
        return _wider_path(rule.specifier)
    return None


def _wider_command(words: Sequence[str]) -> str | None:
    head = next((runner for runner in _RUNNERS if tuple(words[: len(runner)]) == runner), None)
    facts = with_facts(SimpleCommand(tuple(Word(word) for word in words), ""))
    if head is None or facts.hazards:
        return None
    return f"Bash({quoted(head)}:*)"


def _wider_path(pattern: str) -> str | None:
    folder = posixpath.dirname(pattern)
    if not pattern.startswith("/") or pattern.startswith("//") or folder == "/" or is_protected(folder):
        return None
    return f"Edit({folder}/**)"


def _is_spoken_of(held: RuleSet, text: str) -> bool:
    texts: Iterable[str] = (rule.text for rule in (*held.deny, *held.ask))
    try:
        parse_rule(text, Verdict.ALLOW)
    except PolicyError:
        return True
    return text in texts
