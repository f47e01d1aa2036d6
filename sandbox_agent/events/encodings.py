"""The forms in which a secret is recognised: as it is, and in the encodings that programs print things in.

Base64 in all three alignments, so that it is found inside a longer text that was encoded; hex; percent-encoding; and
as JSON and shells write it.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from typing import NamedTuple
from urllib.parse import quote, quote_plus

MIN_FORM_CHARS = 8
"""Shorter ones occur by chance."""


class Form(NamedTuple):
    """`wraps`: programs that print it break it into lines of a fixed length."""

    text: str
    wraps: bool


def forms(value: str) -> Iterator[Form]:
    """Every form of a value once, the value itself first; shorter ones than `MIN_FORM_CHARS` are left out."""
    seen: set[str] = set()
    for form in _all(value):
        if len(form.text) >= MIN_FORM_CHARS and form.text not in seen:
            seen.add(form.text)
            yield form


def _all(value: str) -> Iterator[Form]:
    raw = value.encode("utf-8", "surrogateescape")
    yield Form(value, False)
    for ascii_only in (True, False):
        yield Form(json.dumps(value, ensure_ascii=ascii_only)[1:-1], False)
    for text in _base64(raw):
        yield Form(text, True)
        yield Form(text.replace("+", "-").replace("/", "_"), True)
    yield Form(raw.hex(), True)
    yield Form(raw.hex().upper(), True)
    for text in (quote(raw, safe=""), quote(raw), quote_plus(raw), "".join(f"%{byte:02X}" for byte in raw)):
        yield Form(text, False)
        yield Form(_lower_escapes(text), False)


def _base64(raw: bytes) -> Iterator[str]:
    """The characters that no neighbour of the bytes has a share in, for each place in a group of three."""
    for before in range(3):
        text = base64.b64encode(bytes(before) + raw).decode("ascii")
        first = (before * 8 + 5) // 6
        yield text[first : (before + len(raw)) * 8 // 6]


def _lower_escapes(text: str) -> str:
    head, *rest = text.split("%")
    return "%".join([head, *(part[:2].lower() + part[2:] for part in rest)])
