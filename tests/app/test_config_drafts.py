"""What was typed and not saved is not lost: not when leaving, not in a crash, not to another app."""

# ruff: noqa: ASYNC220, ASYNC240  # a test may wait for the disk and for a process

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from textual.pilot import Pilot

from engine.store.processes import process_started
from loops_tui.app import LoopsApp
from loops_tui.screens.config import ConfigScreen
from loops_tui.screens.config_drafts import Drafts, digest
from loops_tui.widgets.confirm import Ask
from tests.app.conftest import SIZES, FakeHosting, make_app, screen_text, until, until_shown, until_told
from tests.app.editing import edit, go, keys, said

GONE = 2**22 + 12345  # no process has this id: it is above what Linux gives out


def drafts_of(project: Path) -> list[dict]:
    return [json.loads(file.read_text()) for file in sorted((project / ".loops" / "drafts").glob("*.json"))]


def leave_draft(project: Path, path: Path, text: str, *, base: bytes | None = None, pid: int = GONE) -> Path:
    """A draft as another process would have left it."""
    directory = project / ".loops" / "drafts"
    directory.mkdir(parents=True, exist_ok=True)
    file = directory / f"{path.name}-{pid}.json"
    value = {
        "path": str(path), "text": text, "base": digest(path.read_bytes() if base is None else base), "at": 1_700_000_000.0,
        "pid": pid, "started": process_started(pid) or 5.0,
    }  # fmt: skip
    file.write_text(json.dumps(value))
    return file


async def test_a_draft_is_written_soon_and_gone_when_saved(agents: Path, config: Path) -> None:
    app = make_app(agents)
    async with app.run_test(size=(80, 24)) as pilot:
        await edit(pilot, app)
        await pilot.press(*keys("# x\n"))
        await until(pilot, lambda: len(drafts_of(agents)) == 1, "the draft is written")
        draft = drafts_of(agents)[0]
        assert draft["text"] == "# x\n" + config.read_text()
        assert draft["path"] == str(config)
        file = next((agents / ".loops" / "drafts").iterdir())
        assert file.stat().st_mode & 0o777 == 0o600
        assert file.parent.stat().st_mode & 0o777 == 0o700
        await pilot.press("ctrl+s")
        await until(pilot, lambda: drafts_of(agents) == [], "saved, there is none")


async def test_a_text_that_was_taken_back_leaves_no_draft(agents: Path, config: Path) -> None:
    app = make_app(agents)
    async with app.run_test(size=(80, 24)) as pilot:
        await edit(pilot, app)
        await pilot.press(*keys("# x"))
        await until(pilot, lambda: len(drafts_of(agents)) == 1, "the draft is written")
        await pilot.press(*["backspace"] * 3)
        await until(pilot, lambda: drafts_of(agents) == [], "there is nothing to keep any more")
        await pilot.press(*keys("y"), "backspace")
        app.exit(0)  # before another draft is due
    assert drafts_of(agents) == []


@pytest.mark.parametrize("size", SIZES)
async def test_what_a_dead_app_left_is_restored(agents: Path, config: Path, size: tuple[int, int]) -> None:
    leave_draft(agents, config, "# typed before\n")
    app = make_app(agents)
    async with app.run_test(size=size) as pilot:
        await until_told(pilot, app, "train_local.toml: what was typed and not saved is kept; 2 restores it")
        screen = await go(pilot, app)
        await until(pilot, lambda: screen.editor is not None, "it opens by itself")
        await until_shown(pilot, app, "● not saved", "Restored what was typed and not saved")
        assert screen.editor is not None
        assert screen.editor.text == "# typed before\n"
        assert [draft["pid"] for draft in drafts_of(agents)] == [os.getpid()]
        await pilot.press("f9")
        await until_shown(pilot, app, "Drop the changes to train_local.toml?")
        assert isinstance(app.screen, Ask)
        await pilot.press("y")
        await until(pilot, lambda: "not saved" not in screen_text(app), "dropped")
        assert screen.editor.text == config.read_text()
        assert drafts_of(agents) == []


async def test_a_draft_of_another_file_than_there_is_must_be_decided(agents: Path, config: Path) -> None:
    leave_draft(agents, config, "# typed before\n", base=b"what the file held then")
    app = make_app(agents)
    async with app.run_test(size=(120, 40)) as pilot:
        screen = await go(pilot, app)
        await until(pilot, lambda: "has changed on the disk" in said(screen, "banner"), "the banner says so")
        before = config.read_text()
        await pilot.press("ctrl+s")
        await until_shown(pilot, app, "Which text counts?")
        assert config.read_text() == before
        await pilot.press("m")
        await until(pilot, lambda: config.read_text() == "# typed before\n", "mine is saved")


