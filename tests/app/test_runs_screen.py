"""The list of runs: what it shows, filters, opens, and asks of a run."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from engine.store.leases import LeaseCounts
from engine.store.rows import RunState
from engine.store.store import Store
from loops_tui.screens.run import RunScreen
from loops_tui.screens.runs import RunsScreen
from loops_tui.screens.runs_text import RunEntry, details
from loops_tui.widgets.confirm import Ask
from loops_tui.widgets.filter_line import FilterLine
from loops_tui.widgets.spans import text_of
from tests.app.conftest import LIVE, SIZES, make_app, screen_text, until, until_shown, until_told
from tools.sample_store import run_row


@pytest.mark.parametrize("size", SIZES)
async def test_live_runs_come_first_with_their_figures(project: Path, size: tuple[int, int]) -> None:
    app = make_app(project)
    async with app.run_test(size=size) as pilot:
        await until_shown(
            pilot, app, "1 live", "7 runs", "14/40", "× failed", "! interrupted", "in_process_direct"
        )
        screen = app.screen
        assert isinstance(screen, RunsScreen)
        assert screen.table.items[0].run.run_id == LIVE
        assert screen.table.cursor_key == LIVE
        assert "unusable groups 7" in screen_text(app)
        if size[0] >= 120:
            assert "demo-model" in screen_text(app)


async def test_an_empty_project_says_what_to_do_next(empty_project: Path) -> None:
    app = make_app(empty_project)
    async with app.run_test(size=(80, 24)) as pilot:
        await until_shown(pilot, app, "No runs yet", "loops-tui run", "0 runs")
        for key in ("enter", "s", "A", "slash", "down", "end", "3"):
            await pilot.press(key)
        assert isinstance(app.screen, RunsScreen)


async def test_what_is_said_of_no_runs_goes_with_the_first_one(empty_project: Path) -> None:
    app = make_app(empty_project)
    async with app.run_test(size=(80, 24)) as pilot:
        await until_shown(pilot, app, "No runs yet", "ctrl+r runs one", "start one from a shell")
        with Store.open(empty_project) as store:
            store.create_run(run_row("20261129-150000-new1", "first_one", RunState.DONE, empty_project))
        await until_shown(pilot, app, "first_one", "1 run")
        await pilot.pause()
        assert "start one from a shell" not in screen_text(app)
        await pilot.press("slash", *"zzz")
        await until_shown(pilot, app, "No run matches", "esc clears the filter")
        await pilot.press("escape")
        await until_shown(pilot, app, "first_one")
        await pilot.pause()
        assert "esc clears the filter" not in screen_text(app)


def test_the_best_reward_is_not_below_the_first_or_last() -> None:
    run = run_row("r", "demo", RunState.DONE, Path("/"), reward_first=0.9, reward_last=0.7)
    for rewards, best in (((0.2, 0.5), "0.90"), ((0.2, 0.95), "0.95"), ((), "0.90"), ((math.nan,), "0.90")):
        shown = "\n".join(text_of(line) for line in details(RunEntry(run, rewards, None, 0.0), 1, 80))
        assert f"0.90 → 0.70  best {best}" in shown


def test_what_an_interrupted_run_left_is_whole_at_80_columns() -> None:
    run = run_row("r", "demo", RunState.INTERRUPTED, Path("/"), step=7, max_steps=25)
    entry = RunEntry(run, (), None, 0.0, leases=LeaseCounts(live=128))
    lines = [text_of(line) for line in details(entry, 1, 76)]
    assert all(len(line) <= 76 for line in lines)
    assert "! left 128 sandboxes (c cleans up)" in lines
    assert "       7 steps, no checkpoint (r trains it from the beginning)" in lines
    wide = [text_of(line) for line in details(entry, 1, 110)]
    assert (
        "! left 128 sandboxes (c cleans up) · 7 steps, no checkpoint (r trains it from the beginning)" in wide
    )


async def test_the_cursor_stays_on_its_run_when_others_appear(project: Path, store: Store) -> None:
    app = make_app(project)
    async with app.run_test(size=(80, 24)) as pilot:
        await until_shown(pilot, app, "7 runs")
        await pilot.press("down", "down")
        screen = app.screen
        assert isinstance(screen, RunsScreen)
        chosen = screen.table.cursor_key
        store.create_run(run_row("20261129-150000-new1", "brand_new", RunState.CREATED, project))
        await until_shown(pilot, app, "brand_new", "8 runs")
        assert screen.table.cursor_key == chosen
        assert screen.table.items[0].run.name == "brand_new"


async def test_filtering_as_one_types(project: Path) -> None:
    app = make_app(project)
    async with app.run_test(size=(80, 24)) as pilot:
        await until_shown(pilot, app, "7 runs")
        await pilot.press("slash", *"direct", "space", *"1")
        assert isinstance(app.focused, FilterLine)
        await until_shown(pilot, app, "Runs (2 of 7)")
        assert "test_suite_agent" not in screen_text(app)
        await pilot.press("enter")
        assert not isinstance(app.focused, FilterLine)
        await until_shown(pilot, app, "filter")
        await pilot.press("escape")
        await until_shown(pilot, app, "test_suite_agent")
        await pilot.press("slash", *"zzz")
        await until_shown(pilot, app, "No run matches")
        await pilot.press("escape")
        await until_shown(pilot, app, "test_suite_agent")


async def test_a_letter_typed_into_the_filter_is_a_letter(project: Path) -> None:
    app = make_app(project)
    async with app.run_test(size=(80, 24)) as pilot:
        await until_shown(pilot, app, "7 runs")
        await pilot.press("slash", *"sqA1")
        line = app.screen.query_one(FilterLine)
        assert line.value == "sqA1"
        assert app.is_running


async def test_stopping_asks_first_and_writes_a_command(project: Path, store: Store) -> None:
    app = make_app(project)
    reader = store.reader()
    async with app.run_test(size=(80, 24)) as pilot:
        await until_shown(pilot, app, "7 runs")
        await pilot.press("s")
        await until_shown(pilot, app, "Stop this run?", LIVE, "Cancel", "Stop (y)")
        assert app.focused is not None
        assert app.focused.id == "choice-cancel"
        await pilot.press("enter")
        await until(pilot, lambda: isinstance(app.screen, RunsScreen), "the dialog closes")
        assert reader.commands(LIVE) == []
        await pilot.press("s")
        await until(pilot, lambda: isinstance(app.screen, Ask), "the dialog opens")
        await pilot.press("y")
        await until(
            pilot, lambda: [row.kind for row in reader.commands(LIVE)] == ["stop"], "a command is written"
        )


async def test_aborting_asks_first_and_escape_backs_out(project: Path, store: Store) -> None:
    app = make_app(project)
    reader = store.reader()
    async with app.run_test(size=(80, 24)) as pilot:
        await until_shown(pilot, app, "7 runs")
        await pilot.press("A")
        await until_shown(pilot, app, "Abort this run?")
        await pilot.press("escape")
        await until(pilot, lambda: isinstance(app.screen, RunsScreen), "the dialog closes")
        assert reader.commands(LIVE) == []


async def test_a_run_that_has_ended_cannot_be_stopped(project: Path) -> None:
    app = make_app(project)
    async with app.run_test(size=(80, 24)) as pilot:
        await until_shown(pilot, app, "7 runs")
        await pilot.press("down")
        await until(
            pilot, lambda: "Stop" not in screen_text(app).splitlines()[-1], "the key is no longer offered"
        )
        await pilot.press("s", "A")
        assert isinstance(app.screen, RunsScreen)


async def test_a_command_that_nobody_would_carry_out_is_said(project: Path, store: Store) -> None:
    app = make_app(project)
    async with app.run_test(size=(80, 24)) as pilot:
        await until_shown(pilot, app, "7 runs")
        await pilot.press("s")
        await until(pilot, lambda: isinstance(app.screen, Ask), "the dialog opens")
        store.end_run(LIVE, "host-1", RunState.DONE, None)
        await pilot.press("y")
        await until_told(pilot, app, "has ended already")


async def test_opening_and_going_back_and_to_the_run_in_hand(project: Path) -> None:
    app = make_app(project)
    async with app.run_test(size=(80, 24)) as pilot:
        await until_shown(pilot, app, "7 runs")
        await pilot.press("enter")
        await until(pilot, lambda: isinstance(app.screen, RunScreen), "the run opens")
        await pilot.press("escape")
        await until(pilot, lambda: isinstance(app.screen, RunsScreen), "back to the runs")
        await pilot.press("3")
        await until(pilot, lambda: isinstance(app.screen, RunScreen), "the run in hand opens")
        await pilot.press("1")
        await until(pilot, lambda: isinstance(app.screen, RunsScreen), "the runs again")
        assert len(app.screen_stack) == 1


async def test_before_any_run_was_looked_at_its_key_opens_the_live_one(project: Path) -> None:
    app = make_app(project)
    async with app.run_test(size=(80, 24)) as pilot:
        await until_shown(pilot, app, "7 runs")
        await pilot.press("3")
        await until(pilot, lambda: isinstance(app.screen, RunScreen), "a run opens")
        assert app.run_in_hand == LIVE


async def test_a_store_that_cannot_be_read_is_said_and_recovers(tmp_path: Path) -> None:
    broken = tmp_path / "broken"
    (broken / ".loops").mkdir(parents=True)
    (broken / ".loops" / "loops.db").write_bytes(b"this is no database" * 200)
    app = make_app(broken)
    async with app.run_test(size=(80, 24)) as pilot:
        await until_shown(pilot, app, "loops-tui store: move it away")
        (broken / ".loops" / "loops.db").unlink()
        await until_shown(pilot, app, "No runs yet")
        assert "loops-tui store: move it away" not in screen_text(app)


async def test_a_screen_without_news_reads_nothing(project: Path) -> None:
    app = make_app(project)
    async with app.run_test(size=(80, 24)) as pilot:
        await until_shown(pilot, app, "7 runs")
        await until(pilot, lambda: app.feed.turns > 2, "the feed is up")
        reads, turns = app.feed.reads, app.feed.turns
        await until(pilot, lambda: app.feed.turns > turns + 3, "the feed goes round")
        assert app.feed.reads <= reads + 1
