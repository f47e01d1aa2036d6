"""Fills the toolbox volume from our own image: the program that `toolbox` runs in a container of it.

The programs must run in an image with another C library, or with none. So they come with all libraries that they need
and with their own loader, which looks for libraries in the toolbox alone: the names of the usual places are overwritten
in it, and in each program the name of the loader, all by text of the same length. Imports nothing of ours.

The one locale that a sandbox sets, C.UTF-8, comes too, for the C library of these programs alone.
"""

from __future__ import annotations

import os
import re
import shutil
import struct
import subprocess
import sys
from pathlib import Path

PROGRAMS = (
    "bash", "rg", "python3", "basename", "cat", "chmod", "cp", "cut", "date", "dirname", "env", "find", "grep",
    "head", "id", "ls", "ln", "mkdir", "mktemp", "mv", "readlink", "realpath", "rm", "rmdir", "sed", "sleep", "sort",
    "stat", "tail", "tee", "timeout", "touch", "tr", "true", "uname", "uniq", "wc", "xargs",
)  # fmt: skip
"""What the tools call, and the few that hardly a command does without."""

LINKS = {"sh": "bash"}
PYTHON = Path(f"/usr/lib/python{sys.version_info[0]}.{sys.version_info[1]}")
LOCALES = Path("/usr/lib/locale")
C_LIBRARY = ("libc.so.6",)
UNREADABLE = "python3"
"""Mode 0711: no process of the same uid can look into one that was started from it."""

_PT_INTERP = 3
_LIBRARY = re.compile(r"^\s*(?:\S+ => )?(/\S+) \(0x", re.MULTILINE)
_NOWHERE = re.compile(rb"/etc/ld\.so\.(?:cache|preload)(?=\0)")
_PLACES = re.compile(rb"(?<=\0)(?:/usr)?/lib/[a-z0-9_]+-linux-gnu[a-z0-9_]*/(?=\0)")


def loader_of(program: bytes) -> tuple[int, int]:
    """Where an ELF program names its loader: offset and size, the NUL included."""
    (start,) = struct.unpack_from("<Q", program, 32)
    size, number = struct.unpack_from("<HH", program, 54)
    for header in range(start, start + size * number, size):
        if struct.unpack_from("<I", program, header)[0] == _PT_INTERP:
            return struct.unpack_from("<Q", program, header + 8)[0], struct.unpack_from("<Q", program, header + 32)[0]
    raise ValueError("a program without a loader")


def with_loader(program: bytes, loader: str) -> bytes:
    """The program with another loader."""
    offset, size = loader_of(program)
    if len(loader) >= size:
        raise ValueError(f"{loader}: longer than the name it is to replace")
    return program[:offset] + loader.encode().ljust(size, b"\0") + program[offset + size :]


def confined(loader: bytes, place: str) -> bytes:
    """The loader, looking for libraries in one place and reading nothing in /etc."""
    if not _PLACES.search(loader) or not _NOWHERE.search(loader):
        raise ValueError("this loader names no places that are known here")

    def here(match: re.Match[bytes]) -> bytes:
        return place.encode().ljust(len(match[0]), b"/")

    def nowhere(match: re.Match[bytes]) -> bytes:
        return f"{place}/-".encode().ljust(len(match[0]), b"-")[: len(match[0])]

    return _NOWHERE.sub(nowhere, _PLACES.sub(here, loader))


def libraries_of(files: list[str]) -> set[str]:
    """All that the loader would load for these."""
    found: set[str] = set()
    for file in files:
        done = subprocess.run(["ldd", file], capture_output=True, text=True, check=False)
        found.update(_LIBRARY.findall(done.stdout))
    return found


def put(target: Path, data: bytes, mode: int) -> None:
    """Write a file whole or not at all: somebody may be using the one that is there."""
    part = target.with_name(f"{target.name}.{os.getpid()}.part")
    part.write_bytes(data)
    part.chmod(mode)
    part.replace(target)


def with_locales(library: bytes, place: Path) -> bytes:
    """The C library, with its locales in the toolbox."""
    usual = str(LOCALES).encode()
    here = f"{place}/l".encode().ljust(len(usual), b"/")
    if usual not in library or len(here) > len(usual):
        raise ValueError("this C library names no place for locales that is known here")
    return library.replace(usual, here)


def copy(source: Path, target: Path) -> None:
    """Copy a folder whole or not at all."""
    if target.exists():
        return
    target.parent.mkdir(exist_ok=True)
    part = target.with_name(f"{target.name}.{os.getpid()}.part")
    shutil.copytree(source, part, symlinks=True, ignore=shutil.ignore_patterns("dist-packages"))
    try:
        part.rename(target)
    except OSError:
        shutil.rmtree(part)  # another one was quicker


def fill(place: Path) -> None:
    """Make the toolbox that will be mounted at `place`, in the volume that is mounted there now."""
    (place / "bin").mkdir(exist_ok=True)
    originals = {name: os.path.realpath(shutil.which(name) or name) for name in PROGRAMS}
    loader = Path(os.path.realpath(loader_named(Path(originals["bash"]).read_bytes())))
    modules = [str(path) for path in (PYTHON / "lib-dynload").glob("*.so")]
    for library in map(Path, sorted(libraries_of([*originals.values(), *modules]))):
        if os.path.realpath(library) != str(loader):
            data = library.read_bytes()
            put(place / library.name, with_locales(data, place) if library.name in C_LIBRARY else data, 0o755)
    copy(LOCALES / "C.utf8", place / "l" / "C.utf8")
    put(place / "ld.so", confined(loader.read_bytes(), str(place)), 0o755)
    for name, original in originals.items():
        program = with_loader(Path(original).read_bytes(), str(place / "ld.so"))
        put(place / "bin" / name, program, 0o711 if name == UNREADABLE else 0o755)
    for name, target in LINKS.items():
        if not os.path.lexists(place / "bin" / name):
            (place / "bin" / name).symlink_to(target)
    copy(PYTHON, place / "lib" / PYTHON.name)
    put(place / ".complete", b"", 0o644)


def loader_named(program: bytes) -> str:
    """The name of a program's loader."""
    offset, size = loader_of(program)
    return program[offset : offset + size - 1].decode()


if __name__ == "__main__":
    fill(Path(sys.argv[1]))
