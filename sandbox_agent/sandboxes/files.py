"""The file verbs over nothing but `exec`: a shell and coreutils in the image, so every back end gets them free.

Slower than the runner's and less strict about races (a path is looked at and then opened by name), never less strict
about results: the hash is taken of the very bytes that are returned.
"""

from __future__ import annotations

import errno
import hashlib
import os
from collections.abc import Sequence
from typing import Protocol

from sandbox_agent.sandboxes.arguments import check_path
from sandbox_agent.sandboxes.base import (
    MAX_FILE_BYTES,
    ExecResult,
    FileChangedError,
    FileContent,
    FileKind,
    FileTooLargeError,
    NotRegularFileError,
    PathChangedError,
    PathInfo,
)

DEADLINE_S = 60.0
_NOTE_BYTES = 64 * 1024
_SYSTEM, _DIRECTORY, _OTHER, _MOVED, _CHANGED, _MISSING = 30, 31, 32, 33, 34, 35
_ERRNO_BY_TEXT = {os.strerror(number): number for number in errno.errorcode}
_KINDS = {b"regular file": FileKind.FILE, b"regular empty file": FileKind.FILE, b"directory": FileKind.DIRECTORY}


class Exec(Protocol):
    """`Sandbox.exec`, as far as it is used here."""

    async def __call__(
        self, argv: Sequence[str], *, stdin: bytes = ..., timeout_s: float | None = ..., max_output_bytes: int = ...
    ) -> ExecResult: ...


_RESOLVE = """
export LC_ALL=C
for path; do
    stat -L -c '%F|%a|%s|%.9Y' -- "$path" 2>/dev/null || echo
    realpath -m -z -- "$path" 2>/dev/null || printf '%s\\0' "$path"
done
"""

_CHECK = """
export LC_ALL=C
path=$1 resolved=$2
moved() { [ -n "$resolved" ] && [ "$(realpath -m -z -- "$path" | tr '\\0' '/')" != "$resolved/" ]; }
regular() {
    case $(stat -L -c %F -- "$path") in
        'regular file'|'regular empty file') ;;
        directory) exit 31 ;;
        *) exit 32 ;;
    esac
}
"""

_READ = (
    _CHECK
    + """
stat -L -- "$path" >/dev/null || exit 30
if moved; then exit 33; fi
regular
[ -r "$path" ] || { echo ": Permission denied" >&2; exit 30; }
stat -L -c '%a %s' -- "$path" || exit 30
if [ "$3" = whole ]; then cat < "$path"; exit; fi
sha256sum < "$path" | cut -c1-64
tail -c +"$4" < "$path" | head -c "$5"
"""
)

_REPLACE = (
    _CHECK
    + """
expected=$3 draft=
fail() { [ -z "$draft" ] || rm -f -- "$draft"; exit "$1"; }
if moved; then exit 33; fi
case $path in */) [ -e "$path" ] && { regular; exit 30; }; exit 31 ;; esac
real=$(realpath -m -z -- "$path" | tr '\\0' '/') real=${real%/}
folder=${real%/*}/
if stat -L -- "$path" >/dev/null 2>&1; then
    regular
    [ -r "$path" ] || { echo ": Permission denied" >&2; exit 30; }
    [ "$(sha256sum < "$path" | cut -c1-64)" = "$expected" ] || exit 34
    [ -w "$path" ] || { echo ": Permission denied" >&2; exit 30; }
    mode=$(stat -L -c %a -- "$path") mode=${mode#"${mode%???}"}
    links=$(stat -L -c %h -- "$path")
else
    why=$(stat -L -- "$path" 2>&1) || case $why in
        *'No such file or directory') ;;
        *) echo "$why" >&2; exit 30 ;;
    esac
    [ -z "$expected" ] || exit 35
    mode=644 links=0
    mkdir -p -- "$folder" || exit 30
fi
draft=$folder.sandbox-agent-$$.draft
[ "$links" -le 1 ] || draft=/tmp/.sandbox-agent-$$.draft
(umask 077; set -C; cat > "$draft") || fail 30
chmod "$mode" "$draft" || fail 30
if [ "$links" -gt 1 ]; then cat < "$draft" > "$real" || fail 30; rm -f -- "$draft"
elif [ "$links" = 0 ]; then ln -T -- "$draft" "$real" || fail 34; rm -f -- "$draft"
else mv -fT -- "$draft" "$real" || fail 30
fi
echo "$mode"
"""
)


async def resolve(exec_: Exec, paths: Sequence[str]) -> list[PathInfo]:
    """See `Sandbox.resolve`."""
    for path in paths:
        check_path(path)
    result = await exec_(["sh", "-c", _RESOLVE, "sh", *paths], timeout_s=DEADLINE_S)
    records = result.stdout.split(b"\0")[:-1]
    if len(records) != len(paths):
        raise _unexpected(result, paths[0])
    return [_path_info(path, record) for path, record in zip(paths, records, strict=True)]


