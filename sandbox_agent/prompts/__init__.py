"""Every text the model is given, as `.md` files beside this one; this module only reads them."""

from __future__ import annotations

from functools import cache
from pathlib import Path

_ROOM = Path(__file__).parent


@cache
def prompt(name: str) -> str:
    """The text of `prompts/<name>.md` without surrounding blank lines, for example `prompt("tools/bash")`."""
    return (_ROOM / f"{name}.md").read_text(encoding="utf-8").strip()


def room(name: str) -> Path:
    """The folder `prompts/<name>`, for whoever needs all texts in it."""
    return _ROOM / name
