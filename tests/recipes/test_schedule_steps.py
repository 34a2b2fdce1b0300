"""Which step will train a group, as it is told while the group is in flight."""

from __future__ import annotations

import asyncio

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
