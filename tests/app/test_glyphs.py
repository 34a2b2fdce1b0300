"""ASCII mode: cell for cell, and nothing but ASCII."""

from __future__ import annotations

from pathlib import Path

import pytest
from rich.cells import cell_len

import loops_tui
from loops_tui.app import LoopsApp
from loops_tui.glyphs import to_ascii, wants_ascii
from loops_tui.link import open_store
from loops_tui.options import Options
from loops_tui.widgets.spark import BLOCKS
from loops_tui.widgets.step_bar import SHADES, share_shade
from tests.app.conftest import FakeHosting, until_shown

EVERYTHING = "".join(
    chr(code) for code in range(0x20, 0x30000) if not 0xD800 <= code < 0xE000 and chr(code).isprintable()
)


def test_whatever_is_printable_becomes_ascii_of_its_own_width() -> None:
    for char in EVERYTHING:
        plain = to_ascii(char)
        assert plain.isascii(), char
        assert len(plain) == cell_len(char), char


def test_escape_sequences_pass() -> None:
    assert to_ascii("\x1b[38;2;1;2;3m│\x1b[0m\r\n") == "\x1b[38;2;1;2;3m|\x1b[0m\r\n"


def test_a_spark_still_rises() -> None:
    plain = to_ascii(BLOCKS)
    assert len(set(plain)) >= 6
    assert "?" not in plain


def test_a_plot_keeps_its_line() -> None:
    # Dots in a cell's upper half, in its lower one, in both.
    assert to_ascii("\u2809\u28c0\u28c9") == "'.:"


def test_letters_keep_their_bases() -> None:
    assert to_ascii("é ü Å") == "e u A"
    assert to_ascii("日本") == "????"


@pytest.mark.parametrize(
    ("environ", "wanted"),
    [
        ({"LANG": "en_US.UTF-8"}, False),
        ({"LANG": "de_DE.utf8"}, False),
        ({"LANG": "de_DE.ISO-8859-1"}, True),
        ({"LANG": "en_US.UTF-8", "LC_ALL": "ru_RU.KOI8-R"}, True),
        ({"LC_CTYPE": "C.UTF-8"}, False),
    ],
)
def test_the_locale_decides(environ: dict[str, str], wanted: bool) -> None:
    assert wants_ascii(environ) is wanted


def test_every_mark_of_the_application_itself_has_one() -> None:
    sources = [path for path in Path(loops_tui.__file__).parent.rglob("*.py") if path.name != "glyphs.py"]
    drawn = {char for path in sources for char in path.read_text(encoding="utf-8") if ord(char) > 0x7F}
    assert drawn > set("◐‖●│")
    assert {char for char in drawn if to_ascii(char) == "?"} <= {"ß"}  # in a comment


def test_the_shades_of_a_step_and_of_shares_stay_apart() -> None:
    for shades in ([char for char, _ in SHADES.values()], [share_shade(place)[0] for place in range(7)]):
        assert len({to_ascii(char) for char in shades}) == len(shades)


def test_an_open_directory_does_not_look_like_a_checked_config() -> None:
    assert len({to_ascii(char) for char in "▾▸✓"}) == 3


async def test_the_key_that_opens_is_named_where_its_sign_cannot_be_shown(project: Path) -> None:
    app = LoopsApp(project, lambda: open_store(project), FakeHosting, options=Options(ascii=True))
    async with app.run_test(size=(80, 24)) as pilot:
        await until_shown(pilot, app, "tool_agent", "enter Open")
        await pilot.press("question_mark")
        await until_shown(pilot, app, "  enter           Open this row")
