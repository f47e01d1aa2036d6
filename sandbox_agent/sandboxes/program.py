"""The runner's program as text, and the command that starts it in the container.

The source travels over the exec stream, so the container holds no file of ours and both sides are of one version.
"""

from __future__ import annotations

from collections.abc import Sequence
from importlib import resources

_PACKAGE = "sandbox_agent.sandboxes.runner"
_MODULES = (
    "wire",
    "kept",
    "processes",
    "spawn",
    "capture",
    "link",
    "supervisor",
    "names",
    "files",
    "worker",
    "hand",
    "outgoing",
    "main",
)
"""In the order of their imports: each is put where the next one's import finds it."""

TOOLBOX = "/.agent-tools"
"""Where images that are not ours have the toolbox, see `toolbox`. Short: it is written over other names in programs."""

INTERPRETERS = ("/usr/lib/sandbox-agent/python3", f"{TOOLBOX}/bin/python3", "python3")
"""The unreadable one in our images (no process of the same uid can look into it) or in the toolbox, else the image's
own."""

_BOOT = """
import os, sys
def take(size):
    data = b""
    while len(data) < size:
        more = os.read(0, size - len(data))
        if not more:
            sys.exit(1)
        data += more
    return data
exec(compile(take(int(take(8), 16)), "<sandbox-agent>", "exec"))
"""

_LOAD = """
import sys, types
for package, sources in {rooms!r}:
    parts = package.split(".")
    for end in range(1, len(parts) + 1):
        sys.modules.setdefault(".".join(parts[:end]), types.ModuleType(".".join(parts[:end])))
    for name, text in sources:
        full = package + "." + name
        module = sys.modules[full] = types.ModuleType(full)
        setattr(sys.modules[package], name, module)
        exec(compile(text, full, "exec"), module.__dict__)
module.main()
"""


def command(interpreter: str) -> list[str]:
    """The argv of the exec. `-I -S`: neither the environment nor the working directory nor site packages have a say."""
    return [interpreter, "-I", "-S", "-u", "-c", _BOOT]


def source() -> bytes:
    """What the command reads first: eight hex digits of length, then the program."""
    text = bundled((_PACKAGE, _MODULES)).encode()
    return b"%08x" % len(text) + text


def bundled(*rooms: tuple[str, Sequence[str]]) -> str:
    """Modules of ours as one Python text that runs the `main` of the last.

    Args:
        rooms: packages, each with those of its modules that are wanted. All come in the order of their imports.
    """
    sources = [(package, [(name, _text(package, name)) for name in modules]) for package, modules in rooms]
    return _LOAD.format(rooms=sources)


def _text(package: str, module: str) -> str:
    return (resources.files(package) / f"{module}.py").read_text("utf-8")
