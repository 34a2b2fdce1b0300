"""What one can choose to see of a run: a step on the curve, a bin of rewards, an evaluation, a metric, part of the log."""

from __future__ import annotations

from contextlib import closing
from itertools import pairwise
from pathlib import Path

import pytest

from engine.store.rows import CommandState, RunState
from engine.store.store import Store
from loops_tui.screens.run import RunScreen
from loops_tui.screens.run_curves import figures_of
from loops_tui.screens.run_picker import MetricPicker, matching
from loops_tui.screens.run_tables import bins_of
from loops_tui.screens.transcript import TranscriptScreen
from tests.app.conftest import LIVE, SIZES, FakeHosting, make_app, open_run, screen_text, until, until_shown

WIDE, NARROW = (120, 40), (80, 24)


@pytest.mark.parametrize("size", SIZES)
async def test_from_a_point_of_the_curve_to_that_steps_groups(project: Path, size: tuple[int, int]) -> None:
    app = make_app(project)
    async with app.run_test(size=size) as pilot:
        await open_run(pilot, app)
        await until_shown(pilot, app, "first 0.15" if size == WIDE else "0.15 → 0.87")
        screen = app.screen
        assert isinstance(screen, RunScreen)
        screen.curve.focus()
        await pilot.press("left", "left", "left")
        await until_shown(pilot, app, "step 12 · enter", "─ Step 12 ─")
        await pilot.press("right", "enter")
        await until_shown(pilot, app, "Groups of step 13", "▌   109")
        assert "0/8" not in screen_text(app)  # the group that has just begun
        await pilot.press("up", "enter")
        await until_shown(pilot, app, "Attempts of group 108")
        if size == WIDE:
            await until_shown(pilot, app, "Step 13")
        await pilot.press("escape")
        await until(pilot, lambda: screen.view is not None and screen.view.wish.following, "the newest again")
        assert isinstance(app.screen, RunScreen)


async def test_a_bin_of_rewards_filters_the_attempts(project: Path) -> None:
    app = make_app(project)
    async with app.run_test(size=WIDE) as pilot:
        await open_run(pilot, app)
        await pilot.press("i")
        await until_shown(pilot, app, "Rewards", "attempts · mean 0.56")
        await pilot.press("down", "enter")
        await until_shown(pilot, app, "Attempts with reward 0.00", "▌ 123.3")
        screen = app.screen
        assert isinstance(screen, RunScreen)
        assert screen.view is not None
        assert {row.reward for row in screen.view.attempts} == {0.0}
        await pilot.press("down", "enter")
        await until(pilot, lambda: isinstance(app.screen, TranscriptScreen), "the attempt's transcript opens")
        await until_shown(pilot, app, "group 121", "#3")
        await pilot.press("escape", "f")
        await until_shown(pilot, app, "Attempts of group 124 (newest)")


async def test_the_rewards_of_a_chosen_step(project: Path) -> None:
    app = make_app(project)
    async with app.run_test(size=(200, 60)) as pilot:
        await open_run(pilot, app)
        await until_shown(pilot, app, "979 attempts")
        screen = app.screen
        assert isinstance(screen, RunScreen)
        screen.curve.focus()
        await pilot.press("home", "enter")
        await until_shown(pilot, app, "Rewards of step 1", "72 attempts")


async def test_the_groups_of_evaluations(project: Path) -> None:
    app = make_app(project)
    async with app.run_test(size=WIDE) as pilot:
        await open_run(pilot, app)
        await pilot.press("e")
        await until_shown(
            pilot, app, "Groups of the evaluation at step 10", "✓ evaluated", "held-out group 15"
        )
        await pilot.press("e", "e")
        await until_shown(pilot, app, "Groups of the base model's evaluation", "held-out group 5")
        await pilot.press("e")
        await until_shown(pilot, app, "Attempts of group 124 (newest)")


async def test_any_metric_can_be_plotted(project: Path) -> None:
    app = make_app(project)
    async with app.run_test(size=WIDE) as pilot:
        await open_run(pilot, app)
        await until_shown(pilot, app, "first 0.15")
        await pilot.press("m", *"gradn")
        await until(pilot, lambda: isinstance(app.screen, MetricPicker), "the picker opens")
        await until_shown(pilot, app, "▌ optim/grad_norm")
        await pilot.press("enter")
        await until_shown(pilot, app, "One metric by step", "optim/grad_norm")


def test_metrics_are_found_by_letters_in_their_order() -> None:
    names = ["reward/mean", "reward/mean_with_unusable", "time/train", "optim/grad_norm"]
    assert matching(names, "") == sorted(names)
    assert matching(names, "rwmean")[0] == "reward/mean"
    assert matching(names, "train") == ["time/train"]
    assert matching(names, "mean unus") == ["reward/mean_with_unusable"]
    assert matching(names, "nirt") == []


async def test_curves_are_smoothed_and_say_so(project: Path) -> None:
    app = make_app(project)
    async with app.run_test(size=WIDE) as pilot:
        await open_run(pilot, app)
        await until_shown(pilot, app, "first 0.15")
        for told in ("5-step mean", "20-step mean"):
            await pilot.press("w")
            await until_shown(pilot, app, told)
        await pilot.press("w")
        await until(pilot, lambda: "steps" not in screen_text(app), "no smoothing any more")
        await pilot.press("L")
        await until_shown(pilot, app, "log scale")


