"""sandbox_agent runs an AI agent on a folder without giving it the machine.

Importing this package does nothing and costs almost nothing. What a program needs (`run`, `Session`, `build_tool` and
their kin, see docs/python.md) is imported when it is first asked for; `__init__.pyi` has the same names for type
checkers. The command line is `sandbox_agent.cli`, the composition root `sandbox_agent.engine.open`.
"""

from __future__ import annotations

import importlib
from typing import Any

__version__ = "0.1.0"

_PLACES = {
    "ApprovalAnswer": "engine.approval",
    "ApprovalRequest": "engine.approval",
    "HookAnswer": "engine.hook_answers",
    "HookEvent": "policy.hooks",
    "ProgramHook": "engine.hooks",
    "Question": "tools.questions",
    "Reply": "tools.questions",
    "Result": "embedding.result",
    "Run": "embedding.running",
    "Session": "embedding.session",
    "Tool": "tools.base",
    "ToolContext": "tools.base",
    "ToolInput": "tools.base",
    "ToolResult": "types",
    "Verdict": "types",
    "build_tool": "embedding.own_tools",
    "parse_matcher": "policy.hooks",
    "run": "embedding.running",
}
"""Public name to the module that has it."""
_MODULES = ("errors", "events")

__all__ = ["__version__", *_MODULES, *_PLACES]


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return importlib.import_module(f"{__name__}.{name}")
    if name not in _PLACES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(importlib.import_module(f"{__name__}.{_PLACES[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
