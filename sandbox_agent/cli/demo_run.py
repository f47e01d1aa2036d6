"""The demo itself: an ordinary run on a fresh copy of `examples/demo-project`, then what came of it."""

from __future__ import annotations

import re
import shutil
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from sandbox_agent.cli.execute import start
from sandbox_agent.config import RunConfig
from sandbox_agent.errors import ConfigError
from sandbox_agent.events import Event, ToolFinished
from sandbox_agent.frontends.outcome import plain_text
from sandbox_agent.frontends.printer import Printer, make_console
from sandbox_agent.types import Mode

TASK = "Some tests of this project fail. Find the cause, fix it, and run the tests again."
ALLOW = ("Bash(python3 -m pytest:*)",)
"""What the demo's agent may do besides reading and editing; nobody is asked in it."""

_TESTS = re.compile(r"\b\d+ (?:passed|failed)\b.*?(?= in [\d.]+s)")


class Tests:
    """Watches the run for what pytest said in the container."""

    def __init__(self) -> None:
        self.results: list[str] = []

    def __call__(self, event: Event) -> None:
        """Note the last count in the output of a Bash call."""
        if isinstance(event, ToolFinished) and event.tool == "Bash":
            self.results += _TESTS.findall(plain_text(event.content))[-1:]

    @property
    def green(self) -> bool:
        return bool(self.results) and "failed" not in self.results[-1]


def run_demo(*, keep: Path | None, model: str | None, verbose: bool) -> int:
    """Run the demo; 0 only if the tests passed in the container and the fix reached the folder.

    Raises:
        ConfigError: `keep` is in use already, or the examples are not installed.
    """
    examples = examples_dir()
    tests = Tests()
    with _project(examples / "demo-project", keep) as folder:
        before = _snapshot(folder)
        config = RunConfig(
            workspace=folder,
            model=model or f"script:{examples / 'demo.yaml'}",
            policy="default",
            mode=Mode.ACCEPT_EDITS,
            allow=ALLOW,
        )
        code = start(config, TASK, apply="always", verbose=verbose, watch=tests)
        changed = sorted(name for name, data in _snapshot(folder).items() if before.get(name) != data)
    printer = Printer(make_console(sys.stdout if sys.stdout.isatty() else sys.stderr))
    if tests.results:
        printer.line(f"Tests in the container: {' -> '.join(tests.results)}")
    if changed:
        where = str(keep) if keep else "the project (a temporary copy, removed now; --keep DIR leaves it)"
        printer.line(f"Changed in {where}: {', '.join(changed)}")
    if code == 0 and not (tests.green and changed):
        printer.line("The demo ended without a fix whose tests pass.", "bold red")
        return 1
    return code


def examples_dir() -> Path:
    """The folder with the examples: beside the package in a checkout, inside it where it is installed.

    Raises:
        ConfigError: neither is there.
    """
    package = Path(__file__).resolve().parent.parent
    for folder in (package / "_data" / "examples", package.parent / "examples"):
        if (folder / "demo.yaml").is_file() and (folder / "demo-project").is_dir():
            return folder
    raise ConfigError("the examples are not installed with this package; install it again from its wheel")


@contextmanager
def _project(source: Path, keep: Path | None) -> Iterator[Path]:
    """A fresh copy of the project, in a temporary folder that is removed afterwards, or in `keep`."""
    unwanted = shutil.ignore_patterns("__pycache__", ".pytest_cache", "*.pyc")
    if keep is not None:
        if keep.exists():
            raise ConfigError(f"--keep {keep}: is there already; name a folder that does not exist yet")
        shutil.copytree(source, keep, ignore=unwanted)
        yield keep
        return
    with tempfile.TemporaryDirectory(prefix="sandbox-agent-demo-") as parent:
        folder = Path(parent) / "demo-project"
        shutil.copytree(source, folder, ignore=unwanted)
        yield folder


def _snapshot(folder: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file() and not path.is_symlink() and path.suffix != ".pyc"
    }