async def read_file(
    exec_: Exec, path: str, *, offset: int = 0, limit_bytes: int | None = None, resolved: str | None = None
) -> FileContent:
    """See `Sandbox.read_file`."""
    check_path(path)
    argv = ["sh", "-c", _READ, "sh", path, resolved or "", "whole"]
    result = await exec_(argv, timeout_s=DEADLINE_S, max_output_bytes=MAX_FILE_BYTES + _NOTE_BYTES)
    head, _, data = _succeeded(result, path).partition(b"\n")
    mode, size = _numbers(head, path)
    if result.truncated or size > MAX_FILE_BYTES:
        return await _read_part(exec_, path, offset, limit_bytes, resolved)
    piece = data[offset:] if limit_bytes is None else data[offset : offset + limit_bytes]
    return FileContent(path, piece, len(data), hashlib.sha256(data).hexdigest(), mode, offset)


async def replace_file(
    exec_: Exec, path: str, data: bytes, *, expected_sha256: str | None, resolved: str | None = None
) -> FileContent:
    """See `Sandbox.replace_file`."""
    check_path(path)
    if len(data) > MAX_FILE_BYTES:
        raise FileTooLargeError(errno.EFBIG, f"{len(data)} bytes, at most {MAX_FILE_BYTES} are written", path)
    argv = ["sh", "-c", _REPLACE, "sh", path, resolved or "", expected_sha256 or ""]
    result = await exec_(argv, stdin=data, timeout_s=DEADLINE_S, max_output_bytes=_NOTE_BYTES)
    mode = int(_succeeded(result, path).strip() or b"0", 8)
    return FileContent(path, b"", len(data), hashlib.sha256(data).hexdigest(), mode)


async def _read_part(exec_: Exec, path: str, offset: int, limit_bytes: int | None, resolved: str | None) -> FileContent:
    """A piece of a file too large to be fetched whole; here the hash is the sandbox's own."""
    most = MAX_FILE_BYTES + 1 if limit_bytes is None else min(limit_bytes, MAX_FILE_BYTES + 1)
    argv = ["sh", "-c", _READ, "sh", path, resolved or "", "part", str(offset + 1), str(most)]
    result = await exec_(argv, timeout_s=DEADLINE_S, max_output_bytes=MAX_FILE_BYTES + _NOTE_BYTES)
    head, _, rest = _succeeded(result, path).partition(b"\n")
    digest, _, data = rest.partition(b"\n")
    mode, size = _numbers(head, path)
    if len(data) > MAX_FILE_BYTES:
        text = f"{size - offset} bytes would be read, at most {MAX_FILE_BYTES} are"
        raise FileTooLargeError(errno.EFBIG, text, path)
    return FileContent(path, data, size, digest.decode("ascii", "replace"), mode, offset)


def _path_info(path: str, record: bytes) -> PathInfo:
    about, _, resolved = record.partition(b"\n")
    place = resolved.decode("utf-8", "surrogateescape")
    fields = about.split(b"|")
    if len(fields) != 4:
        return PathInfo(path, place, FileKind.MISSING)
    kind = _KINDS.get(fields[0], FileKind.OTHER)
    seconds, _, nanoseconds = fields[3].partition(b".")
    mtime_ns = int(seconds) * 10**9 + int(nanoseconds or b"0")
    return PathInfo(path, place, kind, int(fields[2]), int(fields[1], 8), mtime_ns)


def _succeeded(result: ExecResult, path: str) -> bytes:
    """Its output, or the error that its exit code stands for."""
    texts = {
        _DIRECTORY: IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), path),
        _OTHER: NotRegularFileError(errno.EINVAL, "it is a FIFO, socket or device, not a regular file", path),
        _MOVED: PathChangedError(errno.ESTALE, "it leads elsewhere now", path),
        _CHANGED: FileChangedError(errno.ESTALE, "its content is not the expected one", path),
        _MISSING: FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path),
    }
    if result.exit_code == 0:
        return result.stdout
    raise texts.get(result.exit_code) or _unexpected(result, path)


def _unexpected(result: ExecResult, path: str) -> OSError:
    """What the system said, by the text that coreutils end their messages with."""
    text = result.stderr.decode("utf-8", "replace").strip().splitlines()
    last = text[-1].rpartition(": ")[2] if text else f"ended with exit code {result.exit_code}"
    return OSError(_ERRNO_BY_TEXT.get(last, errno.EIO), last, path)


def _numbers(head: bytes, path: str) -> tuple[int, int]:
    fields = head.split()
    if len(fields) != 2 or not all(field.isdigit() for field in fields):
        raise OSError(errno.EIO, "the sandbox's stat gave no answer", path)
    return int(fields[0], 8), int(fields[1])
