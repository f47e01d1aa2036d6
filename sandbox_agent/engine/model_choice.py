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
        raise ConfigError(f"--model {spec!r}: write anthropic:NAME or script:FILE")
    if kind == "anthropic":
        check_credentials(os.environ)
    return ModelKind(MODEL_KINDS[kind], name)
