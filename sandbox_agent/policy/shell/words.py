"""Words of the syntax tree to `Word` values: quotes, backslashes, ANSI-C text, tilde, braces, globs.

Everything bash would compute at run time makes the word DYNAMIC; nothing is ever evaluated here.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from sandbox_agent.policy.paths import TOOLS_HOME
from sandbox_agent.policy.shell.model import ShellText, Word, WordKind
from sandbox_agent.policy.shell.parser import Node

_ANSI_C = re.compile(
    r"\\(?:x([0-9A-Fa-f]{1,2})|u([0-9A-Fa-f]{1,4})|U([0-9A-Fa-f]{1,8})|([0-7]{1,3})|c(.)|(.))", re.DOTALL
)
_ANSI_C_LETTERS = {
    "a": 7,
    "b": 8,
    "e": 27,
    "E": 27,
    "f": 12,
    "n": 10,
    "r": 13,
    "t": 9,
    "v": 11,
    "\\": 92,
    "'": 39,
    '"': 34,
    "?": 63,
}
# What the shell leaves as it is when the variable stands unquoted: nothing that splits a word, nothing of a pattern.
_UNSPLIT = re.compile(r"[A-Za-z0-9_./:@%+,=-]+")


@dataclass(slots=True)
class _Builder:
    """The word so far: `text` with quotes removed, `pattern` with quoted glob characters escaped."""

    source: Callable[[Node], str]
    known: Mapping[str, Word] = field(default_factory=dict)
    text: list[str] = field(default_factory=list)
    pattern: list[str] = field(default_factory=list)
    bare: list[str] = field(default_factory=list)
    """Unquoted characters alone; a space stands for everything quoted between them."""
    dynamic: bool = False
    opaque: bool = False
    """Something else than the value of a variable makes it dynamic."""

    def quoted(self, text: str) -> None:
        self.text.append(text)
        self.pattern.append(re.sub(r"([*?\[\]\\])", r"\\\1", text))
        self.bare.append(" ")

    def computed(self, node: Node) -> None:
        self.dynamic = True
        self.opaque |= plain_variable(node) is None
        self.text.append(self.source(node))

    def expanded(self, node: Node, *, quoted: bool) -> None:
        """An expansion: of a variable whose value is known, else only known at run time."""
        value = self.known.get(plain_variable(node) or "")
        if value is None or (not quoted and not (value.static and _UNSPLIT.fullmatch(value.text))):
            self.computed(node)
        elif value.static:
            self.quoted(value.text)
        else:
            self.unquoted(value.text)

    def unquoted(self, text: str) -> None:
        self.text.append(text)
        self.pattern.append(text)
        self.bare.append(text)


def plain_variable(node: Node) -> str | None:
    """The name in `$name` or `${name}` with nothing done to it."""
    if node.get("Type") != "ParamExp" or set(node) - {"Type", "Pos", "End", "Dollar", "Rbrace", "Short", "Param"}:
        return None
    return str((node.get("Param") or {}).get("Value") or "") or None


def resolve(
    node: Node | None, source: Callable[[Node], str] = lambda node: "", known: Mapping[str, Word] | None = None
) -> Word:
    """The word at a Word node; a missing node is the empty word.

    Args:
        source: gives the text of a node as written.
        known: variables whose value is surely this; a GLOB stands for one of the names that it matches.
    """
    builder = _Builder(source, known or {})
    parts: list[Node] = list((node or {}).get("Parts") or ())
    for index, part in enumerate(parts):
        _part(part, builder, first=index == 0)
    # `~"x"` is no home folder for bash; rare enough to be simply not known.
    builder.opaque |= len(parts) > 1 and parts[0].get("Value") == "~"
    builder.dynamic |= builder.opaque
    text = "".join(builder.text)
    whole = source(node) if node else ""
    bare = "".join(builder.bare)
    if builder.dynamic or _has_braces(bare):
        variables_only = builder.dynamic and not builder.opaque and not _has_braces(bare)
        return Word(whole or text, WordKind.DYNAMIC, text, variables_only)
    if "*" in bare or "?" in bare or ("[" in bare and "]" in text[text.index("[") :]):
        return Word("".join(builder.pattern), WordKind.GLOB)
    return Word(text)


def is_quoted(node: Node) -> bool:
    """True if any part of the word is quoted; a here-document with such a delimiter is literal."""
    parts = node.get("Parts") or ()
    return any(part.get("Type") != "Lit" or "\\" in part.get("Value", "") for part in parts)


def here_text(node: Node | None, source: Callable[[Node], str], *, literal: bool) -> Word:
    """The body of a here-document: text as it is with a quoted delimiter, else as in double quotes."""
    builder = _Builder(source)
    for part in (node or {}).get("Parts") or ():
        if part.get("Type") != "Lit":
            builder.computed(part)
        else:
            builder.quoted(part.get("Value", "") if literal else _double_quoted(part.get("Value", "")))
    text = "".join(builder.text)
    return Word(text, WordKind.DYNAMIC, text) if builder.dynamic else Word(text)


def ansi_c(text: str) -> str:
    """`$'...'` decoded as bash does; bytes that are no UTF-8 stay visible as surrogates, NUL ends the text."""

    def code(match: re.Match[str]) -> bytes:
        hexadecimal, short, long, octal, control, letter = match.groups()
        if hexadecimal:
            return bytes([int(hexadecimal, 16)])
        if short or long:
            value = int(short or long, 16)
            return chr(value).encode("utf-8", "surrogatepass") if value < 0x110000 else b"?"
        if octal:
            return bytes([int(octal, 8) & 0xFF])
        if control:
            return bytes([ord(control) & 0x1F])
        known = _ANSI_C_LETTERS.get(letter)
        return bytes([known]) if known is not None else ("\\" + letter).encode("utf-8", "surrogatepass")

    pieces: list[bytes] = []
    end = 0
    for match in _ANSI_C.finditer(text):
        pieces += [text[end : match.start()].encode("utf-8", "surrogatepass"), code(match)]
        end = match.end()
    pieces.append(text[end:].encode("utf-8", "surrogatepass"))
    return b"".join(pieces).split(b"\0", 1)[0].decode("utf-8", "surrogateescape")


def process_texts(source: str) -> list[str]:
    """What stands in `<(...)` and `>(...)`, up to the bracket that closes it or the end."""
    texts = []
    for match in re.finditer(r"[<>]\(", source):
        depth, end = 1, match.end()
        while end < len(source) and depth:
            depth += (source[end] == "(") - (source[end] == ")")
            end += 1
        texts.append(source[match.end() : end - 1 if depth == 0 else end])
    return list(dict.fromkeys(texts))


def unescaped(source: str) -> list[ShellText]:
    """What stands in backticks, as bash reads it: outside of double quotes, or inside. [] without a backslash: then it
    is what is written."""
    if "\\" not in source:
        return []
    outside = re.sub(r"\\([\\`$])", r"\1", source[1:-1])
    inside = re.sub(r"\\([\\`$\"])", r"\1", source[1:-1])
    return [ShellText(outside, "backticks", other=None if inside == outside else inside)]


def _part(part: Node, builder: _Builder, *, first: bool) -> None:
    match part.get("Type"):
        case "Lit":
            _literal(part.get("Value", ""), builder, first=first)
        case "SglQuoted":
            value = part.get("Value", "")
            builder.quoted(ansi_c(value) if part.get("Dollar") else value)
        case "DblQuoted":
            builder.quoted("")
            for inner in part.get("Parts") or ():
                if inner.get("Type") == "Lit":
                    builder.quoted(_double_quoted(inner.get("Value", "")))
                else:
                    builder.expanded(inner, quoted=True)
        case _:
            builder.expanded(part, quoted=False)


def _literal(value: str, builder: _Builder, *, first: bool) -> None:
    if first and value.startswith("~"):
        if value != "~" and not value.startswith("~/"):
            builder.dynamic = builder.opaque = True
        builder.quoted(TOOLS_HOME)
        value = value[1:]
    index = 0
    while index < len(value):
        if value[index] != "\\":
            builder.unquoted(value[index])
        elif index + 1 < len(value):
            index += 1
            if value[index] != "\n":
                builder.quoted(value[index])
        else:
            builder.quoted("\\")
        index += 1


def _double_quoted(value: str) -> str:
    return re.sub(r"\\([$`\"\\\n])", lambda match: "" if match[1] == "\n" else match[1], value)


def _has_braces(bare: str) -> bool:
    opened = bare.find("{")
    return opened >= 0 and "}" in bare[opened:] and ("," in bare[opened:] or ".." in bare[opened:])
