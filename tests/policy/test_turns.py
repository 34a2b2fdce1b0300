"""Pieces of work take turns on the event loop, and whatever else is due comes between them."""

from __future__ import annotations

import asyncio

import pytest

from engine.policy.turns import turn_of_loop


async def test_pieces_of_work_that_come_together_run_in_one_turn_each_and_in_order() -> None:
    turn, done = 0, []

    async def work(number: int) -> None:
        await turn_of_loop()
        done.append((turn, number))

    tasks = [asyncio.create_task(work(number)) for number in range(20)]
    while not all(task.done() for task in tasks):
        await asyncio.sleep(0)
        turn += 1
    assert [number for _, number in done] == list(range(20))
    assert len({turn for turn, _ in done}) == 20


async def test_alone_nobody_waits() -> None:
    for _ in range(3):
        working = turn_of_loop()
        with pytest.raises(StopIteration):  # it ends without a wait
            working.send(None)
        await asyncio.sleep(0)
        await asyncio.sleep(0)


async def test_whoever_gives_up_waiting_holds_up_nobody() -> None:
    done: list[int] = []

    async def work(number: int) -> None:
        await turn_of_loop()
        done.append(number)

    tasks = [asyncio.create_task(work(number)) for number in range(4)]
    await asyncio.sleep(0)
    tasks[1].cancel()  # it waits
    await asyncio.sleep(0)
    tasks[2].cancel()  # its turn has come, and it has not had it
    async with asyncio.timeout(120):
        await asyncio.gather(*tasks, return_exceptions=True)
        await work(4)
    assert done[0] == 0
    assert done[-2:] == [3, 4]


def test_a_loop_that_ends_in_the_midst_of_it_leaves_the_next_one_alone() -> None:
    for _ in range(2):
        asyncio.run(asyncio.wait_for(turn_of_loop(), 120))
