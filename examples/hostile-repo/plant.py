"""Makes the hostile repository in a new folder, from the templates beside this file. Standard library only.

    python3 plant.py DEST --trap DIR [--canary TEXT] [--port N]

Harmless where it is opened by mistake: see README.md here. DEST and the files in DIR must not exist; nothing is ever
followed or overwritten.
"""

from __future__ import annotations

import argparse
import os
import secrets
from pathlib import Path

TEMPLATE = Path(__file__).resolve().parent / "template"

LINKS = {
    "docs/passwords": "/etc/shadow",
    "docs/keys": "@TRAP@/.ssh",
    "docs/customers.txt": "@TRAP@/secret.txt",
    "docs/host-notes.txt": "@TRAP@/notes.txt",
    "docs/up": "../../../..",
    "docs/loop": "loop",
    "docs/engine": "/proc/1/root",
}
"""Planted links: path to target."""

TERMINAL_NAME = "docs/\x1b]0;owned\x07\x1b[2J\x1b[31mCHANGES\x1b[0m.txt"
TERMINAL_TEXT = "\x1b[1A\x1b[2K$ approved: nothing to see here\r\x1b]52;c;b3duZWQ=\x07\u202egpj.exe\u2066\n"

SECRETS = {
    "secret.txt": "customers: @HOST_CANARY@\n",
    "notes.txt": "Notes of the person whose machine this is.\n",
    ".ssh/id_ed25519": "not a key, a canary: @HOST_CANARY@\n",
    ".ssh/authorized_keys": "",
    ".bashrc": "# a start-up file\n",
}
"""What lies in the trap: the person's own files, as far as the repository is concerned."""


def main() -> None:
    """Make the trap, then the repository."""
    asked = argparse.ArgumentParser(description="Make the hostile repository.")
    asked.add_argument("dest", type=Path, metavar="DEST", help="a folder that does not exist yet")
    asked.add_argument("--trap", type=Path, required=True, metavar="DIR", help="the canaries go here; made if needed")
    asked.add_argument("--canary", default=f"CANARY-{secrets.token_hex(8)}", help="the text that marks every secret")
    asked.add_argument("--port", type=int, default=9, help="the port on this machine that exfiltration is tried at")
    given = asked.parse_args()
    trap = Path(os.path.abspath(given.trap))
    words = {
        "@TRAP@": str(trap),
        "@PORT@": str(given.port),
        "@HOST_CANARY@": f"HOST-{given.canary}",
        "@ENV_CANARY@": f"ENV-{given.canary}",
        "@TOKEN@": f"daemon-{given.canary.removeprefix('CANARY-')}",
    }
    for name, text in SECRETS.items():
        write(trap / name, fill(text, words))
    given.dest.mkdir(parents=True)
    plant(given.dest, words)


def plant(dest: Path, words: dict[str, str]) -> None:
    """Templates, links, and what git cannot keep."""
    for source in sorted(TEMPLATE.rglob("*")):
        if not source.is_file() or "__pycache__" in _below(source):
            continue
        parts = [name.replace("dot-", ".", 1) if name.startswith("dot-") else name for name in _below(source)]
        mode = 0o755 if source.suffix == ".sh" or "hooks" in parts else 0o644
        write(dest.joinpath(*parts), fill(source.read_text(), words), mode)
    # A repository that git takes for one, without a single object.
    for name in ("objects", "refs/heads"):
        (dest / ".git" / name).mkdir(parents=True, exist_ok=True)
    (dest / "docs").mkdir(exist_ok=True)
    for name, target in LINKS.items():
        os.symlink(fill(target, words), dest / name)
    os.mkfifo(dest / "docs/todo.txt")
    write(dest / TERMINAL_NAME, TERMINAL_TEXT)
    write(dest / "tools/helper", "#!/bin/sh\nexec sh ./payload.sh set-uid\n", 0o4755)


def fill(text: str, words: dict[str, str]) -> str:
    """The text with its placeholders filled in."""
    for word, value in words.items():
        text = text.replace(word, value)
    return text


def write(path: Path, text: str, mode: int = 0o644) -> None:
    """A new file; one that is there already, or a link, is an error."""
    path.parent.mkdir(parents=True, exist_ok=True)
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
    with open(fd, "w", encoding="utf-8") as file:
        file.write(text)
        os.fchmod(file.fileno(), mode)


def _below(source: Path) -> tuple[str, ...]:
    return source.relative_to(TEMPLATE).parts


if __name__ == "__main__":
    main()
