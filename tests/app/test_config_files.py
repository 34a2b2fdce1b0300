"""The Config screen and the file behind it: saved as it is, changed by others, gone, or not to be written."""

# ruff: noqa: ASYNC240  # a test may wait for the disk

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from loops_tui.screens.config_diff import DiffScreen
from loops_tui.screens.runs import RunsScreen
from loops_tui.widgets.confirm import Ask
from tests.app.conftest import SIZES, make_app, screen_text, until, until_shown, until_told
from tests.app.editing import edit, go, keys, said


@pytest.mark.parametrize("size", SIZES)
async def test_saving_writes_the_text_as_it_is(agents: Path, config: Path, size: tuple[int, int]) -> None:
    config.chmod(0o640)
    before = config.read_text()
    app = make_app(agents)
    async with app.run_test(size=size) as pilot:
        screen, editor = await edit(pilot, app)
        assert not screen.check_action("save", ())
        await pilot.press(*keys("# mine\n"))
        await until_shown(pilot, app, "● not saved")
        assert screen.check_action("save", ())
        await pilot.press("ctrl+s")
        await until_told(pilot, app, "agents/train_local.toml is saved")
        assert config.read_text() == "# mine\n" + before
        assert config.stat().st_mode & 0o777 == 0o640
        assert "not saved" not in screen_text(app)
        assert sorted(path.name for path in config.parent.iterdir() if path.name.startswith(".")) == []
        assert editor.text == "# mine\n" + before


async def test_a_link_s_target_is_saved_and_stays_linked(agents: Path, config: Path) -> None:
    link = agents / "a_link.toml"
    link.symlink_to("agents/train_local.toml")
    app = make_app(agents)
    async with app.run_test(size=(120, 40)) as pilot:
        await edit(pilot, app)
        await until_shown(pilot, app, "a_link.toml → agents")
        await pilot.press(*keys("# x\n"), "ctrl+s")
        await until_told(pilot, app, "a_link.toml is saved")
        assert link.is_symlink()
        assert config.read_text().startswith("# x\n")


async def test_what_cannot_be_saved_is_said_and_kept(agents: Path, config: Path) -> None:
    app = make_app(agents)
    async with app.run_test(size=(80, 24)) as pilot:
        screen, _ = await edit(pilot, app)
        await pilot.press(*keys("# x\n"))
        shutil.rmtree(config.parent)
        await pilot.press("ctrl+s")
        await until_told(pilot, app, "was not saved: the directory")
        assert screen.document is not None
        assert screen.document.modified
        await until(pilot, lambda: any((agents / ".loops" / "drafts").glob("*.json")), "the draft is kept")


@pytest.mark.parametrize("size", SIZES)
async def test_leaving_the_screen_keeps_the_text(agents: Path, config: Path, size: tuple[int, int]) -> None:
    before = config.read_text()
    app = make_app(agents)
    async with app.run_test(size=size) as pilot:
        screen, editor = await edit(pilot, app)
        await pilot.press(*keys("# x\n"), "escape")
        assert screen.files.has_focus
        await pilot.press("1")
        await until(pilot, lambda: isinstance(app.screen, RunsScreen), "1 goes to the runs")
        await pilot.press("2")
        await until(pilot, lambda: app.screen is screen, "2 comes back to the same screen")
        await until_shown(pilot, app, "● not saved")
        assert editor.text == "# x\n" + before
        await pilot.press("escape")
        await until(pilot, lambda: isinstance(app.screen, RunsScreen), "esc in the list goes back")


