"""Ways out of the app, and what happens to a run that lives in it."""

from __future__ import annotations

from pathlib import Path

import pytest

from loops_tui.ports import HandOverFailed, StartRefused
from loops_tui.screens.run import RunScreen
from loops_tui.screens.runs import RunsScreen
from loops_tui.widgets.confirm import Ask
from tests.app.conftest import LIVE, FakeHosting, make_app, screen_text, until, until_shown


async def test_q_leaves_at_once_where_nothing_runs_here(project: Path) -> None:
    app = make_app(project)
    async with app.run_test(size=(80, 24)) as pilot:
        await until_shown(pilot, app, "7 runs")
        await pilot.press("q")
        await until(pilot, lambda: not app.is_running, "the app ends")
    assert app.return_value == 0


async def test_q_asks_where_a_run_lives_here(project: Path) -> None:
    hosting = FakeHosting()
    hosting.running.append(LIVE)
    app = make_app(project, hosting)
    _ = app.hosting
    async with app.run_test(size=(80, 24)) as pilot:
        await until_shown(pilot, app, "7 runs")
        await pilot.press("q")
        await until_shown(
            pilot, app, "A run lives in this app", LIVE, "Stay", "Stop it after this step", "Abort it"
        )
        assert "process of its own" not in screen_text(app), "handing over is offered though hosting cannot"
        assert app.focused is not None
        assert app.focused.id == "choice-stay"
        await pilot.press("escape")
        await until(pilot, lambda: isinstance(app.screen, RunsScreen), "the dialog closes")
        assert hosting.asked == []
        await pilot.press("q")
        await until(pilot, lambda: isinstance(app.screen, Ask), "the dialog opens")
        await pilot.press("s")
        await until_shown(pilot, app, "stopping after this step")
        assert app.is_running
        hosting.end()
        await until(pilot, lambda: not app.is_running, "the app ends when the run has")
    assert app.return_value == 0
    assert hosting.asked == ["stop"]


async def test_ctrl_c_drains_then_asks_to_force(project: Path) -> None:
    hosting = FakeHosting()
    hosting.running.append(LIVE)
    app = make_app(project, hosting)
    _ = app.hosting
    async with app.run_test(size=(80, 24)) as pilot:
        await until_shown(pilot, app, "7 runs")
        await pilot.press("ctrl+c")
        await until_shown(pilot, app, "stopping after this step", "ctrl+c again")
        await pilot.press("ctrl+c")
        await until_shown(pilot, app, "Abort now?")
        await pilot.press("enter")
        await until(pilot, lambda: isinstance(app.screen, RunsScreen), "Keep waiting is in focus")
        assert hosting.asked == ["stop"]
        await pilot.press("ctrl+c")
        await until_shown(pilot, app, "Abort now?")
        await pilot.press("y")
        await until(pilot, lambda: not app.is_running, "the app ends")
    assert app.return_value == 130
    assert hosting.asked == ["stop", "abort"]


async def test_a_run_is_handed_over_in_view(project: Path) -> None:
    hosting = FakeHosting(can_hand_over=True)
    hosting.running.append(LIVE)
    hosting.moves.clear()  # the step in hand takes a while
    app = make_app(project, hosting)
    _ = app.hosting
    async with app.run_test(size=(80, 24)) as pilot:
        await until_shown(pilot, app, "7 runs")
        await pilot.press("q")
        await until_shown(pilot, app, "Leave it running, in a process of its own")
        await pilot.press("d")
        await until_shown(pilot, app, "handing over: finishing and saving the step in hand")
        assert app.is_running
        hosting.moves.set()
        await until(pilot, lambda: not app.is_running, "the app ends")
    assert app.return_value == 0
    assert hosting.asked == [f"hand over {LIVE}"]


