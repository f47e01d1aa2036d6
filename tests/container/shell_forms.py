"""A grammar of shell forms around a marker program, for hypothesis. Most forms that come out of it run the marker."""

from __future__ import annotations

import random
import re
import shlex
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

GRAMMAR: dict[str, Any] = yaml.safe_load((Path(__file__).parents[1] / "data" / "shell_grammar.yaml").read_text())
_HOLE = re.compile(r"\{(c|l|q|d|b|w|p|x)\}")
MAX_DEPTH = 3
KINDS = ("statements", "statements", "wrappers", "places", "places", "lists", "data")
AROUND_SHARE = 0.5
HARMLESS_SHARE = 0.5
REDIRECT_SHARE = 0.25


@dataclass(frozen=True, slots=True)
class Form:
    """A command text. `data`: something in it is evaluated as code that no parser can see as such."""

    text: str
    data: bool


def form(seed: int) -> Form:
    """The form of this number."""
    grammar = _Grammar(random.Random(seed))
    text = grammar.statement(grammar.dice.randint(1, MAX_DEPTH))
    if grammar.dice.random() < AROUND_SHARE:
        text = grammar.filled(grammar.one_of("around"), text)
    return Form(text, grammar.data)


def forms() -> st.SearchStrategy[Form]:
    """All forms. By number: hypothesis would otherwise repeat parts of earlier ones, and three of four come twice."""
    return st.integers(0, 2**63).map(form)


def drawn(count: int) -> list[Form]:
    """About as many different forms: the same ones every time, fresh ones in `make soak`."""
    found: dict[str, Form] = {}

    @settings(max_examples=count, database=None, phases=[Phase.generate], suppress_health_check=list(HealthCheck))
    @given(forms())
    def one(drawn_form: Form) -> None:
        found[drawn_form.text] = drawn_form

    one()
    return list(found.values())


class _Grammar:
    def __init__(self, dice: random.Random) -> None:
        self.dice = dice
        self.data = False

    def one_of(self, name: str) -> str:
        return str(self.dice.choice(GRAMMAR[name]))

    def statement(self, depth: int) -> str:
        """A statement that runs the marker."""
        if depth <= 0:
            return self.leaf()
        kind = self.dice.choice(KINDS)
        if kind == "places":
            return self.one_of("places").replace("{w}", self.word(depth - 1))
        if kind == "wrappers":
            return self.filled(self.one_of("wrappers"), self.leaf())
        if kind == "lists":
            return self.filled(self.one_of("lists"), self.statement(depth - 1)).replace("{x}", self.other(depth - 1))
        self.data |= kind == "data"
        return self.filled(self.one_of(kind), self.statement(depth - 1))

    def other(self, depth: int) -> str:
        """A second statement in a list: harmless, or with a marker as well."""
        return self.dice.choice((":", "true", "echo a")) if self.dice.random() < HARMLESS_SHARE else self.closed(depth)

    def closed(self, depth: int) -> str:
        text = self.statement(depth)
        return "{ " + text + "\n}" if "\n" in text else text

    def leaf(self) -> str:
        words = [self.one_of("markers"), *(self.one_of("arguments") for _ in range(self.dice.randint(0, 2)))]
        redirects = [self.one_of("redirects")] if self.dice.random() < REDIRECT_SHARE else []
        return " ".join([*words, *redirects])

    def word(self, depth: int) -> str:
        """A word in which the marker runs, when it is expanded."""
        inner = self.one_of("substitutions")
        if "{p}" in inner:
            inner = inner.replace("{p}", self.word(depth - 1) if depth > 0 else "$(" + self.leaf() + ")")
        return self.filled(inner, self.statement(depth))

    def filled(self, template: str, command: str) -> str:
        """A template with a command in its holes, quoted as each hole needs it."""
        grouped = "{ " + command + "\n}" if "\n" in command else command
        return _HOLE.sub(lambda hole: _put(hole[1], command, grouped) or hole[0], template)


def _put(hole: str, command: str, grouped: str) -> str | None:
    match hole:
        case "c":
            return grouped
        case "l":
            return command
        case "q":
            return shlex.quote(command)
        case "d":
            return '"' + re.sub(r'([\\"$`])', r"\\\1", command) + '"'
        case "b":
            return "`" + re.sub(r"([\\`$])", r"\\\1", command) + "`"
    return None
