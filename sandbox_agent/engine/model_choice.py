"""Which model `--model` means."""

from __future__ import annotations

import os
from typing import NamedTuple

from sandbox_agent.errors import ConfigError
from sandbox_agent.models.credentials import check_credentials

MODEL_KINDS = {"anthropic": "anthropic", "script": "scripted"}
"""What stands before the colon of `--model`, and the module under `models/` that makes it."""


class ModelKind(NamedTuple):
    """The module that makes a model, and what to give it."""

    module: str
    name: str


def model_kind(spec: str) -> ModelKind:
    """What makes the model that is meant; a missing key is found here, before anything starts.

    Raises:
        ConfigError: it is spelled wrongly, there is no such kind, or no key for it.
    """
    kind, colon, name = spec.partition(":")
    if not colon or not name or kind not in MODEL_KINDS:
        meant = f" (did you mean anthropic:{spec}?)" if spec.startswith("claude-") else ""
        raise ConfigError(f"--model {spec!r}: write anthropic:NAME or script:FILE{meant}")
    if kind == "anthropic":
        check_credentials(os.environ)
    return ModelKind(MODEL_KINDS[kind], name)


def fallback_name(spec: str | None, model: str) -> str | None:
    """The name of the model that `--fallback-model` means, None without one.

    Args:
        spec: as given.
        model: the `--model` beside it.

    Raises:
        ConfigError: it is spelled wrongly, is the model itself, or that one is not of the same kind.
    """
    if spec is None:
        return None
    kind, _, name = spec.partition(":")
    if kind != "anthropic" or not name.strip():
        raise ConfigError(f"--fallback-model {spec!r}: write anthropic:NAME")
    own_kind, own_name = model_kind(model)
    if own_kind != "anthropic":
        raise ConfigError(f"--fallback-model {spec} stands in for a model of the API only, and --model is {model}")
    if name.strip() == own_name.strip():
        raise ConfigError(f"--fallback-model {spec} is the model itself; name another one")
    return name.strip()
