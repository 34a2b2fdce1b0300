"""An evaluation's attempts sample and are graded within the same limits as the run's own."""

from __future__ import annotations

import asyncio

import pytest

from tests.recipes.scheduled import Bench, settle


class Evaluation:
    """Attempts of an evaluation, each held in each phase until its gate is opened."""

    def __init__(self, bench: Bench, attempts: int) -> None:
        self._bench = bench
        self._going = [asyncio.create_task(self._attempt(attempt)) for attempt in range(attempts)]

    async def _attempt(self, attempt: int) -> None:
        places = self._bench.schedule.guest(-1, attempt)
        async with places.sampling(lambda: None):
            await self._bench._phase("run", (-1, attempt))
        async with places.grading(lambda: None):
            await self._bench._phase("grade", (-1, attempt))

    async def end(self) -> None:
        async with asyncio.timeout(120):
            await asyncio.gather(*self._going)


async def test_an_evaluation_shares_the_limits_and_comes_first() -> None:
    bench = Bench(concurrent=3, grading=2, size=4, k=2, by_hand=True)
    collecting = asyncio.create_task(bench.schedule.collect())
    for group in range(3):
        bench.open(group, "setup")
    await settle()
    assert len(bench.now["run"]) == 3
    evaluation = Evaluation(bench, 5)
    await settle()
    assert bench.groups_in("run") == [0]  # they wait for those that sample
    bench.open(0, "run")
    await settle()
    assert bench.groups_in("run") == [-1]  # before the rest of the first group, and the next ones
    bench.open(-1)
    bench.open(0, "grade")
    await evaluation.end()
    await collecting
    assert (bench.most["run"], bench.most["grade"]) == (3, 2)
    await bench.schedule.close()


async def test_an_evaluation_may_have_more_slots_than_training_but_training_waits_for_its_own() -> None:
    bench = Bench(concurrent=2, evaluation=4, by_hand=True)
    evaluation = Evaluation(bench, 6)
    await settle()
    assert len(bench.now["run"]) == 4
    bench.open(0, "setup")
    collecting = asyncio.create_task(bench.schedule.collect())
    await settle()
    assert bench.groups_in("run") == [-1]
    bench.open(-1)
    await evaluation.end()
    await settle()
    assert bench.groups_in("run") == [0]
    bench.open(0)
    await collecting
    await bench.schedule.close()


@pytest.mark.parametrize("closed", [False, True])
async def test_an_evaluation_has_its_slots_before_the_first_step_and_after_the_last(closed: bool) -> None:
    bench = Bench(concurrent=2, ahead=2)
    if closed:
        await bench.step()
        await bench.schedule.close()
    begun = list(bench.started)
    bench.open(-1)
    await Evaluation(bench, 5).end()
    assert (bench.most["run"], bench.started) == (2, begun)  # and nothing of training begins by it
    await bench.schedule.close()
