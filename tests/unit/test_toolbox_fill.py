"""The programs of the toolbox are changed by text of the same length, or not at all."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest

from sandbox_agent.sandboxes.toolbox_fill import confined, libraries_of, loader_named, put, with_loader, with_locales

LOADER = b"/lib64/ld-linux-x86-64.so.2\0"


def program(loader: bytes) -> bytes:
    """As much of an ELF program as names its loader: two program headers, the second of which does."""
    headers = [struct.pack("<IIQQQQQQ", kind, 0, 200, 0, 0, len(loader), 0, 0) for kind in (1, 3)]
    head = b"\x7fELF".ljust(32, b"\0") + struct.pack("<Q", 64) + bytes(14) + struct.pack("<HH", 56, len(headers))
    return (head.ljust(64, b"\0") + b"".join(headers)).ljust(200, b"-") + loader + b"rest"


def test_a_program_gets_another_loader() -> None:
    """Nothing else of it moves; the new name ends where its own NUL is."""
    changed = with_loader(program(LOADER), "/x/ld.so")

    assert loader_named(program(LOADER)) == LOADER[:-1].decode()
    assert changed == program(LOADER).replace(LOADER, b"/x/ld.so".ljust(len(LOADER), b"\0"))


def test_a_program_without_a_loader_or_room_for_its_name_is_refused() -> None:
    """What cannot be changed is not written."""
    with pytest.raises(ValueError, match="longer than the name"):
        with_loader(program(b"/l\0"), "/x/ld.so")
    with pytest.raises(ValueError, match="without a loader"):
        loader_named(program(LOADER).replace(struct.pack("<II", 3, 0), struct.pack("<II", 4, 0)))


def test_the_loader_looks_in_one_place_alone() -> None:
    """Both spellings of every architecture, the cache and what is to be loaded first; other text stays."""
    places = b"\0/lib/aarch64-linux-gnu/\0/usr/lib/aarch64-linux-gnu/\0/lib/\0"
    before = places + b"/etc/ld.so.cache\0/etc/ld.so.preload\0 see /etc/ld.so.cache!"
    after = confined(before, "/x")

    assert len(after) == len(before)
    assert [one.rstrip(b"/-") for one in after.split(b"\0")] == [
        b"", b"/x", b"/x", b"/lib", b"/x", b"/x", b" see /etc/ld.so.cache!",
    ]  # fmt: skip
    with pytest.raises(ValueError, match="no places"):
        confined(b"musl", "/x")


def test_the_c_library_finds_its_locales_there() -> None:
    """By a name of the same length."""
    assert with_locales(b"\0/usr/lib/locale\0/usr/lib/locale/a\0", Path("/x")) == (
        b"\0/x/l///////////\0/x/l////////////a\0"
    )
    with pytest.raises(ValueError, match="no place for locales"):
        with_locales(b"\0/usr/lib/locale\0", Path("/a/far/too/long/name"))


def test_the_libraries_of_a_program_are_those_its_loader_takes() -> None:
    """Those of the Python that runs this: its C library at least; what is no program has none."""
    assert any(Path(path).name.startswith(("libc.so", "libc.musl")) for path in libraries_of(["/bin/sh"]))
    assert libraries_of([__file__]) == set()


def test_a_file_is_written_whole_or_not_at_all(tmp_path: Path) -> None:
    """Nothing is left beside it."""
    put(tmp_path / "f", b"1", 0o711)
    put(tmp_path / "f", b"2", 0o755)

    assert [(path.name, path.read_bytes(), path.stat().st_mode & 0o777) for path in tmp_path.iterdir()] == [
        ("f", b"2", 0o755)
    ]
