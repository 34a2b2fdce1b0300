"""Which step will train a group, as it is told while the group is in flight; and how attempts end that do not begin, or do not end."""

from __future__ import annotations

import asyncio

import pytest

from engine.recipes.rl import schedule
from tests.recipes.scheduled import Bench, settle


async def test_a_rejected_group_moves_those_after_it_up() -> None:
    bench = Bench(lambda g, a: 1.0 if g == 0 else float(a % 2), groups_per_step=2, k=1, by_hand=True)
    collecting = asyncio.create_task(bench.schedule.collect())
    for group in range(5):
        bench.open(group, "setup")
    await settle()
    assert bench.steps == {0: 1, 1: 1, 2: 2, 3: 2}
    bench.open(0)
    await settle()
    assert bench.steps == {0: 1, 1: 1, 2: 1, 3: 2, 4: 2}
    collecting.cancel()
    await bench.schedule.close()


async def test_attempts_that_do_not_end_do_not_hold_up_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(schedule, "CLOSE_SECONDS", 0.05)
    over = asyncio.Event()

    class Deaf(Bench):
        async def _phase(self, name: str, key: tuple[int, int]) -> None:
            while name == "run" and not over.is_set():
                try:
                    await over.wait()
                except asyncio.CancelledError:
                    over_asked.set()

    over_asked, bench = asyncio.Event(), Deaf()
    collecting = asyncio.create_task(bench.schedule.collect())
    await settle()
    bench.control.stop_after_step("test")
    collecting.cancel()
    await asyncio.wait_for(bench.schedule.close(), 120)
    assert over_asked.is_set()
    over.set()
    await settle()


async def test_attempts_that_are_cancelled_before_they_run_are_not_set_up_for_ever() -> None:
    bench = Bench(ahead=4)
    collecting = asyncio.create_task(bench.schedule.collect())
    await asyncio.sleep(0)
    assert bench.schedule.slots.ahead > 0
    bench.control.stop_after_step("test")
    await collecting
    await settle()
    assert bench.schedule.slots.ahead == 0
    await bench.schedule.close()
