"""Conformance of the file verbs: content, names, refusals, and compare-and-swap."""

from __future__ import annotations

import errno
import hashlib
import os

import anyio

from sandbox_agent.sandboxes.base import (
    MAX_FILE_BYTES,
    MIB,
    FileChangedError,
    FileContent,
    FileKind,
    FileTooLargeError,
    NotRegularFileError,
    Sandbox,
)
from sandbox_agent.testing.conformance_check import Need, check, folder, holds, make, raises, same

NAMES = (
    "new\nline",
    "-rf",
    "--help",
    " leading and trailing ",
    "'quotes\" $HOME `id`",
    "back\\slash",
    "日本語 é",
    "bad \udcff byte",
    "*?[x]",
    "~",
    "n" * 255,
)


@check()
async def content_comes_back_as_written(sandbox: Sandbox) -> None:
    """Text, every byte value, line ends, and nothing at all."""
    place = await folder(sandbox, "content")
    contents = (
        b"text\n",
        "é 日本\n".encode(),
        bytes(range(256)) * 40,
        b"a\r\nb\rc\n",
        b"no newline",
        b"",
        b"\xff\xfe\0",
    )
    for number, data in enumerate(contents):
        written = await sandbox.replace_file(f"{place}/{number}", data, expected_sha256=None)
        same((written.size_bytes, written.sha256, written.data), (len(data), _sha256(data), b""))
        read = await sandbox.read_file(f"{place}/{number}")
        same((read.data, read.size_bytes, read.sha256, read.offset), (data, len(data), _sha256(data), 0))


@check()
async def fifty_megabytes_come_back_as_written(sandbox: Sandbox) -> None:
    """Other back ends have broken at 28."""
    place = await folder(sandbox, "large")
    data = os.urandom(MIB) * 50
    await sandbox.replace_file(f"{place}/large", data, expected_sha256=None)
    read = await sandbox.read_file(f"{place}/large")
    same((len(read.data), read.data == data, read.sha256), (len(data), True, _sha256(data)))
    await make(sandbox, "rm", f"{place}/large")


@check()
async def a_piece_can_be_read(sandbox: Sandbox) -> None:
    """From an offset, so many bytes; hash and size are of the whole."""
    place = await folder(sandbox, "piece")
    data = bytes(range(256)) * 4096
    await sandbox.replace_file(f"{place}/file", data, expected_sha256=None)
    for offset, limit in ((0, 10), (1000, 70_000), (len(data) - 5, 100), (len(data) + 5, None), (5, None), (3, 0)):
        read = await sandbox.read_file(f"{place}/file", offset=offset, limit_bytes=limit)
        wanted = data[offset:] if limit is None else data[offset : offset + limit]
        same((read.data, read.offset, read.size_bytes, read.sha256), (wanted, offset, len(data), _sha256(data)))


@check()
async def names_may_be_anything(sandbox: Sandbox) -> None:
    """New lines, dashes, shell characters, invalid UTF-8, 255 bytes."""
    place = await folder(sandbox, "names")
    for number, name in enumerate(NAMES):
        path, data = f"{place}/{name}", b"%d" % number
        await sandbox.replace_file(path, data, expected_sha256=None)
        same((await sandbox.read_file(path)).data, data)
        same([(info.resolved, info.kind) for info in await sandbox.resolve([path])], [(path, FileKind.FILE)])
        same((await sandbox.exec(["cat", path])).stdout, data)


@check()
async def a_name_that_is_too_long_is_an_error(sandbox: Sandbox) -> None:
    """With the system's own number."""
    path = f"/workspace/{'n' * 256}"
    for work in (sandbox.read_file(path), sandbox.replace_file(path, b"", expected_sha256=None)):
        exc = await raises(OSError, work)
        same(getattr(exc, "errno", None), errno.ENAMETOOLONG)
    same((await sandbox.resolve([path]))[0].kind, FileKind.MISSING)


@check()
async def what_cannot_be_a_path_is_refused(sandbox: Sandbox) -> None:
    """Relative, or with a NUL."""
    for path in ("relative", "", "/a\0b"):
        await raises(ValueError, sandbox.read_file(path))
        await raises(ValueError, sandbox.replace_file(path, b"", expected_sha256=None))
        await raises(ValueError, sandbox.resolve([path]))


@check()
async def a_missing_file_is_an_error(sandbox: Sandbox) -> None:
    """To read, and to replace where one was expected; missing parents too."""
    place = await folder(sandbox, "missing")
    for path in (f"{place}/none", f"{place}/no/where"):
        await raises(FileNotFoundError, sandbox.read_file(path))
        await raises(FileNotFoundError, sandbox.replace_file(path, b"", expected_sha256=_sha256(b"")))


@check()
async def parents_are_made(sandbox: Sandbox) -> None:
    """As many as it takes."""
    place = await folder(sandbox, "parents")
    await sandbox.replace_file(f"{place}/a/b/c", b"deep", expected_sha256=None)
    same((await sandbox.read_file(f"{place}/a/b/c")).data, b"deep")


@check()
async def a_folder_is_no_file(sandbox: Sandbox) -> None:
    """And a file is no folder."""
    place = await folder(sandbox, "folder")
    await sandbox.replace_file(f"{place}/file", b"x", expected_sha256=None)
    await raises(IsADirectoryError, sandbox.read_file(place))
    await raises(IsADirectoryError, sandbox.replace_file(place, b"", expected_sha256=None))
    await raises(IsADirectoryError, sandbox.replace_file(f"{place}/new/", b"", expected_sha256=None))
    await raises(NotADirectoryError, sandbox.read_file(f"{place}/file/below"))
    await raises(NotADirectoryError, sandbox.replace_file(f"{place}/file/below", b"", expected_sha256=None))


