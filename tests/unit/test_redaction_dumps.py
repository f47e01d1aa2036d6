"""Secrets are found where a program writes bytes out one by one, in rows or in a line."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sandbox_agent.events.redaction import CHUNK_CHARS, Redactor, Secret

_MARK = "[masked: .env NAME]"
_VALUES = st.text(st.characters(min_codepoint=33, max_codepoint=126), min_size=8, max_size=90)
_AROUND = st.binary(max_size=70)


def _rows(raw: bytes, size: int) -> list[tuple[int, bytes]]:
    return [(at, raw[at : at + size]) for at in range(0, len(raw), size)]


def _shown(row: bytes) -> str:
    return "".join(chr(byte) if 32 <= byte < 127 else "." for byte in row)


def _words(row: bytes, *, turned: bool = False) -> str:
    pairs = [row[at : at + 2] for at in range(0, len(row), 2)]
    return " ".join((pair[::-1] if turned else pair).hex() for pair in pairs)


def _hexdump(at: int, row: bytes) -> str:
    digits = row[:8].hex(" ") + "  " + row[8:].hex(" ")
    return f"{at:08x}  {digits:<48}  |{_shown(row)}|"


DUMPS: dict[str, Callable[[bytes], str]] = {
    "od -An -tx1": lambda raw: "".join(f" {row.hex(' ')}\n" for _, row in _rows(raw, 16)),
    "od -tx1": lambda raw: "".join(f"{at:07o} {row.hex(' ')}\n" for at, row in _rows(raw, 16)),
    "od -x": lambda raw: "".join(f"{at:07o} {_words(row, turned=True)}\n" for at, row in _rows(raw, 16)),
    "xxd": lambda raw: "".join(f"{at:08x}: {_words(row):<40} {_shown(row)}\n" for at, row in _rows(raw, 16)),
    "xxd -c 8": lambda raw: "".join(f"{at:08x}: {_words(row):<20} {_shown(row)}\n" for at, row in _rows(raw, 8)),
    "hexdump -C": lambda raw: "".join(f"{_hexdump(at, row)}\n" for at, row in _rows(raw, 16)),
    "blanks": lambda raw: raw.hex(" "),
    "BLANKS": lambda raw: raw.hex(" ").upper(),
    "colons": lambda raw: f"key={raw.hex(':')};",
    "backslashes": lambda raw: "".join(f"\\x{byte:02x}" for byte in raw),
    "units": lambda raw: "".join(f"\\u{byte:04X}" for byte in raw),
    "a list": lambda raw: "[" + ", ".join(f"0x{byte:02x}" for byte in raw) + "]",
    "quoted-printable": lambda raw: "".join(f"={byte:02X}" for byte in raw),
}


@pytest.mark.parametrize("name", DUMPS)
@settings(max_examples=40, deadline=None)
@given(_VALUES, _AROUND, _AROUND)
def test_no_dump_of_a_value_comes_through(name: str, value: str, before: bytes, after: bytes) -> None:
    """Wherever its rows begin; line ends stay."""
    before = before[: len(before) & ~1] if name in ("od -x", "xxd", "xxd -c 8") else before
    text = f"a\n{DUMPS[name](before + value.encode() + after)}\nb"

    clean = Redactor([Secret(".env NAME", value)]).text(text)

    assert _MARK in clean
    assert value.encode().hex() not in _digits(clean)
    assert clean.count("\n") == text.count("\n")


@pytest.mark.parametrize("name", ["xxd", "hexdump -C"])
def test_the_characters_beside_a_row_go_with_it(name: str) -> None:
    """They show the same bytes; other rows stay as they are."""
    value = "correct-Horse/7+battery"
    clean = Redactor([Secret(".env NAME", value)]).text(DUMPS[name](b"0123456789" + value.encode() + b"z" * 40))

    assert "correct" not in clean
    assert "battery" not in clean
    assert clean.count("zzzzzzzzzzzzzzzz") >= 1


def test_a_long_value_is_found_in_a_long_text() -> None:
    """Also where the parts meet that a text is looked at in."""
    value = "".join(chr(33 + at % 90) for at in range(3 * CHUNK_CHARS))
    redactor = Redactor([Secret(".env NAME", value)])
    for blanks in (31_000, 32_700, 36_000, 65_500):
        text = "00 " * (blanks // 3) + value.encode().hex(" ") + " 00" * 9

        assert _MARK in redactor.text(text), blanks


@given(st.binary(max_size=400))
def test_a_dump_of_other_bytes_is_left_alone(raw: bytes) -> None:
    """The very same text comes back."""
    redactor = Redactor([Secret(".env NAME", "correct-Horse/7+battery")])
    for made in DUMPS.values():
        text = made(raw)

        assert redactor.text(text) is text


def _digits(text: str) -> str:
    return re.sub(r"\\x|\\u00|0x|[^0-9a-f]", "", text.lower())
