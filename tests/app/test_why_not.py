"""A key that does nothing says why, in one sentence, and not twice at the same time."""

from __future__ import annotations

from pathlib import Path

import pytest

from engine.store.rows import RunState
from engine.store.store import Store
from loops_tui.app import LoopsApp
from loops_tui.link import open_store
from loops_tui.options import Options
from loops_tui.readonly import REFUSAL
from tests.app.conftest import LIVE, FakeHosting, make_app, until, until_shown, until_told
from tools.sample_store import run_row

NARROW = (80, 24)


@pytest.mark.parametrize(
    ("keys", "reason"),
    [
        (("s",), "this run has ended already"),
        (("A",), "this run has ended already"),
        (("c",), "this run left no sandboxes behind"),
        (("v",), "space marks a run; v compares two marked ones"),
        (("4", "d"), "there is nothing to release"),
        (("5", "r"), "there is no checkpoint to do this with"),
        (("5", "ctrl+s"), "no run is live: a checkpoint is saved by a run at work"),
        (("2", "ctrl+s"), "there is nothing to save: the text is as its file"),
        (("3", "P"), "this run has ended already"),
        (("3", "R"), "it left no checkpoint to go on from: 1, then r trains it from the beginning"),
        (("3", "full_stop"), "nothing is looked for: / finds a text in the log"),
        (("3", "space"), "this run has ended: its view stands still"),
    ],
)
async def test_a_key_that_does_nothing_says_why(tmp_path: Path, keys: tuple[str, ...], reason: str) -> None:
    with Store.open(tmp_path) as store:
        store.create_run(run_row("20261129-120000-ends", "ended", RunState.STOPPED, tmp_path, max_steps=9))
    app = make_app(tmp_path)
    async with app.run_test(size=NARROW) as pilot:
        await until_shown(pilot, app, "1 run")
        first, *rest = keys
        before = app.screen
        await pilot.press(first)
        if rest:
            await until(pilot, lambda: app.screen is not before, "the next screen is open")
            shown = {
                "4": "Nothing is held",
                "5": "No checkpoint",
                "2": "Bundled examples",
                "3": "0 of 9 steps",
            }
            await until_shown(pilot, app, shown[first])
            await pilot.press(*rest)
        await until_told(pilot, app, reason)


async def test_a_live_run_is_not_deleted_and_not_gone_on_with(project: Path) -> None:
    app = make_app(project)
    async with app.run_test(size=NARROW) as pilot:
        await until_shown(pilot, app, "tool_agent")
        await pilot.press("d")
        await until_told(pilot, app, "this run is live: s or A ends it before its record can be deleted")
        await pilot.press("r")
        await until_told(pilot, app, "this run is live: r goes on with one that has ended")
        app.open_run(LIVE)
        await until_shown(pilot, app, "policy v15")
        await pilot.press("R")
        await until_told(pilot, app, "this run is live: R goes on with one that has ended")


async def test_a_key_of_a_read_only_app_is_refused_once(project: Path) -> None:
    app = LoopsApp(project, lambda: open_store(project), FakeHosting, options=Options(readonly=True))
    async with app.run_test(size=NARROW) as pilot:
        await until_shown(pilot, app, "tool_agent")
        await pilot.press("s", "s", "A", "d")
        await until_told(pilot, app, REFUSAL)
        await pilot.press("s", "v")
        await until_told(pilot, app, "space marks a run")
        told = [one.message for one in app._notifications]
        assert told.count(REFUSAL) == 1
        assert len(told) == 2