@check()
async def permissions_are_kept_to(sandbox: Sandbox) -> None:
    """No reading without the right to, no writing of a read-only file or into a read-only folder."""
    place = await folder(sandbox, "permission")
    for name in ("unreadable", "read-only", "shut/inside"):
        await sandbox.replace_file(f"{place}/{name}", b"x", expected_sha256=None)
    await make(sandbox, "chmod", "000", f"{place}/unreadable")
    await make(sandbox, "chmod", "444", f"{place}/read-only")
    await make(sandbox, "chmod", "555", f"{place}/shut")
    await raises(PermissionError, sandbox.read_file(f"{place}/unreadable"))
    await raises(PermissionError, sandbox.replace_file(f"{place}/unreadable", b"", expected_sha256=_sha256(b"x")))
    await raises(PermissionError, sandbox.replace_file(f"{place}/read-only", b"", expected_sha256=_sha256(b"x")))
    await raises(PermissionError, sandbox.replace_file(f"{place}/shut/new", b"", expected_sha256=None))
    same((await sandbox.read_file(f"{place}/read-only")).data, b"x")
    await make(sandbox, "chmod", "755", f"{place}/shut")


@check()
async def a_fifo_is_refused_at_once(sandbox: Sandbox) -> None:
    """Nobody waits for its other end."""
    place = await folder(sandbox, "fifo")
    await make(sandbox, "mkfifo", f"{place}/fifo")
    with anyio.fail_after(10):
        await raises(NotRegularFileError, sandbox.read_file(f"{place}/fifo"))
        await raises(NotRegularFileError, sandbox.replace_file(f"{place}/fifo", b"", expected_sha256=None))
    same((await sandbox.resolve([f"{place}/fifo"]))[0].kind, FileKind.OTHER)


@check(Need.KERNEL)
async def a_device_is_refused(sandbox: Sandbox) -> None:
    """Also one that never ends."""
    for path in ("/dev/zero", "/dev/null", "/dev/tty"):
        await raises(NotRegularFileError, sandbox.read_file(path))


@check()
async def a_replace_compares_first(sandbox: Sandbox) -> None:
    """Other content than expected, or a file where none was expected: nothing is written."""
    place = await folder(sandbox, "swap")
    path = f"{place}/file"
    await sandbox.replace_file(path, b"one", expected_sha256=None)
    await raises(FileChangedError, sandbox.replace_file(path, b"two", expected_sha256=None))
    await raises(FileChangedError, sandbox.replace_file(path, b"two", expected_sha256=_sha256(b"other")))
    same((await sandbox.read_file(path)).data, b"one")
    await sandbox.replace_file(path, b"two", expected_sha256=_sha256(b"one"))
    same((await sandbox.read_file(path)).data, b"two")
    same((await sandbox.exec(["sh", "-c", "cat file"], cwd=place)).stdout, b"two")


@check(Need.ATOMIC)
async def of_several_replaces_at_once_one_wins(sandbox: Sandbox) -> None:
    """All expect the same content; small files and large ones."""
    place = await folder(sandbox, "race")
    for name, before in (("small", b"x"), ("large", bytes(MIB))):
        path = f"{place}/{name}"
        await sandbox.replace_file(path, before, expected_sha256=None)
        won: list[int] = []

        async def one(number: int, path: str = path, before: bytes = before, won: list[int] = won) -> None:
            try:
                await sandbox.replace_file(path, before + b"%d" % number, expected_sha256=_sha256(before))
            except FileChangedError:
                return
            won.append(number)

        async with anyio.create_task_group() as group:
            for number in range(8):
                group.start_soon(one, number)
        same(len(won), 1)
        same((await sandbox.read_file(path)).data, before + b"%d" % won[0])


@check()
async def what_is_too_large_is_refused(sandbox: Sandbox) -> None:
    """With both sizes in the text, and nothing written."""
    path = f"{await folder(sandbox, 'too-large')}/file"
    exc = await raises(FileTooLargeError, sandbox.replace_file(path, bytes(MAX_FILE_BYTES + 1), expected_sha256=None))
    holds(str(MAX_FILE_BYTES) in str(exc) and str(MAX_FILE_BYTES + 1) in str(exc), "both sizes are named")
    same((await sandbox.resolve([path]))[0].kind, FileKind.MISSING)


@check(Need.KERNEL)
async def of_a_file_that_is_too_large_a_piece_can_be_read(sandbox: Sandbox) -> None:
    """The whole is refused."""
    place = await folder(sandbox, "sparse")
    await make(sandbox, "truncate", "-s", str(MAX_FILE_BYTES + 10), f"{place}/file")
    await raises(FileTooLargeError, sandbox.read_file(f"{place}/file"))
    read: FileContent = await sandbox.read_file(f"{place}/file", offset=MAX_FILE_BYTES, limit_bytes=100)
    same((read.data, read.size_bytes), (bytes(10), MAX_FILE_BYTES + 10))
    await make(sandbox, "rm", f"{place}/file")


def _sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


CHECKS = (
    content_comes_back_as_written,
    fifty_megabytes_come_back_as_written,
    a_piece_can_be_read,
    names_may_be_anything,
    a_name_that_is_too_long_is_an_error,
    what_cannot_be_a_path_is_refused,
    a_missing_file_is_an_error,
    parents_are_made,
    a_folder_is_no_file,
    permissions_are_kept_to,
    a_fifo_is_refused_at_once,
    a_device_is_refused,
    a_replace_compares_first,
    of_several_replaces_at_once_one_wins,
    what_is_too_large_is_refused,
    of_a_file_that_is_too_large_a_piece_can_be_read,
)
