"""Makes the pictures of the README: real runs in a terminal, docs/demo.svg and docs/attack.svg.

.venv/bin/python docs/picture.py [demo|attack]...
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
LINES = 200
PICTURES = {"demo": (96, ["demo"]), "attack": (142, ["demo", "--attack"])}
"""Name to the terminal's columns and the arguments of the program."""


def record(argv: list[str], columns: int) -> str:
    """What a program writes to a terminal of its own."""
    master, slave = pty.openpty()
    size = {"COLUMNS": str(columns), "LINES": str(LINES)}
    env = {**os.environ, **size, "TERM": "xterm-256color", "COLORTERM": "truecolor"}
    process = subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=slave, stderr=slave, env=env)
    os.close(slave)
    data = bytearray()
    while True:
        ready, _, _ = select.select([master], [], [], 300)
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


def draw(name: str) -> None:
    """Run the program and write docs/NAME.svg."""
    columns, arguments = PICTURES[name]
    text = record([str(Path(sys.executable).with_name("sandbox-agent")), *arguments], columns)
    command = " ".join(["sandbox-agent", *arguments])
    console = Console(record=True, width=columns, file=io.StringIO(), force_terminal=True, color_system="truecolor")
    console.print(Text(f"$ {command}", style="bold"))
    console.print(Text.from_ansi(text), soft_wrap=False)
    console.save_svg(str(HERE / f"{name}.svg"), title=command)


def main() -> None:
    for name in sys.argv[1:] or PICTURES:
        draw(name)


if __name__ == "__main__":
    main()
