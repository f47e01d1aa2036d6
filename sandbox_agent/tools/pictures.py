"""What a file is by its first bytes, and pictures and PDF documents as blocks of the Messages API."""

from __future__ import annotations

import base64
import struct

from sandbox_agent.errors import ToolError
from sandbox_agent.types import JsonObject

MAX_IMAGE_BYTES = 5 * 1024 * 1024 * 3 // 4
"""The API takes 5 MiB of base64 a picture, which is a quarter less in bytes."""

MAX_IMAGE_SIDE = 8000
"""Pixels; the API refuses a picture that is wider or higher."""

MAX_PDF_BYTES = 20 * 1024 * 1024
"""The API takes 32 MB a request; base64 makes 20 MiB into 27, and the rest of the conversation must fit too."""

_KINDS: tuple[tuple[bytes, str], ...] = (
    (b"\x7fELF", "an ELF program or library"),
    (b"PK\x03\x04", "a ZIP archive (also .jar, .docx, .whl)"),
    (b"\x1f\x8b", "gzip data"),
    (b"BZh", "bzip2 data"),
    (b"\xfd7zXZ\x00", "xz data"),
    (b"\x28\xb5\x2f\xfd", "zstd data"),
    (b"SQLite format 3\x00", "an SQLite database"),
    (b"\xff\xfe", "UTF-16 text (iconv -f UTF-16 in Bash shows it)"),
    (b"\xfe\xff", "UTF-16 text (iconv -f UTF-16 in Bash shows it)"),
    (b"\xca\xfe\xba\xbe", "a Java class or Mach-O file"),
    (b"MZ", "a Windows program"),
    (b"OggS", "Ogg media"),
    (b"ID3", "MP3 audio"),
    (b"wOF", "a web font"),
)
_PROBE_BYTES = 8192


def image_type(data: bytes) -> str | None:
    """The media type of a picture the API can show, by magic bytes; names of files do not count."""
    if data.startswith(b"\x89PNG\r\n\x1a\n"):
        return "image/png"
    if data.startswith(b"\xff\xd8\xff"):
        return "image/jpeg"
    if data.startswith((b"GIF87a", b"GIF89a")):
        return "image/gif"
    if data.startswith(b"RIFF") and data[8:12] == b"WEBP":
        return "image/webp"
    return None


def is_pdf(data: bytes) -> bool:
    return data.startswith(b"%PDF-")


def binary_kind(data: bytes) -> str | None:
    """What a file that is not text may be; None for text. A NUL in the first 8 KiB decides, as it does for grep."""
    for magic, kind in _KINDS:
        if data.startswith(magic) and (b"\0" in data[:_PROBE_BYTES] or not _mostly_text(data[:_PROBE_BYTES])):
            return kind
    return "of an unknown type" if b"\0" in data[:_PROBE_BYTES] else None


def image_block(path: str, data: bytes, size_bytes: int) -> JsonObject:
    """The picture as an image block.

    Raises:
        ToolError: it is larger than the API takes, or its header is damaged: a request with such a picture is refused
            as a whole, again and again, as the picture stays in the conversation.
    """
    if size_bytes > MAX_IMAGE_BYTES:
        raise ToolError(
            f"{path} is a picture of {size_bytes:,} bytes; at most {MAX_IMAGE_BYTES:,} can be shown. Make it smaller."
        )
    size = image_size(data)
    if size is None or min(size) < 1:
        kind = image_type(data)
        raise ToolError(f"{path} is a binary file ({size_bytes:,} bytes): {kind} by its first bytes, but damaged.")
    if max(size) > MAX_IMAGE_SIDE:
        raise ToolError(
            f"{path} is a picture of {size[0]} x {size[1]} pixels; at most {MAX_IMAGE_SIDE} a side can be shown."
        )
    return _block("image", image_type(data) or "image/png", data)


def pdf_block(path: str, data: bytes, size_bytes: int) -> JsonObject:
    """The document as a document block.

    Raises:
        ToolError: it is larger than the API takes.
    """
    if size_bytes > MAX_PDF_BYTES:
        raise ToolError(
            f"{path} is a PDF of {size_bytes:,} bytes; at most {MAX_PDF_BYTES:,} can be shown. Ask for pages of it."
        )
    return _block("document", "application/pdf", data)


def image_size(data: bytes) -> tuple[int, int] | None:
    """Width and height from the header, None where it does not say."""
    kind = image_type(data)
    try:
        if kind == "image/png":
            return struct.unpack(">II", data[16:24])
        if kind == "image/gif":
            return struct.unpack("<HH", data[6:10])
        if kind == "image/webp":
            return _webp_size(data)
        return _jpeg_size(data) if kind == "image/jpeg" else None
    except (struct.error, IndexError):
        return None


def _webp_size(data: bytes) -> tuple[int, int] | None:
    chunk = data[12:16]
    if chunk == b"VP8X":
        return int.from_bytes(data[24:27], "little") + 1, int.from_bytes(data[27:30], "little") + 1
    if chunk == b"VP8 ":
        width, height = struct.unpack("<HH", data[26:30])
        return width & 0x3FFF, height & 0x3FFF
    if chunk == b"VP8L":
        bits = int.from_bytes(data[21:25], "little")
        return (bits & 0x3FFF) + 1, (bits >> 14 & 0x3FFF) + 1
    return None


def _jpeg_size(data: bytes) -> tuple[int, int] | None:
    """From the first frame header: markers C0-CF but C4 (tables), C8 (reserved) and CC (coding)."""
    position = 2
    while data[position] == 0xFF:
        marker = data[position + 1]
        if 0xC0 <= marker <= 0xCF and marker not in (0xC4, 0xC8, 0xCC):
            height, width = struct.unpack(">HH", data[position + 5 : position + 9])
            return width, height
        position += 2 + struct.unpack(">H", data[position + 2 : position + 4])[0]
    return None


def _mostly_text(data: bytes) -> bool:
    try:
        data.decode("utf-8")
    except UnicodeDecodeError as exc:
        return exc.start >= len(data) - 3 and exc.start > 0
    return True


def _block(kind: str, media_type: str, data: bytes) -> JsonObject:
    encoded = base64.standard_b64encode(data).decode("ascii")
    return {"type": kind, "source": {"type": "base64", "media_type": media_type, "data": encoded}}
