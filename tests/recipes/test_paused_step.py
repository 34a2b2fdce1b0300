"""A step's seconds are those that it took: not those for which somebody held the run."""

from __future__ import annotations

import asyncio
import json
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

from engine.project import load
from engine.recipes.contract import LoopsEndpoint, RunHandle
from engine.recipes.control import RunControl
from engine.recipes.rl import run, schedule
from engine.recipes.rl.pace import StepClock
from engine.recipes.rl.parts import renderer_of
from engine.store.rows import StepRow
from engine.store.store import Store
from tests.bench.simulated_loops import SimulatedTrainer, simulated_run, simulated_training
from tests.recipes.test_memory import CONFIG, EPISODE, RUN, replies

HOURS = 10_000.0


def test_a_pause_is_no_part_of_a_step() -> None:
    now, used = [100.0], [5.0]
    clock = StepClock(lambda: used[0], lambda: now[0])
    clock.begin()
    now[0], used[0] = 104.0, 9.0
    with clock.pausing():
        now[0], used[0] = 1104.0, 17.0  # what is in flight when a run is paused goes on
    now[0], used[0] = 1108.0, 21.0
    assert clock.paused == 1000.0
    assert clock.busy(2) == 0.5
    clock.begin()
    now[0] = 1110.0
    assert (clock.paused, clock.busy(2)) == (0.0, 0.0)


async def test_a_step_that_is_paused_takes_no_longer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    late = [0.0]
    shifted = SimpleNamespace(time=time.time, monotonic=lambda: time.monotonic() + late[0])
    for module in (run, schedule):
        monkeypatch.setattr(module, "time", shifted)

    class Held(RunControl):
        """A pause lasts for hours, and ends at once."""

        async def wait_if_paused_or_asked(self) -> None:
            late[0] += HOURS
            self.resume("test")

    (tmp_path / "watched_episode.py").write_text(EPISODE)
    # One attempt after the other: when the second step is paused, its second group has not begun.
    (tmp_path / "train.toml").write_text(CONFIG.format(steps=3, more="max_concurrent_rollouts = 1"))
    lines = [{"name": name, "instruction": f"Say {name}."} for name in ("one", "two", "three")]
    (tmp_path / "tasks.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    project = load(tmp_path / "train.toml", working_dir=tmp_path)
    renderer = await asyncio.to_thread(renderer_of, project)
    control, steps = Held(), {}
    with Store.open(tmp_path) as store:
        store.create_run(simulated_run(RUN, project, store))
        recorder = store.recorder(RUN)
        record = recorder.step

        def step(row: StepRow) -> None:
            record(row)
            if (row.step, row.state) == (2, "collecting"):
                control.pause("test")
            if row.state == "done":
                steps[row.step] = row.metrics

        recorder.step = step  # type: ignore[method-assign]
        handle = RunHandle(RUN, recorder, control, LoopsEndpoint("local", None, None), store=store)
        await simulated_training(project, handle, SimulatedTrainer(replies(renderer), speed=1000.0), renderer)
        await asyncio.to_thread(recorder.close)
    project.close()
    assert late == [HOURS]
    for metrics in steps.values():
        assert metrics["time/step"] < HOURS
        assert metrics["slots/busy"] > 1 / HOURS
