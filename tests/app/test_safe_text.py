"""Nothing that a model writes may reach the terminal as anything but characters to read."""

from __future__ import annotations

import unicodedata

import pytest

from loops_tui.widgets.safe_text import LINE_LIMIT, safe, safe_block, safe_lines, safe_rich

HOSTILE = [
    "\x1b]52;c;QUJD\x07",
    "\x1b]0;title\x1b\\",
    "\x1b[2J\x1b[H",
    "\x1b[31mred\x1b[0m",
    "\x9b2J",
    "\x9d52;c;QUJD\x9c",
    "\x1bPq#0\x1b\\",
    "\x1b_apc\x1b\\",
    "\x1b",
    "\x1b[",
    "a\x08b\x07c\x00d\x7f",
    "\u202eevil\u202c",
    "\u2066x\u2069\u200e\u200f\u061c",
    "z\u200bw\u200cj\u200d\u2060\ufeff\u00ad",
    "line\u2028sep\u2029par\x85nel",
    "\udc80\ud800 lone surrogates",
    "\U000e0041\U000e0042 tags",
    "\ufff9\ufffa\ufffb",
    "\u3164\u115f\u1160\uffa0 blank letters",
    "\r\n carriage",
]


@pytest.mark.parametrize("text", HOSTILE)
def test_nothing_that_acts_on_a_terminal_passes(text: str) -> None:
    for shown in (safe(text), safe(text, 10), safe_rich(text).plain, safe_block(text).replace("\n", "")):
        for char in shown:
            assert unicodedata.category(char) not in {"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"}, (text, shown)
        shown.encode("utf-8")


def test_marks_say_what_was_there() -> None:
    assert safe("a\x1b[31mb") == "a␛[mb"
    assert safe("a\x1b]52;c;QUJD\x07b") == "a␛]52…b"
    assert safe("a\nb\tc") == "a␊b c"
    assert safe("\u202eabc") == "‹202E›abc"
    assert safe("\x9b2J") == "␛[J"


def test_ordinary_text_stays_as_it_is() -> None:
    for text in ("plain", "[brackets] [/b]", "größer 漢字 ✓ ─", "a\u0301ccent"):
        assert safe(text) == text


def test_presentation_selectors_go_without_a_mark() -> None:
    assert safe("❤\ufe0f") == "❤"


def test_a_line_is_clipped_before_it_costs_anything() -> None:
    long = "x" * 3_000_000
    assert len(safe(long)) == LINE_LIMIT
    assert safe(long).endswith("…")
    assert safe("abcdef", 4) == "abc…"
    assert safe("abcd", 4) == "abcd"
    assert len(safe("\u202e" * 50, 20)) == 20


def test_only_a_line_feed_ends_a_line() -> None:
    assert list(safe_lines("a\r\nb\u2028c\n")) == ["a", "b‹2028›c", ""]


def test_a_block_keeps_lines_and_tabs_and_is_not_clipped() -> None:
    text = "a\tb\r\n" + "\u202e" * 3 + "y" * (LINE_LIMIT * 2)
    block = safe_block(text)
    assert block.startswith("a\tb\n‹202E›‹202E›‹202E›y")
    assert block.endswith("y" * 100)
    assert "…" not in block
