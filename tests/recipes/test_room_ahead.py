"""Where a provider has room for few sandboxes, attempts that are set up ahead do not hold all of it."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from engine.episodes.places import Places
from engine.episodes.runtime import AttemptResult
from engine.policy.conversation import ConversationTrace
from engine.recipes.rl.groups import Group
from engine.sandboxes.leases import LeaseKeeper
from engine.store import Store
from engine.store.pace import PaceLimits
from engine.store.rows import AttemptState
from tests.recipes.scheduled import Bench
from tests.sandboxes.test_pace import FarProvider, keeper_of

SIZE = 4


class InSandboxes(Bench):
    """Each group's last attempt is tried again, in another sandbox, once all others have ended."""

    keeper: LeaseKeeper
    provider: FarProvider

    async def attempt(self, group: Group, index: int, places: Places) -> AttemptResult:
        leased = await self.keeper.acquire(group_id=group.group_id, attempt=index)
        async with places.sampling(lambda: None):
            # Making sandboxes takes less time than what they are for; nobody tells of refusals or of single attempts.
            while not self.provider.refusals or (index == SIZE - 1 and len(group.finished) < index):  # noqa: ASYNC110
                await asyncio.sleep(0.01)
        if index == SIZE - 1:
            await self.keeper.release(leased)
            leased = await self.keeper.acquire(group_id=group.group_id, attempt=index)
        await self.keeper.release(leased)
        return AttemptResult(AttemptState.DONE, ConversationTrace(), reward=float(index % 2))

    async def evaluate(self) -> None:
        """Attempts of an evaluation, one after another."""
        for attempt in range(SIZE):
            leased = await self.keeper.acquire(group_id=-1, attempt=attempt)
            async with self.schedule.guest(-1, attempt).sampling(lambda: None):
                await asyncio.sleep(0)
            await self.keeper.release(leased)


@pytest.mark.parametrize(("quota", "evaluating"), [(SIZE - 1, False), (SIZE, True)])
async def test_what_is_waited_for_finds_room_where_the_account_allows_less_than_the_config(
    tmp_path: Path, quota: int, evaluating: bool
) -> None:
    bench = InSandboxes(size=SIZE, concurrent=SIZE, grading=SIZE, ahead=SIZE)
    bench.provider = FarProvider(quota)
    with Store.open(tmp_path) as store:
        bench.keeper = keeper_of(store, bench.provider, PaceLimits(5 * SIZE, 1000.0))
        bench.keeper.let_wait(bench.schedule.is_ahead)
        async with asyncio.timeout(60):
            for step in range(3):
                assert await bench.step() == [step]
                if evaluating:
                    await bench.evaluate()
            await bench.schedule.close()
            assert await bench.keeper.release_all() == 0
    assert bench.provider.peak == quota
