"""Two runs beside each other."""

from __future__ import annotations

from pathlib import Path

import pytest

from engine.store.rows import RunState, StepRow
from engine.store.store import Store
from loops_tui.screens.compare import CompareScreen
from loops_tui.screens.runs import RunsScreen
from tests.app.conftest import SIZES, make_app, screen_text, until, until_shown
from tools.sample_checkpoints import BILLING, DONE, fill_checkpoints
from tools.sample_store import Sample, run_row

CONFIGS = (
    '# as it was\nrecipe = "rl"\n\n[training]\ngroup_size = 8\nlearning_rate = 1e-4\n\n[sampling]\nmax_tokens = 32\n',
    'recipe = "rl"\n[sampling]\nmax_tokens = 32\ntemperature = 0.7\n[training]\nlearning_rate = 0.0001\ngroup_size = 16\n',
)


@pytest.fixture
def pair(project: Path) -> Path:
    with Store.open(project) as store:
        for number, config in enumerate(CONFIGS):
            run_id = f"pair-{number}"
            store.create_run(
                run_row(run_id, f"agent_{number}", RunState.DONE, project, created_at=100.0 + number,
                        started_at=100.0, ended_at=190.0 + number, step=3, max_steps=3, config_toml=config)
            )  # fmt: skip
            recorder = store.recorder(run_id, files=False)
            for step in range(1, 4):
                metrics = {
                    "reward/mean": 0.2 * step + 0.1 * number,
                    f"only/{number}": 1.0,
                    "time/step": 2.0 + number,
                }
                recorder.step(StepRow(run_id, step, "done", 100.0, 101.0, step, metrics))
            recorder.flush_blocking()
    return project


@pytest.mark.parametrize("size", SIZES)
async def test_figures_and_keys_that_differ(pair: Path, size: tuple[int, int]) -> None:
    app = make_app(pair)
    async with app.run_test(size=size) as pilot:
        await until_shown(pilot, app, "9 runs")
        app.push_screen(CompareScreen("pair-0", "pair-1"))
        await until_shown(
            pilot, app, "Reward by step", "agent_0 0.20 → 0.60", "agent_1 0.30 → 0.70", "2 keys differ"
        )
        screen = app.screen
        assert isinstance(screen, CompareScreen)
        text = "\n".join("".join(part for part, _ in line) for line in screen.figures.lines)
        differ = text.split("Config: 2 keys differ")[1].split()
        assert differ == ["sampling.temperature", "(not", "set)", "0.7", "training.group_size", "8", "16"]
        assert "+0.100" in text
        assert "1m 30s" in text
        assert "1m 31s" in text


async def test_going_through_the_figures_that_both_have(pair: Path) -> None:
    app = make_app(pair)
    async with app.run_test(size=(120, 40)) as pilot:
        await until_shown(pilot, app, "9 runs")
        app.push_screen(CompareScreen("pair-0", "pair-1"))
        await until_shown(pilot, app, "Reward by step", "1 of 2")
        await pilot.press("v")
        await until_shown(pilot, app, "time/step by step", "2 of 2", "agent_1 3.00 → 3.00")
        await pilot.press("v")
        await until_shown(pilot, app, "Reward by step")
        await pilot.press("m", *"time", "enter")
        await until_shown(pilot, app, "time/step by step", "2 of 2")
        await pilot.press("x")
        await until(
            pilot,
            lambda: screen_text(app).index("agent_1") < screen_text(app).index("agent_0"),
            "left has become right",
        )
        await pilot.press("escape")
        await until(pilot, lambda: isinstance(app.screen, RunsScreen), "back to the runs")


async def test_from_two_marks_the_older_one_stands_left(project: Path, filled: tuple[Path, Sample]) -> None:
    fill_checkpoints(project, filled[1])
    app = make_app(project)
    async with app.run_test(size=(120, 40)) as pilot:
        await until_shown(pilot, app, "8 runs")
        runs = app.screen
        assert isinstance(runs, RunsScreen)
        for run_id in (DONE, BILLING):
            runs.table.move_to(run_id)
            await pilot.press("space")
        await pilot.press("v")
        await until(pilot, lambda: isinstance(app.screen, CompareScreen), "the comparison opens")
        await until_shown(pilot, app, "last evaluation", "33.15 USD")
        assert screen_text(app).index("● tool_agent") < screen_text(app).index("◆ in_process_direct")


async def test_a_run_that_is_gone_and_a_config_that_is_no_toml(pair: Path, store: Store) -> None:
    store.create_run(run_row("odd", "odd", RunState.DONE, pair, config_toml="this is = = no toml"))
    app = make_app(pair)
    async with app.run_test(size=(80, 24)) as pilot:
        await until_shown(pilot, app, "10 runs")
        app.push_screen(CompareScreen("pair-0", "odd"))
        await until_shown(pilot, app, "odd no figures")
        await pilot.press("end")
        await until_shown(pilot, app, "is no TOML")
        app.pop_screen()
        app.push_screen(CompareScreen("pair-0", "nowhere"))
        await until_shown(pilot, app, "no longer in the store")
