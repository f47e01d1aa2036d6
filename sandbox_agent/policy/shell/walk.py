"""From the syntax tree to its simple commands, wherever they stand: lists, pipes, loops, functions, substitutions,
here-documents, redirects, arithmetic. What is not a simple command and not plain structure becomes a concern.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from sandbox_agent.policy.shell.conditions import condition
from sandbox_agent.policy.shell.constructs import CONSTRUCTS, EXPANSIONS, LOOP_VARIABLE, PLACES, PROXY_VARIABLE
from sandbox_agent.policy.shell.inputs import printed, texts_of
from sandbox_agent.policy.shell.loops import MAX_EXPANDED_WORDS, Values, bindings, sets_variables, values
from sandbox_agent.policy.shell.model import Concern, Redirect, ShellText, SimpleCommand, Word, WordKind
from sandbox_agent.policy.shell.parser import MAX_NESTING, Node, UnreadableError
from sandbox_agent.policy.shell.words import here_text, is_quoted, process_texts, resolve, unescaped

MAX_COMMANDS = 500


@dataclass(slots=True)
class Found:
    """What a walk found, in the order of the text."""

    commands: list[SimpleCommand] = field(default_factory=list)
    concerns: list[Concern] = field(default_factory=list)
    texts: list[ShellText] = field(default_factory=list)
    """What the tree does not hold, or not well: shfmt leaves `<(cmd)` inside `${x:-...}` as plain characters, and takes
    away too few backslashes in backticks that stand in others."""


def walk(tree: Node, text: str) -> Found:
    """Everything in the tree of `text`.

    Raises:
        UnreadableError: there are too many commands, or they are nested too deeply.
    """
    walker = _Walker(text.encode("utf-8"))
    try:
        walker.follows_loops = "for" in text and not sets_variables(tree)
        walker.statements(tree.get("Stmts"))
    except RecursionError as exc:
        raise UnreadableError("it is nested too deeply to judge") from exc
    except (AttributeError, IndexError, KeyError, TypeError) as exc:
        raise UnreadableError("the shell parser gave a tree that is none") from exc
    return walker.found


@dataclass(slots=True)
class _Walker:
    raw: bytes
    found: Found = field(default_factory=Found)
    depth: int = 0
    background: bool = False
    input_texts: tuple[Word, ...] = ()
    inside_of: tuple[str, ...] = ()
    in_backticks: bool = False
    follows_loops: bool = False
    loops: Values = field(default_factory=dict)
    expanded_words: int = 0

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
        for redirect in node.get("Redirs") or ():
            self.inside(redirect, own_words=True)
        self.command(node.get("Cmd"), node)
        self.background = outer

    def command(self, node: Node | None, statement: Node) -> None:
        kind = (node or {}).get("Type")
        if node is not None and kind in ("CallExpr", "DeclClause"):
            self.simple(node, statement)
            return
        redirects = self.redirects(statement)
        if redirects or node is None:
            self.add(statement, (), self.source(statement), redirects)
        if node is not None:
            outer, self.input_texts = self.input_texts, (*self.input_texts, *texts_of(redirects))
            with self.place(node):
                self.compound(node)
            self.input_texts = outer

    def simple(self, node: Node, statement: Node) -> None:
        items = node.get("Args") or []
        source = self.source(statement).rstrip("&; \n") if statement.get("Redirs") else self.source(node)
        for known in self.ways([*items, *(statement.get("Redirs") or ())]):
            if node["Type"] == "DeclClause":
                words = (Word(node["Variant"]["Value"]), *(self.declared(item) for item in items))
                assigns = any(not item.get("Naked") for item in items)
            else:
                words = tuple(self.word(item, known) for item in items)
                assigns = bool(node.get("Assigns"))
            self.add(statement, words, source, self.redirects(statement, known), assigns=assigns)
        self.inside(node, own_words=True)

    def ways(self, nodes: list[Node]) -> list[dict[str, Word]]:
        """What the variables of the loops around can be where these nodes use them."""
        found = bindings(nodes, self.loops, MAX_EXPANDED_WORDS - self.expanded_words) if self.loops else [{}]
        self.expanded_words += len(found) * len(nodes) if found != [{}] else 0
        return found

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
        if kind in CONSTRUCTS:
            self.concern(node, CONSTRUCTS[kind])
        if kind == "CoprocClause":
            outer, self.background = self.background, True
            self.coprocess_name(node)
            self.statement(node["Stmt"])
            self.background = outer
            return
        if kind == "TestClause":
            self.inside(node, own_words=self.test(node))
            return
        if kind == "ForClause":
            self.loop(node)
            return
        if kind == "BinaryCmd" and node.get("Op") in ("|", "|&"):
            self.pipe(node)
            return
        self.inside(node, own_words=False)

    def pipe(self, node: Node) -> None:
        """What is left of a pipe, then what is right of it, which reads what the left one writes and nothing else."""
        before = len(self.found.commands)
        self.statement(node["X"])
        left = self.found.commands[before:]
        outer, self.input_texts = self.input_texts, tuple(text for command in left for text in printed(command))
        self.statement(node["Y"])
        self.input_texts = outer

    def loop(self, node: Node) -> None:
        """The words it goes through, then its body with the variable being each of them."""
        head: Node = node.get("Loop") or {}
        self.child(head, own_words=False)
        outer = self.loops
        items = values(self.word(item) for item in head.get("Items") or ())
        if self.follows_loops and items:
            self.loops = {**outer, str(head["Name"]["Value"]): items}
        self.statements(node.get("Do"))
        self.loops = outer

    def coprocess_name(self, node: Node) -> None:
        """shfmt takes the word after `coproc` for a name; bash does so only before a compound command."""
        if not node.get("Name"):
            return
        statement = node["Stmt"]
        while (statement.get("Cmd") or {}).get("Type") == "BinaryCmd":
            statement = statement["Cmd"]["X"]
        call = statement.get("Cmd") or {}
        words = (self.word(node["Name"]), *(self.word(item) for item in call.get("Args") or ()))
        self.add(node, words, self.source(node), input_texts=texts_of(self.redirects(statement)))

    def test(self, node: Node) -> bool:
        """`[[ ]]` with static words and plain operators reads at most; it is a command with the word `[[`. Returns
        whether it is that."""
        plain = True
        for known in self.ways([node]):
            tested = condition(node.get("X"), partial(self.word, known=known))
            if tested.unsafe is not None or any(word.kind is WordKind.DYNAMIC for word in tested.words):
                plain = False
                why = f"the test {tested.unsafe} evaluates its operand" if tested.unsafe else EXPANSIONS["ParamExp"]
                self.concern(node, why)
            self.add(node, (Word("[["), *tested.words), self.source(node), transparent=True)
        return plain

    def loop_variable(self, node: Node) -> None:
        name = (node.get("Name") or {}).get("Value", "")
        if not LOOP_VARIABLE.fullmatch(name) or PROXY_VARIABLE.fullmatch(name):
            self.concern(node, f"the loop sets {name or 'a variable'}, which programs may read")

    def redirects(self, statement: Node, known: Mapping[str, Word] | None = None) -> tuple[Redirect, ...]:
        return tuple(self.redirect(item, known) for item in statement.get("Redirs") or ())

    def redirect(self, node: Node, known: Mapping[str, Word] | None) -> Redirect:
        target = self.word(node.get("Word"), known)
        text = None
        if node.get("Op") in ("<<", "<<-"):
            text = here_text(node.get("Hdoc"), self.source, literal=is_quoted(node.get("Word") or {}))
        elif node.get("Op") == "<<<":
            text = target
        return Redirect(node.get("Op", ""), target, (node.get("N") or {}).get("Value", ""), text)

    def word(self, node: Node | None, known: Mapping[str, Word] | None = None) -> Word:
        return resolve(node, self.source, known)

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
            self.found.texts += [ShellText(t, "process substitution") for t in process_texts(self.source(node))]
        if kind in EXPANSIONS and not own_words:
            self.concern(node, EXPANSIONS[kind])
        if kind in CONSTRUCTS:
            self.concern(node, CONSTRUCTS[kind])
        if kind == "WordIter":
            self.loop_variable(node)
        self.inside(node, own_words=own_words)

    def substitution(self, node: Node, *, own_words: bool) -> None:
        if not own_words:
            self.concern(node, EXPANSIONS[node["Type"]])
        if self.depth >= MAX_NESTING:
            raise UnreadableError(f"substitutions are nested more than {MAX_NESTING} deep")
        outer = self.in_backticks
        if node.get("Backquotes") and not outer:
            self.in_backticks = True
            self.found.texts += unescaped(self.source(node))
        self.depth += 1
        with self.place(node):
            self.statements(node.get("Stmts"))
        self.depth -= 1
        self.in_backticks = outer

    @contextmanager
    def place(self, node: Node) -> Iterator[None]:
        """While in it, commands are told to stand inside of this node."""
        outer = self.inside_of
        if node.get("Type") in PLACES:
            self.inside_of = (*outer, PLACES[node["Type"]])
        yield
        self.inside_of = outer

    def concern(self, node: Node, why: str) -> None:
        self.found.concerns.append(Concern(self.source(node), why))

    def add(
        self,
        node: Node,
        words: tuple[Word, ...],
        source: str,
        redirects: tuple[Redirect, ...] = (),
        *,
        assigns: bool = False,
        transparent: bool = False,
        input_texts: tuple[Word, ...] = (),
    ) -> None:
        if len(self.found.commands) >= MAX_COMMANDS:
            raise UnreadableError(f"it has more than {MAX_COMMANDS} commands")
        self.found.commands.append(
            SimpleCommand(
                words,
                source,
                assigns=assigns,
                background=self.background,
                redirects=redirects,
                input_texts=(*self.input_texts, *input_texts, *texts_of(redirects)),
                transparent=transparent,
                line=node.get("Pos", {}).get("Line", 1),
                inside=self.inside_of,
            )
        )
