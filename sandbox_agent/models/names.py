"""Short forms of models' names."""

from __future__ import annotations

SHORT = {
    "fable": "claude-fable-5-2",
    "haiku": "claude-haiku-5-5",
    "opus": "claude-opus-5-5",
    "sonnet": "claude-sonnet-5-5",
}
"""What other programs call the newest model of a kind; the names are those of anthropic 2.14."""


def full_name(name: str | None) -> str | None:
    """The name of a model as its API takes it: of a short form, or with what stands before the colon of `--model`."""
    return SHORT.get(name, name.removeprefix("anthropic:")) if name is not None else None
