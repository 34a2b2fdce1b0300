"""What one does with runs from the list: sort, mark, go on, clean up, delete."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

import pytest

from engine.store.leases import LeaseJournal
from engine.store.rows import LeaseRow, LeaseState, RunState
from engine.store.store import Store
from loops_tui.app import LoopsApp
from loops_tui.ports import StartRefused
from loops_tui.screens.run import RunScreen
from loops_tui.screens.runs import RunsScreen
from loops_tui.screens.runs_read import FIRST, RunsWatch
from loops_tui.widgets.confirm import Ask
from loops_tui.widgets.form import Form
from tests.app.conftest import LIVE, FakeHosting, make_app, screen_text, until, until_shown, until_told
from tools.sample_checkpoints import BILLING, DONE, INTERRUPTED, fill_checkpoints
from tools.sample_store import Sample, run_row

STOPPED = "20261128-150310-m4d2"


@pytest.fixture
def saved(project: Path, filled: tuple[Path, Sample]) -> Path:
    """The project with checkpoints, evaluations, and a run that still bills."""
    fill_checkpoints(project, filled[1])
    return project


def the_screen(app: LoopsApp) -> RunsScreen:
    assert isinstance(app.screen, RunsScreen)
    return app.screen


def names(app: LoopsApp) -> list[str]:
    return [entry.run.run_id for entry in the_screen(app).table.items]


def rewards(app: LoopsApp) -> list[float]:
    """In the order shown; the run of fine-tuning, which has none, must be the last."""
    *scored, last = (entry.run for entry in the_screen(app).table.items)
    assert last.recipe == "sft"
    return [run.reward_last for run in scored if run.reward_last is not None]


def last_line(app: LoopsApp) -> str:
    return screen_text(app).splitlines()[-1]


async def test_sorting_by_each_column_and_turning_it_around(saved: Path) -> None:
    app = make_app(saved)
    async with app.run_test(size=(120, 40)) as pilot:
        await until_shown(pilot, app, "8 runs")
        by_time = names(app)
        await pilot.press("o")
        await until_shown(pilot, app, "Runs by name, a to z", "run▲")
        await pilot.press("o", "o")
        await until_shown(pilot, app, "Runs by reward, largest first", "reward▼")
        assert rewards(app) == sorted(rewards(app), reverse=True)
        await pilot.press("O")
        await until_shown(pilot, app, "smallest first", "reward▲")
        assert rewards(app) == sorted(rewards(app))
        await pilot.press("o", "o")
        await until_shown(pilot, app, "Runs by spent", "83% of 40 USD")
        assert BILLING in names(app)[:2]
        await pilot.press("o")
        await until(pilot, lambda: names(app) == by_time, "live ones first again")


@pytest.mark.parametrize(
    ("typed", "expected"),
    [
        ("state:failed", ["20261129-091210-b7c1"]),
        ("recipe:sft", ["20261126-080000-sft1"]),
        ("state:live", [LIVE]),
        ("scope:ded state:stopped", [BILLING]),
        ("name:direct done", [DONE]),
        ("nofield:word", []),
    ],
)
async def test_filtering_by_a_field(saved: Path, typed: str, expected: list[str]) -> None:
    app = make_app(saved)
    async with app.run_test(size=(120, 40)) as pilot:
        await until_shown(pilot, app, "8 runs")
        await pilot.press("slash", *("colon" if c == ":" else "space" if c == " " else c for c in typed))
        await until(pilot, lambda: names(app) == expected, f"{expected} are shown")


async def test_what_an_interrupted_run_left_and_going_on_with_it(saved: Path) -> None:
    hosting = FakeHosting()
    app = make_app(saved, hosting)
    async with app.run_test(size=(120, 40)) as pilot:
        await until_shown(pilot, app, "8 runs")
        the_screen(app).table.move_to(INTERRUPTED)
        await until_shown(pilot, app, "step-000020 and 3 steps after it (r resumes)")
        await pilot.press("r")
        await until_shown(
            pilot, app, "Resume this run?", "It goes on from step-000020", "Steps 21 to 23 are trained again"
        )
        await pilot.press("escape")
        await until(pilot, lambda: isinstance(app.screen, RunsScreen), "nothing happens")
        assert hosting.resumed == []
        await pilot.press("r")
        await until(pilot, lambda: isinstance(app.screen, Ask), "the question again")
        await pilot.press("y")
        await until(pilot, lambda: isinstance(app.screen, RunScreen), "the run's screen opens")
        assert hosting.resumed == [(INTERRUPTED, ())]


async def test_a_finished_run_goes_on_with_more_steps_only(saved: Path) -> None:
    hosting = FakeHosting()
    app = make_app(saved, hosting)
    async with app.run_test(size=(80, 24)) as pilot:
        await until_shown(pilot, app, "8 runs")
        the_screen(app).table.move_to(DONE)
        await until(pilot, lambda: "Resume" in last_line(app), "the key is offered")
        await pilot.press("r")
        await until_shown(pilot, app, "all of its 20 steps", "Train up to step")
        assert isinstance(app.screen, Form)
        await pilot.press("backspace", "backspace", "5", "enter")
        await until_shown(pilot, app, "must be more than 20")
        await pilot.press("0", "enter")
        await until(pilot, lambda: isinstance(app.screen, RunScreen), "the run's screen opens")
        assert hosting.resumed == [(DONE, ("training.max_steps=50",))]


async def test_a_refused_resume_is_told(saved: Path) -> None:
    hosting = FakeHosting()
    hosting.refuse = StartRefused("the data set has changed since", ["train.jsonl: 20 tasks, it had 24"])
    app = make_app(saved, hosting)
    async with app.run_test(size=(80, 24)) as pilot:
        await until_shown(pilot, app, "8 runs")
        the_screen(app).table.move_to(INTERRUPTED)
        await pilot.press("r")
        await until(pilot, lambda: isinstance(app.screen, Ask), "the question")
        await pilot.press("y")
        await until_shown(pilot, app, "The run was not resumed", "the data set has changed", "it had 24")
        assert app.notice is None


async def test_a_run_without_a_checkpoint_begins_again(saved: Path) -> None:
    hosting = FakeHosting()
    app = make_app(saved, hosting)
    async with app.run_test(size=(120, 40)) as pilot:
        await until_shown(pilot, app, "8 runs")
        the_screen(app).table.move_to(STOPPED)
        await until(pilot, lambda: "Resume" in last_line(app), "the key is offered")
        await pilot.press("r")
        await until_shown(pilot, app, "It has no checkpoint", "from the beginning")
        await pilot.press("y")
        await until(pilot, lambda: hosting.resumed == [(STOPPED, ())], "it is resumed")


async def test_no_key_goes_on_with_a_run_that_lives_or_is_done_without_a_checkpoint(saved: Path) -> None:
    app = make_app(saved)
    async with app.run_test(size=(120, 40)) as pilot:
        await until_shown(pilot, app, "8 runs")
        for run_id in (LIVE, "20261126-080000-sft1"):
            the_screen(app).table.move_to(run_id)
            await until(pilot, lambda: "Resume" not in last_line(app), f"no key for {run_id}")
            await pilot.press("r")
            assert isinstance(app.screen, RunsScreen)


async def test_deleting_names_what_goes_and_what_stays(project: Path, store: Store) -> None:
    app = make_app(project)
    async with app.run_test(size=(120, 40)) as pilot:
        await until_shown(pilot, app, "7 runs")
        the_screen(app).table.move_to(STOPPED)
        await until(pilot, lambda: "Delete" in last_line(app), "the key is offered")
        await pilot.press("d")
        await until_shown(pilot, app, "Delete the record of this run?", STOPPED, "9 steps", "Stays: ")
        assert app.focused is not None
        assert app.focused.id == "choice-cancel"
        await pilot.press("enter")
        await until(pilot, lambda: isinstance(app.screen, RunsScreen), "nothing happens")
        assert store.reader().get_run(STOPPED) is not None
        await pilot.press("d")
        await until(pilot, lambda: isinstance(app.screen, Ask), "the question")
        await pilot.press("y")
        await until_told(pilot, app, "is deleted")
        await until_shown(pilot, app, "6 runs")
        assert store.reader().get_run(STOPPED) is None


def _lease(store: Store, run_id: str) -> None:
    row = LeaseRow(
        "ltui-left", "local", "bubblewrap", run_id, 0, 0, "host-gone", LeaseState.ACTIVE, time.time() - 900
    )

    async def add() -> None:
        await LeaseJournal(store).add(row)

    asyncio.run(add())


async def test_a_run_with_sandboxes_is_cleaned_up_and_not_deleted(project: Path, store: Store) -> None:
    await asyncio.to_thread(_lease, store, STOPPED)
    hosting = FakeHosting()
    app = make_app(project, hosting)
    async with app.run_test(size=(120, 40)) as pilot:
        await until_shown(pilot, app, "7 runs")
        the_screen(app).table.move_to(STOPPED)
        await until_shown(pilot, app, "left 1 sandbox (c cleans up)")
        assert "Delete" not in last_line(app)
        await pilot.press("d")
        assert isinstance(app.screen, RunsScreen)
        await pilot.press("c")
        await until_shown(pilot, app, "Release this sandbox?", "ltui-left")
        await pilot.press("y")
        await until(pilot, lambda: hosting.released == [(("ltui-left",), False)], "it is released")


async def test_a_record_that_came_to_life_meanwhile_stays(project: Path, store: Store) -> None:
    app = make_app(project)
    async with app.run_test(size=(120, 40)) as pilot:
        await until_shown(pilot, app, "7 runs")
        the_screen(app).table.move_to(STOPPED)
        await pilot.press("d")
        await until(pilot, lambda: isinstance(app.screen, Ask), "the question")
        await asyncio.to_thread(_lease, store, STOPPED)
        await pilot.press("y")
        await until_told(pilot, app, "may still have a sandbox")
        assert store.reader().get_run(STOPPED) is not None


async def test_a_run_that_bills_says_so_and_cannot_be_deleted(saved: Path) -> None:
    app = make_app(saved)
    async with app.run_test(size=(120, 40)) as pilot:
        await until_shown(pilot, app, "8 runs", "still bill (5)", "bills for")
        the_screen(app).table.move_to(BILLING)
        await until_shown(pilot, app, "(5 deactivates)", "33.15 USD of 40 (83%)")
        assert "Delete" not in last_line(app)
        await pilot.resize_terminal(80, 24)
        await until_shown(pilot, app, "still bill (5) · ")


async def test_marks_go_with_escape_and_two_of_them_can_be_compared(project: Path) -> None:
    app = make_app(project)
    async with app.run_test(size=(120, 40)) as pilot:
        await until_shown(pilot, app, "7 runs")
        await pilot.press("v")
        assert isinstance(app.screen, RunsScreen)
        await pilot.press("space")
        await until_shown(pilot, app, "1 marked", "◆ tool_agent")
        await until(pilot, lambda: "Compare" in last_line(app), "marked and in hand: two")
        await pilot.press("escape")
        await until(pilot, lambda: "1 marked" not in screen_text(app), "no mark is left")


def test_rows_of_runs_that_cannot_change_are_read_once(tmp_path: Path) -> None:
    with Store.open(tmp_path) as store:
        for number in range(FIRST + 20):
            store.create_run(run_row(f"run-{number:04d}", "old", RunState.DONE, tmp_path, created_at=float(number),
                                     ended_at=1000.0))  # fmt: skip
        reader = store.reader()
        asked: list[int] = []
        by_id = reader.runs_by_id
        reader.runs_by_id = lambda ids: (asked.append(len(list(ids))), by_id(ids))[1]  # type: ignore[method-assign]
        watch = RunsWatch()
        first = watch.read(reader)
        assert (len(first.entries), first.whole) == (FIRST, False)
        whole = watch.read(reader)
        assert (len(whole.entries), whole.whole) == (FIRST + 20, True)
        assert [entry.run.run_id for entry in whole.entries] == [run.run_id for run in reader.runs()]
        watch.read(reader)
        assert asked == [FIRST, 20, 0]
        store.recorder("run-0007", files=False).run(state=RunState.RUNNING, step=3)
        store.flush()
        assert watch.read(reader).entries[0].run.step == 3
        store.delete_run("run-0009")
        assert len(watch.read(reader).entries) == FIRST + 19