@pytest.mark.parametrize("size", SIZES)
async def test_the_log_by_level_and_by_text(project: Path, size: tuple[int, int]) -> None:
    app = make_app(project)
    async with app.run_test(size=size) as pilot:
        await open_run(pilot, app)
        await until_shown(pilot, app, "published policy v15")
        await pilot.press("l")
        await until_shown(pilot, app, "Log: warnings and errors", "group 121 attempt 7")
        assert "published policy v15" not in screen_text(app)
        await pilot.press("l")
        await until_shown(pilot, app, "Log: errors", "no such line")
        await pilot.press("l", "slash", *"step 1")
        await until_shown(pilot, app, "match 1 of 2")
        await pilot.press("enter", "full_stop")
        await until_shown(pilot, app, "match 2 of 2")
        await pilot.press("slash", "escape")
        await until(pilot, lambda: "match" not in screen_text(app), "the search is over")


async def test_keys_that_follow_fast_are_not_lost(project: Path) -> None:
    app = make_app(project)
    async with app.run_test(size=NARROW) as pilot:
        await open_run(pilot, app)
        await until_shown(pilot, app, "0.15 → 0.87")
        app.simulate_key("right_square_bracket")
        app.simulate_key("enter")
        await until_shown(pilot, app, "[Attempts]", "Attempts of group 124")


async def test_a_pane_as_large_as_the_screen(project: Path) -> None:
    app = make_app(project)
    async with app.run_test(size=WIDE) as pilot:
        await open_run(pilot, app)
        await until_shown(pilot, app, "Attempts of group 124", "Reward by step")
        await pilot.press("z")
        await until_shown(pilot, app, "[Groups]")
        await until(pilot, lambda: "Reward by step" not in screen_text(app), "only the groups are shown")
        await pilot.press("right_square_bracket")
        await until_shown(pilot, app, "[Attempts]", "Attempt 0 of group 124")
        await pilot.press("escape")
        await until_shown(pilot, app, "Reward by step", "Log")


async def test_beside_the_plot_health_and_the_run(project: Path, store: Store) -> None:
    app = make_app(project)
    store.recorder(LIVE, host_id="host-1", files=False).run(
        spend={"hours": 0.45, "near": "max_hours", "cost": 1.5}
    )
    async with app.run_test(size=WIDE) as pilot:
        await open_run(pilot, app)
        await until_shown(pilot, app, "[budget] max_hours is used to more than 80 %")
        await pilot.press("i", "i")
        await until_shown(pilot, app, "Health", "at 100 % the run ends")
        await pilot.press("i")
        await until_shown(
            pilot, app, "2 checkpoints", "last step-000010", "◆ step-000010", "0.45 of 0.5 (90%)"
        )
        await pilot.press("i")
        await until_shown(pilot, app, "Step 14")


async def test_a_healthy_run_says_what_is_watched(project: Path) -> None:
    app = make_app(project)
    async with app.run_test(size=(200, 60)) as pilot:
        await open_run(pilot, app)
        await pilot.press("i", "i")
        await until_shown(pilot, app, "nothing looks wrong", "a sampler that disagrees")


async def test_why_a_group_was_rejected(project: Path) -> None:
    app = make_app(project)
    async with app.run_test(size=WIDE) as pilot:
        await open_run(pilot, app)
        await until_shown(pilot, app, "– all alike")
        await pilot.press("up", "up", "up", "up", "up", "up")
        await until_shown(pilot, app, "all its attempts scored alike")


async def test_saving_a_checkpoint_is_asked_and_its_answer_told(project: Path, store: Store) -> None:
    app = make_app(project)
    async with app.run_test(size=NARROW) as pilot:
        await open_run(pilot, app)
        await pilot.press("c")
        await until_shown(pilot, app, "save a checkpoint: asked")
        command = store.take_commands(LIVE)[0]
        assert command.kind == "save"
        store.answer(command.command_id, CommandState.DONE, "step-000014 is saved")
        await until_shown(pilot, app, "save a checkpoint: step-000014 is saved")


async def test_a_run_that_ended_is_resumed_from_its_last_checkpoint(project: Path, store: Store) -> None:
    hosting = FakeHosting()
    app = make_app(project, hosting)
    async with app.run_test(size=WIDE) as pilot:
        await open_run(pilot, app)
        await pilot.press("R")
        assert isinstance(app.screen, RunScreen)  # a live run has nothing to resume
        with closing(store.recorder(LIVE, files=False)) as recorder:
            recorder.run(scope="dedicated")
        store.end_run(LIVE, "host-1", RunState.STOPPED, None)
        await until_shown(pilot, app, "stopped", "R Resume")
        await pilot.press("R")
        await until_shown(pilot, app, "It goes on from step-000010", "Steps 11 to 14 are trained again")
        await until_shown(pilot, app, "Its Loops is dedicated: this bills")
        await pilot.press("y")
        await until(pilot, lambda: [run_id for run_id, _ in hosting.resumed] == [LIVE], "the run is resumed")


def test_a_run_without_rewards_is_about_its_loss() -> None:
    names = {"loss", "loss/validation", "tokens/trained_per_second", "time/step"}
    assert [figure.key for figure in figures_of(names)] == ["loss", "speed", "seconds"]
    assert figures_of({"loss", "reward/mean"})[0].key == "reward"


def test_rewards_fall_into_bins_that_count_exactly_theirs() -> None:
    few = bins_of({0.0: 3, 1.0: 2})
    assert [(row.low, row.high, row.attempts) for row in few] == [(1.0, 1.0, 2), (0.0, 0.0, 3)]
    many = bins_of({value / 100: 1 for value in range(101)})
    assert len(many) == 10
    assert sum(row.attempts for row in many) == 101
    assert many[0].high == 1.0
    assert all(before.low > after.high for before, after in pairwise(many))
    assert bins_of({}) == []
