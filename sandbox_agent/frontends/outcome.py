"""What one finished call looks like: a short outcome, and below it what is worth seeing (diff, output, todo list)."""

from __future__ import annotations

import re
from collections.abc import Sequence

from rich.text import Text

from sandbox_agent.events import ToolFinished
from sandbox_agent.frontends import diffs, words
from sandbox_agent.frontends.sanitise import sanitise
from sandbox_agent.types import JsonObject

_EXIT_LINE = re.compile(r"\s*Exit code: \d+\s*\Z")
"""What the headline has said already."""

PREVIEW_LINES = 6
DIFF_LINES = 40
_TODO_MARKS = {"completed": ("[x]", "green"), "in_progress": ("[>]", "bold yellow"), "pending": ("[ ]", "")}


def plain_text(content: str | Sequence[JsonObject]) -> str:
    """The text of a result; other blocks are named by their type, as "<image>"."""
    if isinstance(content, str):
        return content
    return "\n".join(
        str(block.get("text", "")) if block.get("type") == "text" else f"<{block.get('type')}>" for block in content
    )


def headline(event: ToolFinished) -> Text:
    """The outcome in a few words: what came of it and how long it took."""
    text = plain_text(event.content)
    exit_code = event.meta.get("exit_code")
    said = Text()
    if event.meta.get("timed_out"):
        said.append("timed out", style="bold red")
    elif isinstance(exit_code, int):
        # The code and no more: grep says 1 for "nothing found", and 0 does not mean that the work is done.
        said.append(f"exit {exit_code}", style="bold yellow" if exit_code else "bold green")
    elif event.is_error:
        said.append("failed ", style="bold red").append(sanitise(_first_line(text)), style="red")
    else:
        said.append("ok ", style="bold green").append(_gist(event, text))
    return said.append(f" · {words.duration(event.duration_s)}", style="dim")


def _gist(event: ToolFinished, text: str) -> str:
    if isinstance(event.meta.get("diff"), str):
        added, removed = diffs.counts(event.meta["diff"])
        return f"+{added} -{removed}"
    if isinstance(event.meta.get("todos"), list):
        return words.count(len(event.meta["todos"]), "item")
    return words.count(len(text.splitlines()), "line")


def details(event: ToolFinished, *, verbose: bool = False) -> Text | None:
    """What to show below the outcome, or None."""
    diff, todos = event.meta.get("diff"), event.meta.get("todos")
    if isinstance(diff, str) and diff.strip():
        return diffs.render(diff, max_lines=None if verbose else DIFF_LINES, indent="    ", heads=False)
    if isinstance(todos, list) and not event.is_error:
        return todo_list(todos)
    text = _EXIT_LINE.sub("", plain_text(event.content)) if "exit_code" in event.meta else plain_text(event.content)
    if verbose or event.tool == "Bash":
        return _preview(text, max_lines=None if verbose else PREVIEW_LINES)
    if event.is_error and "\n" in text.strip():
        return _preview(text, max_lines=PREVIEW_LINES)
    return None


def todo_list(todos: Sequence[object]) -> Text | None:
    """The todo list, one item a line; None if it is empty."""
    out = Text()
    for todo in todos:
        if not isinstance(todo, dict):
            continue
        mark, style = _TODO_MARKS.get(str(todo.get("status")), ("[?]", ""))
        active = str(todo.get("status")) == "in_progress"
        words_ = str((active and todo.get("activeForm")) or todo.get("content", ""))
        out.append("\n" * (len(out) > 0) + "    ")
        out.append(f"{mark} {sanitise(words_)}", style=style)
    return out if len(out) else None


def _preview(text: str, *, max_lines: int | None) -> Text | None:
    lines = text.rstrip().splitlines()
    if not lines:
        return None
    hidden = 0 if max_lines is None or len(lines) <= max_lines else len(lines) - max_lines + 1
    shown = [sanitise(line, tabs=True) for line in lines[hidden:]]
    if hidden:
        shown.insert(0, f"... {words.count(hidden, 'line')} above")
    return Text("\n".join(f"    {line}" for line in shown), style="dim")


def _first_line(text: str) -> str:
    stripped = text.strip()
    return stripped.splitlines()[0] if stripped else ""
