"""Makes docs/demo.svg, the picture in the README: a real run of `sandbox-agent demo` in a terminal of 96 columns.

    .venv/bin/python docs/picture.py
"""

from __future__ import annotations

import io
import os
import pty
import select
import subprocess
import sys
from pathlib import Path

from rich.console import Console
from rich.text import Text

HERE = Path(__file__).resolve().parent
COLUMNS, LINES = 96, 200


def record(argv: list[str]) -> str:
    """What a program writes to a terminal of its own."""
    master, slave = pty.openpty()
    size = {"COLUMNS": str(COLUMNS), "LINES": str(LINES)}
    env = {**os.environ, **size, "TERM": "xterm-256color", "COLORTERM": "truecolor"}
    process = subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=slave, stderr=slave, env=env)
    os.close(slave)
    data = bytearray()
    while True:
        ready, _, _ = select.select([master], [], [], 120)
        if not ready:
            process.terminate()
            break
        try:
            piece = os.read(master, 65536)
        except OSError:  # the other end is closed
            break
        if not piece:
            break
        data += piece
    process.wait()
    # The paths of whoever makes the picture say nothing to whoever looks at it.
    return data.decode("utf-8", "replace").replace("\r\n", "\n").replace(f"{HERE.parent}/", "")


def main() -> None:
    text = record([str(Path(sys.executable).with_name("sandbox-agent")), "demo"])
    console = Console(record=True, width=COLUMNS, file=io.StringIO(), force_terminal=True, color_system="truecolor")
    console.print(Text("$ sandbox-agent demo", style="bold"))
    console.print(Text.from_ansi(text), soft_wrap=False)
    console.save_svg(str(HERE / "demo.svg"), title="sandbox-agent demo")


if __name__ == "__main__":
    main()
