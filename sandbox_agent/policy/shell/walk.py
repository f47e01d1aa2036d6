"""From the syntax tree to its simple commands, wherever they stand: lists, pipes, loops, functions, substitutions,
here-documents, redirects, arithmetic. What is not a simple command and not plain structure becomes a concern.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from sandbox_agent.policy.shell.model import Concern, Redirect, SimpleCommand, Word, WordKind
from sandbox_agent.policy.shell.parser import MAX_NESTING, Node, UnreadableError
from sandbox_agent.policy.shell.words import here_text, is_quoted, resolve

MAX_COMMANDS = 500

_LOOP_VARIABLE = re.compile(r"[a-z][a-z0-9_]*")
# Programs read these even in lower case.
_PROXY_VARIABLE = re.compile(r"(?:https?|ftp|all|no)_proxy")
_SAFE_TESTS = frozenset({f"-{letter}" for letter in "abcdefghkprstuwxzGLNOSn"} | {"-nt", "-ot", "-ef"}) | frozenset(
    {"!", "==", "=", "!=", "<", ">", "=~", "&&", "||"}
)
_EXPANSIONS = {
    "ParamExp": "a variable is only known at run time",
    "ArithmExp": "arithmetic can run what a variable holds",
    "CmdSubst": "the output of a command is only known at run time",
    "ProcSubst": "a process substitution runs beside the command",
    "ExtGlob": "an extended pattern is not judged",
}
_CONSTRUCTS = {
    "FuncDecl": "it defines a function, which can stand in for any program",
    "CoprocClause": "it runs in the background",
    "ArithmCmd": "arithmetic can assign and can run what a variable holds",
    "LetClause": "arithmetic can assign and can run what a variable holds",
    "CStyleLoop": "arithmetic can assign and can run what a variable holds",
}


@dataclass(slots=True)
class Found:
    """What a walk found, in the order of the text."""

    commands: list[SimpleCommand] = field(default_factory=list)
    concerns: list[Concern] = field(default_factory=list)
    texts: list[str] = field(default_factory=list)
    """Shell texts that the tree holds unparsed: shfmt leaves `<(cmd)` inside `${x:-...}` as plain characters."""


def walk(tree: Node, text: str) -> Found:
    """Everything in the tree of `text`.

    Raises:
        UnreadableError: there are too many commands, or they are nested too deeply.
    """
    walker = _Walker(text.encode("utf-8"))
    try:
        walker.statements(tree.get("Stmts"))
    except RecursionError as exc:
        raise UnreadableError("it is nested too deeply to judge") from exc
    return walker.found


@dataclass(slots=True)
class _Walker:
    raw: bytes
    found: Found = field(default_factory=Found)
    depth: int = 0
    background: bool = False
    input_texts: tuple[Word, ...] = ()

    def source(self, node: Node) -> str:
        """The text of a node as written."""
        start = node.get("Pos", {}).get("Offset", 0)
        end = node.get("End", {}).get("Offset", start)
        return self.raw[start:end].decode("utf-8", "replace")

    def statements(self, nodes: Iterable[Node] | None) -> None:
        for node in nodes or ():
            self.statement(node)

    def statement(self, node: Node) -> None:
        outer = self.background
        self.background = outer or bool(node.get("Background"))
        command = node.get("Cmd")
        redirects = tuple(self.redirect(item) for item in node.get("Redirs") or ())
        self.command(command, node, redirects)
        self.background = outer

    def command(self, node: Node | None, statement: Node, redirects: tuple[Redirect, ...]) -> None:
        kind = (node or {}).get("Type")
        if node is not None and kind in ("CallExpr", "DeclClause"):
            self.simple(node, statement, redirects)
            return
        if redirects or node is None:
            self.add(SimpleCommand((), self.source(statement), redirects=redirects, background=self.background))
        if node is not None:
            outer, self.input_texts = self.input_texts, _texts(redirects) or self.input_texts
            self.compound(node)
            self.input_texts = outer

    def simple(self, node: Node, statement: Node, redirects: tuple[Redirect, ...]) -> None:
        if node["Type"] == "DeclClause":
            words = (Word(node["Variant"]["Value"]), *(self.declared(item) for item in node.get("Args") or ()))
            assigns = any(not item.get("Naked") for item in node.get("Args") or ())
        else:
            words = tuple(self.word(item) for item in node.get("Args") or ())
            assigns = bool(node.get("Assigns"))
        self.add(
            SimpleCommand(
                words,
                self.source(statement).rstrip("&; \n") if statement.get("Redirs") else self.source(node),
                assigns=assigns,
                background=self.background,
                redirects=redirects,
                input_texts=_texts(redirects) or self.input_texts,
            )
        )
        self.inside(node, own_words=True)

    def declared(self, item: Node) -> Word:
        """`export A=b` as one word of the command."""
        value = resolve(item.get("Value"))
        name = (item.get("Name") or {}).get("Value")
        if name is None:
            return value
        text = name if item.get("Naked") else f"{name}={value.text}"
        kind = WordKind.STATIC if value.static and not item.get("Index") and not item.get("Array") else WordKind.DYNAMIC
        return Word(text, kind)

    def compound(self, node: Node) -> None:
        kind = node.get("Type", "")
        if kind in _CONSTRUCTS:
            self.concern(node, _CONSTRUCTS[kind])
        if kind == "CoprocClause":
            outer, self.background = self.background, True
            self.coprocess_name(node)
            self.statement(node["Stmt"])
            self.background = outer
            return
        if kind == "TestClause":
            self.test(node)
        if kind == "WordIter":
            self.loop_variable(node)
        self.inside(node, own_words=False)

    def coprocess_name(self, node: Node) -> None:
        """shfmt takes the word after `coproc` for a name; bash does so only before a compound command."""
        if not node.get("Name"):
            return
        statement = node["Stmt"]
        call = statement.get("Cmd") or {}
        words = (self.word(node["Name"]), *(self.word(item) for item in call.get("Args") or ()))
        redirects = tuple(self.redirect(item) for item in statement.get("Redirs") or ())
        texts = _texts(redirects) or self.input_texts
        self.add(SimpleCommand(words, self.source(node), background=True, input_texts=texts))

    def test(self, node: Node) -> None:
        """`[[ ]]` with static words and plain operators reads at most; it is a command with the word `[[`."""
        operators: list[str] = []
        words: list[Word] = []
        self.test_parts(node.get("X"), operators, words)
        unsafe = [operator for operator in operators if operator not in _SAFE_TESTS]
        if unsafe or not all(word.kind is not WordKind.DYNAMIC for word in words):
            self.concern(node, f"the test {unsafe[0]} evaluates its operand" if unsafe else _EXPANSIONS["ParamExp"])
        self.add(SimpleCommand((Word("[["), *words), self.source(node), transparent=True))

    def test_parts(self, node: Any, operators: list[str], words: list[Word]) -> None:
        if not isinstance(node, dict):
            return
        if node.get("Type") == "Word":
            words.append(self.word(node))
            return
        if node.get("Op"):
            operators.append(node["Op"])
        self.test_parts(node.get("X"), operators, words)
        self.test_parts(node.get("Y"), operators, words)

    def loop_variable(self, node: Node) -> None:
        name = (node.get("Name") or {}).get("Value", "")
        if not _LOOP_VARIABLE.fullmatch(name) or _PROXY_VARIABLE.fullmatch(name):
            self.concern(node, f"the loop sets {name or 'a variable'}, which programs may read")

    def redirect(self, node: Node) -> Redirect:
        target = self.word(node.get("Word"))
        text = None
        if node.get("Op") in ("<<", "<<-"):
            text = here_text(node.get("Hdoc"), self.source, literal=is_quoted(node.get("Word") or {}))
        elif node.get("Op") == "<<<":
            text = target
        self.inside(node, own_words=True)
        return Redirect(node.get("Op", ""), target, (node.get("N") or {}).get("Value", ""), text)

    def word(self, node: Node | None) -> Word:
        return resolve(node, self.source)

    def inside(self, node: Any, *, own_words: bool) -> None:
        """Visit the children of a node. With `own_words` its expansions already make a command's words dynamic;
        elsewhere each is a concern of its own."""
        for key, value in node.items():
            for child in value if isinstance(value, list) else (value,):
                if isinstance(child, dict) and key not in ("Pos", "End"):
                    self.child(child, own_words=own_words)

    def child(self, node: Node, *, own_words: bool) -> None:
        kind = node.get("Type", "")
        if "Cmd" in node or "Redirs" in node:
            self.statement(node)
            return
        if kind in ("CmdSubst", "ProcSubst"):
            self.substitution(node, own_words=own_words)
            return
        if kind == "ParamExp":
            self.found.texts += _process_texts(self.source(node))
        if kind in _EXPANSIONS and not own_words:
            self.concern(node, _EXPANSIONS[kind])
        if kind in _CONSTRUCTS:
            self.concern(node, _CONSTRUCTS[kind])
        if kind == "WordIter":
            self.loop_variable(node)
        self.inside(node, own_words=own_words)

    def substitution(self, node: Node, *, own_words: bool) -> None:
        if not own_words:
            self.concern(node, _EXPANSIONS[node["Type"]])
        if self.depth >= MAX_NESTING:
            raise UnreadableError(f"substitutions are nested more than {MAX_NESTING} deep")
        self.depth += 1
        self.statements(node.get("Stmts"))
        self.depth -= 1

    def concern(self, node: Node, why: str) -> None:
        self.found.concerns.append(Concern(self.source(node), why))

    def add(self, command: SimpleCommand) -> None:
        if len(self.found.commands) >= MAX_COMMANDS:
            raise UnreadableError(f"it has more than {MAX_COMMANDS} commands")
        self.found.commands.append(command)


def _texts(redirects: Iterable[Redirect]) -> tuple[Word, ...]:
    return tuple(redirect.text for redirect in redirects if redirect.text is not None)


def _process_texts(source: str) -> list[str]:
    """What stands in `<(...)` and `>(...)`, up to the bracket that closes it or the end."""
    texts = []
    for match in re.finditer(r"[<>]\(", source):
        depth, end = 1, match.end()
        while end < len(source) and depth:
            depth += (source[end] == "(") - (source[end] == ")")
            end += 1
        texts.append(source[match.end() : end - 1 if depth == 0 else end])
    return list(dict.fromkeys(texts))
