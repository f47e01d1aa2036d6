"""The sanitiser: nothing a terminal acts on, or does not show, gets through."""

from __future__ import annotations

import unicodedata

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from sandbox_agent.frontends.sanitise import exact, lookalikes, sanitise

ANY_TEXT = st.text(st.characters(exclude_categories=()))
HOSTILE = ("Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp", "Zs")


@given(ANY_TEXT)
@example("\x1b[2J\x9b1m\x07\r\u202e\u200b\u2028\ud800\ue000\u00a0\U000e0041\ufe0f")
def test_only_visible_characters_and_the_plain_space_come_out(text: str) -> None:
    """Every character of the output is printable; of the separators only U+0020 is left."""
    shown = sanitise(text)

    assert [c for c in shown if c != " " and unicodedata.category(c) in HOSTILE] == []


@given(ANY_TEXT)
def test_newlines_and_tabs_stay_only_where_asked(text: str) -> None:
    """With both kept, they are the only control characters left, as many as there were."""
    shown = sanitise(text, newlines=True, tabs=True)

    assert (shown.count("\n"), shown.count("\t")) == (text.count("\n"), text.count("\t"))
    assert [c for c in shown if c not in "\n\t " and unicodedata.category(c) in HOSTILE] == []


@given(st.text(st.characters(min_codepoint=32, max_codepoint=126)))
def test_plain_text_is_unchanged(text: str) -> None:
    """Printable ASCII comes out as it went in."""
    assert sanitise(text) == text


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("rm -rf /\rls", "rm -rf /\\rls"),
        ("a\nb\tc", "a\\nb\\tc"),
        ("\x1b]0;title\x07", "\\x1b]0;title\\x07"),
        ("user\u202etxt.exe", "user\\u202etxt.exe"),
        ("pass\u200bword", "pass\\u200bword"),
        ("tag\U000e0041", "tag\\U000e0041"),
        ("blank\u3164end", "blank\\u3164end"),
        ("wide\u3000space", "wide\\u3000space"),
        ("lone \udcff", "lone \\udcff"),
        ("höflich 漢字 ✅", "höflich 漢字 ✅"),
        ("warning \u26a0\ufe0f", "warning \u26a0\ufe0f"),
        ("a\ufe0f", "a\\ufe0f"),
    ],
)
def test_what_is_hidden_is_shown_as_an_escape(text: str, shown: str) -> None:
    """Each kind of hiding or obeyed character has its escape; letters of any language stay."""
    assert sanitise(text) == shown


@given(ANY_TEXT, ANY_TEXT)
@example("a\x1b", "a\\x1b")
@example("\\\r", "\\\\r")
@example("a\\", "a\\\\")
@example("\t\\t", "\\t\t")
def test_two_different_texts_never_look_the_same_when_shown_exactly(one: str, other: str) -> None:
    """What is shown together with whether anything was escaped determines the text."""
    shown_one, shown_other = exact(one), exact(other)

    alike = (shown_one.text, shown_one.escaped > 0) == (shown_other.text, shown_other.escaped > 0)
    assert alike == (one == other)


@given(ANY_TEXT)
def test_exact_text_is_as_safe_as_sanitised_text(text: str) -> None:
    """Showing exactly lets nothing through that the sanitiser would stop."""
    shown = exact(text).text

    assert sanitise(shown) == shown


def test_letters_of_another_alphabet_are_named() -> None:
    """A person is told of the Cyrillic letter in a program name."""
    assert lookalikes("c\u0430t file") == ("U+0430 CYRILLIC SMALL LETTER A",)
