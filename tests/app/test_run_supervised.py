"""The Run screen of supervised fine-tuning: losses, rows and checkpoints; nothing of groups and attempts."""

from __future__ import annotations

from pathlib import Path

import pytest
from textual.pilot import Pilot

from engine.store.rows import CheckpointRow, CheckpointState, HostRow, RunRow, RunState, StepRow
from engine.store.store import Store
from loops_tui.app import LoopsApp
from loops_tui.screens.run import RunScreen
from loops_tui.screens.run_curves import figures_of
from loops_tui.screens.run_supervised import data_lines, seconds_left, trained_line
from loops_tui.signals import signals
from loops_tui.widgets.spans import text_of
from tests.app.conftest import SIZES, make_app, screen_text, until, until_shown
from tests.app.test_run_text import NOW, said, view_of
from tools.sample_store import run_row

RUN = "20261126-120000-live-sft"
DATA = {"rows": 600, "samples": 588, "trained_tokens": 25_911, "refused": 12, "validation_rows": 60}


def steps_of(count: int, run_id: str = RUN, start: float = NOW - 100) -> list[StepRow]:
    """Five seconds each; a validation every second step."""
    return [
        StepRow(
            run_id, step, "done", start + 5 * step - 5, start + 5 * step, step,
            {
                "loss": 4.0 / step, "learning_rate": 0.003, "epoch": step * 16 / 600, "rows": 16.0,
                "tokens/total": 1100.0, "tokens/trained": 700.0, "tokens/trained_per_second": 140.0, "time/step": 5.0,
            }
            | ({"loss/validation": 4.4 / step} if step % 2 == 0 else {}),
        )
        for step in range(1, count + 1)
    ]  # fmt: skip


def saved(step: int) -> CheckpointRow:
    return CheckpointRow(
        RUN, f"step-{step:06d}", step, CheckpointState.SAVED, "every", NOW - 60, saved_at=NOW - 50
    )


@pytest.fixture
def supervised(project: Path, store: Store) -> RunRow:
    """A live run of fine-tuning, after ten of its 76 steps."""
    config = '[training]\nepochs = 2\nrecipe = "sft"\n'
    run = run_row(RUN, "phrasing", RunState.CREATED, project, recipe="sft", mode="", max_steps=76, group_size=0,
                  groups_per_step=0, config_toml=config)  # fmt: skip
    store.create_run(run)
    store.claim(RUN, HostRow("host-live-sft", 1, 0.0, "elsewhere", "headless", NOW, NOW), RunState.RUNNING)
    recorder = store.recorder(RUN, files=False)
    recorder.run(step=10, info={"data": DATA}, phase="training")
    for step in steps_of(10):
        recorder.step(step)
    recorder.checkpoint(saved(8))
    recorder.log("info", "run", "step 10/76: loss 0.4000")
    store.flush()
    return run


async def _open(pilot: Pilot[int], app: LoopsApp) -> RunScreen:
    await until_shown(pilot, app, "phrasing")
    app.open_run(RUN)
    await until_shown(pilot, app, "Loss by step", "step 10/76")
    assert isinstance(app.screen, RunScreen)
    return app.screen


@pytest.mark.parametrize("size", SIZES)
async def test_fine_tuning_shows_its_losses_and_nothing_of_groups(
    project: Path, supervised: RunRow, size: tuple[int, int]
) -> None:
    app = make_app(project)
    async with app.run_test(size=size) as pilot:
        screen = await _open(pilot, app)
        await until_shown(pilot, app, "Loss by step", "step 10/76", "epoch 0.27 of 2", "learning rate")
        text = screen_text(app)
        for absent in ("Groups", "Attempts", "No rewards", "attempts", "policy v", "Reward"):
            assert absent not in text, absent
        assert screen.focused is screen.curve
        if size[0] >= 110 and size[1] >= 34:
            await until_shown(pilot, app, "training rows", "validation rows", "step-000008")
        await pilot.press("i")
        await until_shown(pilot, app, "training rows", "12 (2%)", "step-000008")
        await pilot.press("i")
        await until_shown(pilot, app, "12 of 600 training rows are")


async def test_its_keys_lead_to_no_group(project: Path, supervised: RunRow) -> None:
    app = make_app(project)
    async with app.run_test(size=(80, 24)) as pilot:
        screen = await _open(pilot, app)
        await until_shown(pilot, app, "Loss by step")
        await pilot.press("end", "enter")
        await until(pilot, lambda: screen.curve.cursor == 10, "the plot's last step")
        assert screen._wish.step is None
        await pilot.press("right_square_bracket")
        await until_shown(pilot, app, "[Log]")
        await pilot.press("right_square_bracket")
        await until_shown(pilot, app, "[Overview]")
        assert isinstance(app.screen, RunScreen)


def test_where_it_stands_in_its_data() -> None:
    view = view_of(
        run_recipe="sft", run_step=10, run_max_steps=76, run_policy_version=10,
        run_config_toml="[training]\nepochs = 2\n", steps=steps_of(10),
    )  # fmt: skip
    assert seconds_left(view) == 5 * 66
    told = text_of(trained_line(view, 118))
    for part in ("epoch 0.27 of 2", "7000 tokens trained", "140/s", "about 5m 30s left"):
        assert part in told
    assert "policy" not in said(view)
    assert "attempts" not in said(view)
    assert "waiting for the first step" in said(view_of(run_recipe="sft", run_max_steps=76))


def test_its_data_and_checkpoints() -> None:
    view = view_of(run_recipe="sft", run_info={"data": DATA}, steps=steps_of(10), checkpoints=[saved(8)])
    told = [text_of(line) for line in data_lines(view, 60)]
    assert any(line.startswith("refused") and line.endswith("12 (2%)") for line in told)
    assert any("step-000008" in line and "validation 0.550" in line for line in told)


def test_what_is_wrong_with_fine_tuning() -> None:
    run = view_of(run_recipe="sft", run_info={"data": DATA}).run
    steps = steps_of(8)
    assert [finding.text for finding in signals(run, steps, [])] == ["12 of 600 training rows are refused"]
    steps[5].metrics["loss/validation"], steps[7].metrics["loss/validation"] = (
        1.2,
        1.4,
    )  # the best was 1.1 at step 4
    texts = [finding.text for finding in signals(run, steps, [])]
    assert texts[0].startswith("the validation loss rises while the training loss falls")
    steps[7].metrics["loss/validation"] = 1.0
    assert len(signals(run, steps, [])) == 1


def test_the_learning_rate_can_be_plotted() -> None:
    assert [figure.key for figure in figures_of({"loss", "learning_rate"})] == ["loss", "rate"]
