"""What the command line and the environment say about the app, and what is remembered of a person."""

from __future__ import annotations

from pathlib import Path

import pytest

from loops_tui.app import LoopsApp
from loops_tui.link import open_store
from loops_tui.options import BadOption, OnHangup, Options, options_from
from loops_tui.preferences import Preferences
from tests.app.conftest import FakeHosting, until_shown

UTF8 = {"LANG": "C.UTF-8"}


def test_as_they_come() -> None:
    assert options_from(UTF8) == Options()


@pytest.mark.parametrize(
    ("variable", "options"),
    [
        ({"LOOPS_TUI_READONLY": "1"}, Options(readonly=True)),
        ({"LOOPS_TUI_READONLY": "0"}, Options()),
        ({"LOOPS_TUI_ASCII": "yes"}, Options(ascii=True)),
        ({"LOOPS_TUI_ASCII": "0", "LANG": "C.latin1"}, Options()),
        ({"LOOPS_TUI_MOUSE": "off"}, Options(mouse=False)),
        ({"LOOPS_TUI_ON_HANGUP": "drain"}, Options(on_hangup=OnHangup.DRAIN)),
    ],
)
def test_the_environment(variable: dict[str, str], options: Options) -> None:
    assert options_from({**UTF8, **variable}) == options


def test_the_command_line_comes_first() -> None:
    environ = {**UTF8, "LOOPS_TUI_ON_HANGUP": "drain"}
    assert options_from(environ, on_hangup="hand-over", readonly=True, mouse=False) == Options(
        readonly=True, mouse=False
    )


def test_a_value_that_means_nothing_is_told() -> None:
    with pytest.raises(BadOption, match="LOOPS_TUI_ON_HANGUP is 'x'; it can be hand-over or drain"):
        options_from({**UTF8, "LOOPS_TUI_ON_HANGUP": "x"})


async def test_the_theme_is_remembered(
    project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("LOOPS_TUI_THEME", raising=False)
    file = tmp_path / "state" / "preferences.json"
    for before, after in (
        ("loops-night", "loops-day"),
        ("loops-day", "ansi-dark"),
        ("ansi-dark", "ansi-dark"),
    ):
        app = LoopsApp(project, lambda: open_store(project), FakeHosting, preferences=Preferences(file))
        async with app.run_test(size=(80, 24)) as pilot:
            await until_shown(pilot, app, "7 runs")
            assert app.theme == before
            app.theme = after
            await pilot.pause()


@pytest.mark.parametrize("text", ["", "[1]", '{"theme": 3, "x": [1]}', "\xff"])
def test_a_damaged_file_counts_as_empty(tmp_path: Path, text: str) -> None:
    file = tmp_path / "preferences.json"
    file.write_bytes(text.encode("latin-1"))
    kept = Preferences(file)
    assert kept.get("theme", "none") == "none"
    kept.set("smoothing", 5)
    assert Preferences(file).get("smoothing", 0) == 5


def test_a_file_that_cannot_be_written_harms_nobody(tmp_path: Path) -> None:
    (tmp_path / "state").write_text("a file where the directory should be")
    kept = Preferences(tmp_path / "state" / "preferences.json")
    kept.set("smoothing", 5)
    assert kept.get("smoothing", 0) == 5
