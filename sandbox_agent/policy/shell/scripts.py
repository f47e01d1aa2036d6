"""Little languages inside commands: whether a sed, awk or jq program is plainly harmless.

They are judged by what is known to be safe; everything else counts as able to run or write something.
"""

from __future__ import annotations

import re

_SED_ADDRESS = r"(?:\d+(?:~\d+)?|\$|/(?:\\.|\[\^?\]?[^\]/]*\]|[^/\\\n\[])*/I?)"
_SED_ADDRESSES = rf"(?:{_SED_ADDRESS}(?:\s*,\s*(?:{_SED_ADDRESS}|[+~]\d+))?\s*!?\s*)?"
_SED_PLAIN = r"(?:[pPdDgGhHxnN=l]|[qQ]\d*)"
_SED_COMMAND = re.compile(rf"\s*{_SED_ADDRESSES}(?:{_SED_PLAIN}|(?P<change>[sy]))?")
_SED_END = re.compile(r"\s*(?:[;\n}]\s*|\Z)")
_SED_OPEN = re.compile(rf"\s*{_SED_ADDRESSES}\{{")
_SED_FLAGS = re.compile(r"[gpIiMm0-9]*")

_AWK_STRING = re.compile(r'"(?:\\.|[^"\\\n])*"')
_AWK_RUNS = re.compile(r"\b(?:system|getline|include|load|ARGV)\b|@|`")
_AWK_PRINTS_IN_BRACKETS = re.compile(r"\([^()]*\bprintf?\b")
_JQ_READS = re.compile(r"\b(?:import|include|modulemeta)\b")
MAX_SCRIPT_CHARS = 4096


def harmless(language: str, script: str) -> bool:
    """True if the script surely only reads its input and prints."""
    if len(script) > MAX_SCRIPT_CHARS:
        return False
    match language:
        case "sed":
            return _sed(script)
        case "awk":
            return _awk(script)
        case "jq":
            return not _JQ_READS.search(script)
    return False


def _sed(script: str) -> bool:
    """A list of printing, deleting and substituting commands without the flags `e` and `w`."""
    position = 0
    while position < len(script):
        opened = _SED_OPEN.match(script, position)
        if opened:
            position = opened.end()
            continue
        command = _SED_COMMAND.match(script, position)
        if command is None:
            return False
        after = command.end()
        if command["change"]:
            changed = _sed_change(script, after)
            if changed is None:
                return False
            after = changed
        end = _SED_END.match(script, after)
        if end is None or end.end() == position:
            return False
        position = end.end()
    return True


def _sed_change(script: str, position: int) -> int | None:
    """The end of `s/a/b/flags` whose delimiter is at `position`; None if it does not close."""
    if position >= len(script) or script[position] in "\\\n":
        return None
    delimiter = script[position]
    index = _sed_section(script, position + 1, delimiter, brackets=True)
    if index is not None:
        index = _sed_section(script, index, delimiter, brackets=False)
    if index is None:
        return None
    flags = _SED_FLAGS.match(script, index)
    return flags.end() if flags else index


def _sed_section(script: str, index: int, delimiter: str, *, brackets: bool) -> int | None:
    """The place after the next delimiter. One inside brackets is read differently by different seds: None."""
    while index < len(script) and script[index] != delimiter:
        if script[index] == "\\":
            index += 2
        elif brackets and script[index] == "[":
            closing = script.find("]", index + 2 + script.startswith("^", index + 1))
            if closing < 0 or delimiter in script[index:closing]:
                return None
            index = closing + 1
        else:
            index += 1
    return index + 1 if index < len(script) else None


def _awk(script: str) -> bool:
    """No call of a program, no pipe, no redirect, no input but the files given (ARGV is where others can be put)."""
    if _AWK_RUNS.search(script):
        return False
    # With a slash there may be a regular expression that holds a quote, and then what is a string is unclear.
    bare = script if "/" in script else _AWK_STRING.sub('""', script)
    bare = bare.replace("||", "").replace(">=", "")
    if "|" in bare:
        return False
    # Regular expressions and comments can hide where a statement ends; a line may go on in the next one.
    unclear = "/" in script or "#" in bare or _AWK_PRINTS_IN_BRACKETS.search(bare)
    return ">" not in bare or (not unclear and not any(map(_awk_redirects, re.split(r"[{};]", bare))))


def _awk_redirects(statement: str) -> bool:
    """Whether a `>` is more than a comparison: it stands in no brackets, after a print."""
    printed = re.search(r"\bprintf?\b", statement)
    depth = 0
    for char in statement[printed.end() :] if printed else "":
        depth += (char == "(") - (char == ")")
        if char == ">" and depth <= 0:
            return True
    return False