@pytest.mark.parametrize("size", SIZES)
async def test_a_file_that_changes_is_noticed(agents: Path, config: Path, size: tuple[int, int]) -> None:
    app = make_app(agents)
    async with app.run_test(size=size) as pilot:
        screen, editor = await edit(pilot, app)
        config.write_text("# theirs\n" + config.read_text())
        await until_told(pilot, app, "changed on the disk and was read again")
        assert editor.text.startswith("# theirs\n")
        await pilot.press(*keys("# mine\n"))
        await until_shown(pilot, app, "● not saved")
        config.write_text("# theirs again\n" + config.read_text())
        await until(pilot, lambda: "has changed on the disk" in said(screen, "banner"), "the banner says so")
        assert "# mine" in editor.text
        await pilot.press("ctrl+s")
        await until_shown(pilot, app, "Which text counts?")
        await pilot.press("v")
        await until(pilot, lambda: isinstance(app.screen, DiffScreen), "the difference")
        await until_shown(pilot, app, "- # theirs again", "+ # mine")
        await pilot.press("escape")
        await until(pilot, lambda: isinstance(app.screen, Ask), "and the question again")
        await pilot.press("escape", "ctrl+s")
        await until(pilot, lambda: isinstance(app.screen, Ask), "nothing was decided")
        assert config.read_text().startswith("# theirs again\n")
        await pilot.press("m")
        await until_told(pilot, app, "is saved")
        assert "# mine" in config.read_text()
        assert "theirs again" not in config.read_text()
        assert screen.document is not None
        assert screen.document.outside is None


async def test_theirs_can_be_taken(agents: Path, config: Path) -> None:
    app = make_app(agents)
    async with app.run_test(size=(80, 24)) as pilot:
        screen, editor = await edit(pilot, app)
        await pilot.press(*keys("# mine\n"))
        config.write_text("# theirs\n")
        await pilot.press("ctrl+s")
        await until_shown(pilot, app, "Which text counts?")
        await pilot.press("t")
        await until(pilot, lambda: editor.text == "# theirs\n", "theirs is in the editor")
        assert screen.document is not None
        assert not screen.document.modified
        await pilot.press("ctrl+z")
        await until(pilot, lambda: "# mine" in editor.text, "what was typed can still be had back")


async def test_a_file_that_is_gone_can_be_written_again(agents: Path, config: Path) -> None:
    text = config.read_text()
    app = make_app(agents)
    async with app.run_test(size=(120, 40)) as pilot:
        screen, _ = await edit(pilot, app)
        config.unlink()
        await until(pilot, lambda: "is gone from the disk" in said(screen, "banner"), "the banner says so")
        await pilot.press("ctrl+s")
        await until_told(pilot, app, "is saved")
        assert config.read_text() == text


@pytest.mark.parametrize(
    ("data", "said_of_it"),
    [
        (b'recipe = "\xff"\n', "is not UTF-8 text (line 1)"),
        (b"recipe = 1\n" + b"#" * 1_200_000, "1.2 MB: too much for a config"),
        (b"recipe = 1\r\na = 1\n", "mixes line endings"),
        (b'recipe = "a\xe2\x80\xa8b"\n', "separators that this editor would change"),
        (b'recipe = "' + b"x" * 20_000 + b'"\n', "a line of 20,011 characters"),
    ],
)
async def test_a_file_that_cannot_be_edited_says_why(
    empty_project: Path, data: bytes, said_of_it: str
) -> None:
    (empty_project / "odd.toml").write_bytes(data)
    app = make_app(empty_project)
    async with app.run_test(size=(120, 40)) as pilot:
        screen = await go(pilot, app)
        await until_told(pilot, app, said_of_it)
        assert screen.document is None
        assert (empty_project / "odd.toml").read_bytes() == data


async def test_a_link_that_leads_nowhere_and_a_directory_gone(empty_project: Path) -> None:
    (empty_project / "lost.toml").symlink_to("nowhere.toml")
    app = make_app(empty_project)
    async with app.run_test(size=(120, 40)) as pilot:
        screen = await go(pilot, app)
        await until_told(pilot, app, "lost.toml is a link to nowhere.toml, which is not there")
        shutil.rmtree(empty_project)
        await screen.scan()
        await until_shown(pilot, app, "cannot be read")