@pytest.mark.parametrize("still_here", [True, False])
async def test_a_run_that_could_not_be_handed_over_keeps_the_app(project: Path, still_here: bool) -> None:
    hosting = FakeHosting(can_hand_over=True)
    hosting.running.append(LIVE)
    hosting.stays = HandOverFailed("nothing of it could be saved")
    hosting.goes_on = still_here
    app = make_app(project, hosting)
    _ = app.hosting
    async with app.run_test(size=(80, 24)) as pilot:
        await until_shown(pilot, app, "7 runs")
        await pilot.press("q", "d")
        words = f"Still here: {LIVE}" if still_here else "No run lives here any more"
        await until_shown(pilot, app, "Not handed over", "nothing of it could be saved", words)
        await pilot.press("escape")
        await until(pilot, lambda: isinstance(app.screen, RunsScreen), "the app goes on")
        assert app.notice is None
        hosting.end()
        await pilot.press("q")
        await until(pilot, lambda: not app.is_running, "the app ends")


async def test_ctrl_c_ends_a_hand_over_by_force(project: Path) -> None:
    hosting = FakeHosting(can_hand_over=True)
    hosting.running.append(LIVE)
    hosting.stays = HandOverFailed("it was aborted")
    hosting.moves.clear()
    app = make_app(project, hosting)
    _ = app.hosting
    async with app.run_test(size=(80, 24)) as pilot:
        await until_shown(pilot, app, "7 runs")
        await pilot.press("q", "d")
        await until_shown(pilot, app, "handing over")
        await pilot.press("ctrl+c")
        await until_shown(pilot, app, "Abort now?")
        await pilot.press("y")
        await until(pilot, lambda: "abort" in hosting.asked, "it is aborted")
        hosting.moves.set()
        await until(pilot, lambda: not app.is_running, "the app ends")
    assert app.return_value == 130


async def test_ctrl_c_leaves_where_nothing_runs_here(project: Path) -> None:
    app = make_app(project)
    async with app.run_test(size=(80, 24)) as pilot:
        await until_shown(pilot, app, "7 runs")
        await pilot.press("ctrl+c")
        await until(pilot, lambda: not app.is_running, "the app ends")
    assert app.return_value == 130


async def test_the_notice_follows_to_other_screens(project: Path) -> None:
    hosting = FakeHosting()
    hosting.running.append(LIVE)
    app = make_app(project, hosting)
    _ = app.hosting
    async with app.run_test(size=(80, 24)) as pilot:
        await until_shown(pilot, app, "7 runs")
        await pilot.press("ctrl+c")
        await until_shown(pilot, app, "stopping after this step")
        await pilot.press("enter")
        await until(pilot, lambda: isinstance(app.screen, RunScreen), "the run opens")
        await until_shown(pilot, app, "stopping after this step")
        hosting.end()
        await until(pilot, lambda: not app.is_running, "the app ends")


async def test_a_config_given_at_the_start_is_run_and_opened(project: Path) -> None:
    hosting = FakeHosting()
    config = project / "train.toml"
    app = make_app(project, hosting, start=config, overrides=["training.max_steps=3"])
    async with app.run_test(size=(80, 24)) as pilot:
        await until(pilot, lambda: isinstance(app.screen, RunScreen), "the run's screen opens")
        await until_shown(pilot, app, "policy v15")
        assert hosting.started == [(config, ("training.max_steps=3",))]
        hosting.end()


async def test_a_config_that_is_refused_is_explained(project: Path) -> None:
    hosting = FakeHosting()
    hosting.refuse = StartRefused(
        "train.toml has errors", ["line 3: unknown key 'taks', did you mean 'tasks'?"]
    )
    app = make_app(project, hosting, start=project / "train.toml")
    async with app.run_test(size=(80, 24)) as pilot:
        await until_shown(
            pilot, app, "The run was not started", "train.toml has errors", "did you mean 'tasks'?"
        )
        await pilot.press("enter")
        await until(pilot, lambda: isinstance(app.screen, RunsScreen), "the app goes on")
