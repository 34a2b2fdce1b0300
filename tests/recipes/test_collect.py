"""How groups become a step: order, limits, replacement, pause and stop."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from engine.episodes import Task
from engine.episodes.runtime import AttemptResult
from engine.loops.errors import LoopsUnavailable
from engine.policy.conversation import ConversationTrace
from engine.recipes.control import RunControl
from engine.recipes.rl.collect import Collector, CollectSettings
from engine.recipes.rl.groups import Group
from engine.recipes.rl.order import TaskOrder
from engine.store.rows import AttemptState


class Bench:
    """A collector over attempts whose rewards are given by (group, attempt)."""

    def __init__(
        self,
        reward: Callable[[int, int], float | None],
        *,
        groups_per_step: int = 1,
        size: int = 4,
        concurrent: int = 100,
        unusable: int = 3,
        losses: int = 0,
    ) -> None:
        self.reward = reward
        self.started: list[int] = []
        self.running = 0
        self.most = 0
        self.gate: asyncio.Event | None = None
        self.four = asyncio.Event()
        self.control = RunControl()
        self.collector = Collector(
            tasks=[Task(object(), str(i), i) for i in range(3)],
            order=TaskOrder(3, 0, False),
            settings=CollectSettings(size, groups_per_step, losses, unusable, concurrent),
            control=self.control,
            hold=self.control.wait_if_paused,
            attempt=self.attempt,
            compare=self.compare,
            started=lambda group: self.started.append(group.group_id),
            ended=lambda group: None,
        )

    async def attempt(self, group: Group, index: int) -> AttemptResult:
        self.running += 1
        self.most = max(self.most, self.running)
        if self.running == 4:
            self.four.set()
        try:
            await (self.gate.wait() if self.gate else asyncio.sleep(0))
        finally:
            self.running -= 1
        reward = self.reward(group.group_id, index)
        state = AttemptState.LOST if reward is None else AttemptState.DONE
        return AttemptResult(state, ConversationTrace(), reward=reward)

    async def compare(self, group: Group) -> None:
        """These attempts have rewards of their own."""


async def test_unusable_groups_are_replaced_by_the_next_tasks() -> None:
    bench = Bench(lambda g, a: float(a % 2) if g in (1, 3) else 1.0, groups_per_step=2)
    collected = await bench.collector.collect(0)
    assert bench.started == [0, 1, 2, 3]
    assert [group.group_id for group in collected.usable] == [1, 3]
    assert len(collected.finished) == 4
    assert (bench.collector.unusable_groups, bench.collector.consecutive_unusable) == (2, 0)


async def test_attempts_at_once_are_limited() -> None:
    bench = Bench(lambda g, a: float(a % 2), groups_per_step=3, size=8, concurrent=5)
    await bench.collector.collect(0)
    assert bench.most == 5


async def test_too_many_unusable_groups_in_a_row_end_the_step() -> None:
    bench = Bench(lambda g, a: 1.0, unusable=3)
    collected = await bench.collector.collect(0)
    assert collected.exhausted
    assert bench.started == [0, 1, 2]
    assert collected.usable == []


async def test_unusable_groups_are_counted_across_steps() -> None:
    bench = Bench(lambda g, a: float(a % 2) if g == 2 else 1.0, unusable=3)
    assert not (await bench.collector.collect(0)).exhausted
    assert (await bench.collector.collect(1)).exhausted
    assert bench.started == [0, 1, 2, 3, 4, 5]


async def test_stopping_finishes_what_runs_and_starts_nothing() -> None:
    bench = Bench(lambda g, a: 1.0)
    bench.gate = asyncio.Event()
    collecting = asyncio.create_task(bench.collector.collect(0))
    await bench.four.wait()
    bench.control.stop_after_step("test")
    bench.gate.set()
    collected = await collecting
    assert bench.started == [0]
    assert [group.group_id for group in collected.finished] == [0]


async def test_pause_holds_new_groups_until_resume() -> None:
    bench = Bench(lambda g, a: float(a % 2))
    bench.control.pause()
    collecting = asyncio.create_task(bench.collector.collect(0))
    for _ in range(20):
        await asyncio.sleep(0)
    assert bench.started == []
    bench.control.resume()
    await collecting
    assert bench.started == [0]


async def test_what_ends_the_run_cancels_the_other_attempts_and_is_not_wrapped() -> None:
    bench = Bench(lambda g, a: 1.0, groups_per_step=2)

    async def attempt(group: Group, index: int) -> AttemptResult:
        if (group.group_id, index) == (1, 2):
            raise LoopsUnavailable("gone")
        bench.running += 1
        try:
            await asyncio.Event().wait()
        finally:
            bench.running -= 1
        raise AssertionError

    bench.collector._attempt = attempt
    with pytest.raises(LoopsUnavailable, match="gone"):
        await bench.collector.collect(0)
    assert bench.running == 0


async def test_losses_within_the_limit_still_train() -> None:
    bench = Bench(lambda g, a: None if a == 0 else float(a % 2), losses=1)
    collected = await bench.collector.collect(0)
    assert [group.group_id for group in collected.usable] == [0]