async def test_a_draft_whose_file_is_gone_is_restored_as_well(agents: Path, config: Path) -> None:
    leave_draft(agents, config, "# typed before\n")
    config.unlink()
    app = make_app(agents)
    async with app.run_test(size=(120, 40)) as pilot:
        screen = await go(pilot, app)
        await until(pilot, lambda: screen.editor is not None, "it opens")
        await pilot.press("ctrl+s")
        await until(
            pilot, lambda: config.is_file() and config.read_text() == "# typed before\n", "and is saved"
        )


async def test_a_draft_of_a_living_app_is_left_alone(agents: Path, config: Path) -> None:
    other = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    try:
        file = leave_draft(agents, config, "# theirs\n", pid=other.pid)
        app = make_app(agents)
        async with app.run_test(size=(120, 40)) as pilot:
            screen, editor = await edit(pilot, app)
            await until(pilot, lambda: f"pid {other.pid}" in said(screen, "banner"), "the banner says so")
            assert editor.text == config.read_text()
            assert file.exists()
    finally:
        other.kill()
        other.communicate()


async def test_a_draft_that_was_saved_after_all_is_forgotten(agents: Path, config: Path) -> None:
    file = leave_draft(agents, config, config.read_text())
    (agents / ".loops" / "drafts" / "broken.json").write_text("{half")
    app = make_app(agents)
    async with app.run_test(size=(120, 40)) as pilot:
        screen, _ = await edit(pilot, app)
        assert screen.document is not None
        assert not screen.document.modified
        assert not file.exists()


async def ask_to_leave(pilot: Pilot[int], app: LoopsApp) -> ConfigScreen:
    screen, _ = await edit(pilot, app)
    await pilot.press(*keys("# x\n"), "escape", "q")
    await until_shown(pilot, app, "1 config is not saved", "agents/train_local.toml")
    return screen


@pytest.mark.parametrize(
    ("key", "saved", "kept"), [("s", True, False), ("k", False, True), ("x", False, False)]
)
async def test_leaving_asks_what_becomes_of_it(
    agents: Path, config: Path, key: str, saved: bool, kept: bool
) -> None:
    app = make_app(agents)
    async with app.run_test(size=(80, 24)) as pilot:
        await ask_to_leave(pilot, app)
        await pilot.press("enter")
        assert app.is_running  # the answer in focus is to stay
        await pilot.press("q")
        await until(pilot, lambda: isinstance(app.screen, Ask), "it asks again")
        await pilot.press(key)
        await until(pilot, lambda: app.return_value == 0, "it leaves")
    assert config.read_text().startswith("# x\n") is saved
    assert [draft["text"][:4] for draft in drafts_of(agents)] == (["# x\n"] if kept else [])


async def test_a_second_interrupt_leaves_and_keeps_it(agents: Path) -> None:
    app = make_app(agents)
    async with app.run_test(size=(80, 24)) as pilot:
        await edit(pilot, app)
        await pilot.press(*keys("# x\n"), "ctrl+c")
        await until_shown(pilot, app, "1 config is not saved")
        await pilot.press("ctrl+c")
        await until(pilot, lambda: app.return_value == 130, "it leaves")
    assert [draft["text"][:4] for draft in drafts_of(agents)] == ["# x\n"]


async def test_a_run_that_lives_here_is_asked_about_as_well(agents: Path) -> None:
    here = FakeHosting()
    app = make_app(agents, here)
    async with app.run_test(size=(80, 24)) as pilot:
        _ = app.hosting
        here.running.append("some-run")
        await ask_to_leave(pilot, app)
        await pilot.press("k")
        await until_shown(pilot, app, "A run lives in this app", "some-run")
        assert app.is_running


def test_an_unwritable_project_is_told_once(tmp_path: Path) -> None:
    (tmp_path / ".loops").write_text("in the way")
    with pytest.raises(OSError, match=r"\.loops"):
        Drafts(tmp_path).write(tmp_path / "a.toml", "text", "")


async def test_drafts_that_cannot_be_kept_are_said(agents: Path) -> None:
    (agents / ".loops").mkdir(exist_ok=True)
    (agents / ".loops" / "drafts").write_text("in the way")
    app = make_app(agents)
    async with app.run_test(size=(80, 24)) as pilot:
        await edit(pilot, app)
        await pilot.press(*keys("# x\n"))
        await until_told(pilot, app, "unsaved text cannot be kept in .loops/drafts")
        assert app.is_running
