"""Makes the pictures of the README and the docs: real runs in a terminal, docs/demo.svg and its like.

.venv/bin/python docs/picture.py [demo|attack|chat]...
"""

from __future__ import annotations

import fcntl
import io
import os
import pty
import re
import select
import shutil
import struct
import subprocess
import sys
import tempfile
import termios
from pathlib import Path

from rich.console import Console
from rich.text import Text

HERE = Path(__file__).resolve().parent
LINES = 200
PICTURES = {"demo": (96, ["demo"]), "attack": (142, ["demo", "--attack"]), "chat": (104, ["chat"])}
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


class Paper:
    """As much of a terminal as a chat needs: a cursor that moves, and lines that are erased and drawn anew."""

    _PIECES = re.compile(r"\x1b\[([0-9;?]*)([A-Za-z])|([\r\n\b])|([^\x1b\r\n\b])")

    def __init__(self) -> None:
        self._rows: list[dict[int, tuple[str, str]]] = [{}]
        self._x = self._y = 0
        self._style = "\x1b[0m"

    def write(self, text: str) -> None:
        for number, verb, control, char in self._PIECES.findall(text):
            if char:
                self._rows[self._y][self._x] = (self._style, char)
                self._x += 1
            elif control:
                self._control(control)
            else:
                self._escape(number, verb)

    def _control(self, control: str) -> None:
        if control == "\n":
            self._y += 1
            self._rows += [{}] * (self._y == len(self._rows))
        self._x = max(self._x - 1, 0) if control == "\b" else self._x if control == "\n" else 0

    def _escape(self, number: str, verb: str) -> None:
        count = int(number) if number.isdecimal() else 1
        match verb:
            case "A":
                self._y = max(self._y - count, 0)
            case "B":
                self._y = min(self._y + count, len(self._rows) - 1)
            case "C":
                self._x += count
            case "D":
                self._x = max(self._x - count, 0)
            case "K" | "J":
                row = self._rows[self._y]
                self._rows[self._y] = {x: cell for x, cell in row.items() if x < self._x}
                if verb == "J":
                    del self._rows[self._y + 1 :]
            case "m":
                self._style = f"\x1b[0m\x1b[{number}m" if number not in ("", "0") else "\x1b[0m"

    @property
    def text(self) -> str:
        """What is to be seen, with its colours."""
        return "\n".join(map(self._shown, self._rows))

    def _shown(self, row: dict[int, tuple[str, str]]) -> str:
        text, style = "", "\x1b[0m"
        for x in range(max(row, default=-1) + 1):
            wanted, char = row.get(x, ("\x1b[0m", " "))
            text += char if wanted == style else wanted + char
            style = wanted
        return text + "\x1b[0m"


def talk(argv: list[str], columns: int, keys: tuple[tuple[str, str], ...]) -> str:
    """What is on a terminal where these keys were typed, each once a text was to be seen."""
    master, slave = pty.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", LINES, columns, 0, 0))
    paper = Paper()
    with tempfile.TemporaryDirectory() as home:
        env = {**os.environ, "TERM": "xterm-256color", "COLORTERM": "truecolor", "XDG_STATE_HOME": home}
        process = subprocess.Popen(argv, stdin=slave, stdout=slave, stderr=slave, env=env, start_new_session=True)
        os.close(slave)
        for text, typed in keys:
            while text not in Text.from_ansi(paper.text).plain:
                try:
                    paper.write(os.read(master, 65536).decode("utf-8", "replace"))
                except OSError:
                    raise SystemExit(f"it ended before {text!r} was to be seen:\n{paper.text}") from None
            os.write(master, typed.encode())
        shown = paper.text
        process.terminate()
        while select.select([master], [], [], 30)[0]:
            try:
                os.read(master, 65536)
            except OSError:  # the other end is closed
                break
        process.wait()
    return shown.replace(f"{HERE.parent}/", "")


KEYS = (
    ("* Bash python3", "Keep the fix as small as you can.\r"),
    ("waits: Keep", ""),
    ("[y/s/a/n] >", ""),
)


def chat(columns: int) -> tuple[str, str]:
    """A chat on a copy of the demo's project: the command, and what is on the screen when it asks about its fix."""
    with tempfile.TemporaryDirectory() as folder:
        project = Path(folder) / "parcels"
        shutil.copytree(HERE.parent / "examples" / "demo-project", project)
        program = str(Path(sys.executable).with_name("sandbox-agent"))
        script = f"script:{HERE.parent / 'examples' / 'demo.yaml'}"
        allow = "Bash(python3 -m pytest:*)"
        argv = [program, "chat", "-w", str(project), "--model", script, "--allow", allow, "Why do tests fail here?"]
        text = talk(argv, columns, KEYS).replace(f"{folder}/", "")
    return f'sandbox-agent chat -w parcels --allow "{allow}" "Why do tests fail here?"', text


def draw(name: str) -> None:
    """Run the program and write docs/NAME.svg."""
    columns, arguments = PICTURES[name]
    if name == "chat":
        command, text = chat(columns)
    else:
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
