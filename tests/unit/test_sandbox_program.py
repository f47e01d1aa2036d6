"""The runner's program must load on the oldest Python it promises, with nothing but the standard library."""

from __future__ import annotations

import ast
import sys
from importlib import resources

import pytest

from sandbox_agent.sandboxes.program import source

PACKAGE = "sandbox_agent.sandboxes.runner"
MODULES = sorted(entry.name for entry in resources.files(PACKAGE).iterdir() if entry.name.endswith(".py"))


def tree(module: str) -> ast.Module:
    return ast.parse((resources.files(PACKAGE) / module).read_text("utf-8"), feature_version=(3, 9))


@pytest.mark.parametrize("module", MODULES)
def test_a_module_parses_on_the_oldest_python(module: str) -> None:
    """And leaves its annotations unread, which are in newer spelling."""
    body = tree(module).body

    assert module == "__init__.py" or any(
        isinstance(node, ast.ImportFrom) and node.module == "__future__" and node.names[0].name == "annotations"
        for node in body
    )


@pytest.mark.parametrize("module", MODULES)
def test_a_module_imports_only_the_standard_library_and_its_siblings(module: str) -> None:
    """The container has nothing else of ours."""
    names = set()
    for node in ast.walk(tree(module)):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        if isinstance(node, ast.ImportFrom):
            names.add(node.module or "")

    assert {
        name for name in names if name.split(".")[0] not in sys.stdlib_module_names and not name.startswith(PACKAGE)
    } == set()


def test_the_program_says_its_length_first() -> None:
    """Eight hex digits, then exactly that many bytes, which compile, with every module in them."""
    sent = source()
    size, text = int(sent[:8], 16), sent[8:]

    assert size == len(text)
    compile(text, "program", "exec")
    assert all(f"('{module[:-3]}', ".encode() in text for module in MODULES if module != "__init__.py")
