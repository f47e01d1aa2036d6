"""The files that are read and searched: the same bytes on every machine, made once and kept."""

from __future__ import annotations

import os
import random
from collections.abc import Callable
from pathlib import Path

from bench.peers.protocol import BIG_BYTES, BIG_FILE, NEEDLES, SMALL_BYTES, SMALL_FILES

FOLDERS = 40
FILES_PER_FOLDER = 50
LINES_PER_FILE = 100
WORDS = ("alpha", "beta", "gamma", "delta", "omega", "return", "import", "value", "index", "buffer", "node", "edge")


def tree_file(number: int) -> str:
    """The path, below the tree, of one of its 2,000 files; numbers beyond that start again."""
    return f"d{number // FILES_PER_FOLDER % FOLDERS:02d}/f{number % FILES_PER_FOLDER:02d}.py"


def make_tree(root: Path) -> None:
    """2,000 files of about 4 KB in 40 folders. File N ends with `unique_N_`, the last ten also with one needle each."""
    draw = random.Random(7)
    common = [f"    {' '.join(draw.choices(WORDS, k=6))} # {line}\n" for line in range(10 * LINES_PER_FILE)]
    count = FOLDERS * FILES_PER_FOLDER
    for number in range(count):
        path = root / tree_file(number)
        path.parent.mkdir(parents=True, exist_ok=True)
        lines = draw.choices(common, k=LINES_PER_FILE)
        lines.append(f"unique_{number}_ = 1\n")
        if number >= count - len(NEEDLES):
            lines.append(f"{NEEDLES[number - count]} = 1\n")
        path.write_text("".join(lines))


def make_data(work: Path) -> Path:
    """The folder for the sandbox part: ten small files, a big one and the tree; readable by any uid."""

    def fill(folder: Path) -> None:
        draw = random.Random(11)
        for name, size in [*((name, SMALL_BYTES) for name in SMALL_FILES), (BIG_FILE, BIG_BYTES)]:
            text = "".join(f"{' '.join(draw.choices(WORDS, k=9))}\n" for _ in range(1 + SMALL_BYTES // 30))
            (folder / name).write_text((text * (1 + size // SMALL_BYTES))[:size])
        make_tree(folder / "tree")

    return _made_once(work / "data", fill)


def make_workspace(work: Path) -> Path:
    """The folder the agents of the loop part work on: the tree alone."""
    return _made_once(work / "workspace", make_tree)


def _made_once(folder: Path, fill: Callable[[Path], None]) -> Path:
    """Filled beside and renamed, so that a folder that exists is a whole one."""
    if not folder.exists():
        half = folder.with_name(f"{folder.name}.{os.getpid()}")
        half.mkdir(parents=True)
        half.chmod(0o755)
        fill(half)
        half.rename(folder)
    return folder
