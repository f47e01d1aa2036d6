"""The runner's program as text, and the command that starts it in the container.

The source travels over the exec stream, so the container holds no file of ours and both sides are of one version.
"""

from __future__ import annotations

from collections.abc import Sequence
from importlib import resources

_PACKAGE = "sandbox_agent.sandboxes.runner"
_MODULES = ("wire", "kept", "processes", "spawn", "capture", "link", "supervisor", "files", "worker", "hand", "main")
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
package = {package!r}
parts = package.split(".")
for end in range(len(parts)):
    sys.modules[".".join(parts[:end + 1])] = types.ModuleType(".".join(parts[:end + 1]))
for name, text in {sources!r}:
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
    text = bundled(_PACKAGE, _MODULES).encode()
    return b"%08x" % len(text) + text


def bundled(package: str, modules: Sequence[str]) -> str:
    """Some modules of a package of ours as one Python text that runs the `main` of the last; they import each other."""
    folder = resources.files(package)
    sources = [(name, (folder / f"{name}.py").read_text("utf-8")) for name in modules]
    return _LOAD.format(package=package, sources=sources)
