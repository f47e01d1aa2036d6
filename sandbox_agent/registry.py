"""The one place that imports late: finds `models/<name>.py` or `sandboxes/<name>.py` by name."""

from __future__ import annotations

import importlib
import re
from types import ModuleType

from sandbox_agent.errors import ConfigError

_NAME = re.compile(r"[a-z][a-z0-9_]*\Z")


def load(room: str, name: str) -> ModuleType:
    """The module `sandbox_agent.<room>.<name>`, imported now.

    Raises:
        ConfigError: there is no such module.
    """
    if _NAME.match(name):
        target = f"sandbox_agent.{room}.{name}"
        try:
            return importlib.import_module(target)
        except ModuleNotFoundError as exc:
            if exc.name != target:
                raise
    raise ConfigError(f"there is no {name!r} in {room}")
