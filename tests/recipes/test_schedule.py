"""Which groups begin when, and which of them make a step."""

from __future__ import annotations

import asyncio
import itertools
import random

import pytest

from engine.loops.errors import LoopsUnavailable
from engine.recipes.rl.schedule import SLOTS_A_TURN
from tests.recipes.scheduled import Bench, settle


async def test_unusable_groups_are_replaced_by_the_next_tasks() -> None:
    bench = Bench(lambda g, a: float(a % 2) if g in (1, 3) else 1.0, groups_per_step=2)
    collected = await bench.schedule.collect()
    assert bench.started == [0, 1, 2, 3]
    assert [group.group_id for group in collected.usable] == [1, 3]
    assert [group.group_id for group in collected.finished] == [0, 1, 2, 3]
    assert bench.schedule.unusable_groups == bench.schedule.unusable_before_frontier == 2
    assert bench.schedule.frontier == 4
    await bench.schedule.close()


async def test_sampling_and_grading_have_limits_of_their_own() -> None:
    bench = Bench(groups_per_step=3, size=8, concurrent=5, grading=2)
    await bench.schedule.collect()
    assert (bench.most["run"], bench.most["grade"]) == (5, 2)
    await bench.schedule.close()


async def test_sampling_does_not_run_far_ahead_of_grading() -> None:
    """Whoever waits to be graded keeps a sandbox."""
    bench = Bench(groups_per_step=4, size=8, k=4, concurrent=4, grading=1, by_hand=True)
    for group in range(20):
        bench.open(group, "setup", "run")
    collecting = asyncio.create_task(bench.schedule.collect())
    for _ in range(20):
        await settle()
    assert 4 < len(bench.schedule._background) <= 4 + 4 + 1 + 4
    collecting.cancel()
    await bench.schedule.close()


async def test_too_many_unusable_groups_in_a_row_end_the_step() -> None:
    bench = Bench(lambda g, a: 1.0, unusable=3)
    collected = await bench.schedule.collect()
    assert collected.exhausted
    assert bench.started == [0, 1, 2]
    assert collected.usable == []
    await bench.schedule.close()


async def test_losses_within_the_limit_still_train() -> None:
    bench = Bench(lambda g, a: None if a == 0 else float(a % 2), losses=1, size=4)
    collected = await bench.schedule.collect()
    assert [group.group_id for group in collected.usable] == [0]
    await bench.schedule.close()


async def test_what_ends_the_run_is_raised_and_the_other_attempts_are_cancelled() -> None:
    bench = Bench(groups_per_step=2, by_hand=True, fails=LoopsUnavailable("gone"))
    bench.open(1, "setup")
    with pytest.raises(LoopsUnavailable, match="gone"):
        await bench.schedule.collect()
    assert bench.now["setup"]
    await bench.schedule.close()
    assert not any(bench.now.values())


async def test_a_stop_finishes_the_step_with_new_groups_for_those_that_teach_nothing() -> None:
    bench = Bench(lambda g, a: 1.0 if g == 0 else float(a % 2), by_hand=True)
    collecting = asyncio.create_task(bench.schedule.collect())
    await settle()
    bench.open(0, "setup")
    await settle()
    bench.control.stop_after_step("test")
    await settle()
    assert bench.groups_in("run") == [0]
    bench.open(0)
    await settle()
    bench.open(1)
    assert [group.group_id for group in (await collecting).usable] == [1]
    await bench.schedule.may_publish()
    bench.schedule.published()
    await settle()
    assert bench.started == [0, 1]  # nothing of the next step
    assert bench.schedule.frontier == 2
    await bench.schedule.close()


async def test_a_stop_finishes_the_step_whose_groups_have_not_all_begun() -> None:
    bench = Bench(groups_per_step=3, concurrent=2, by_hand=True)
    collecting = asyncio.create_task(bench.schedule.collect())
    bench.open(0, "setup")
    await settle()
    assert bench.started == [0]
    bench.control.stop_after_step("test")
    for group in range(3):
        bench.open(group)
    assert [group.group_id for group in (await collecting).usable] == [0, 1, 2]
    assert bench.started == [0, 1, 2]
    await bench.schedule.close()


async def test_a_stop_replaces_a_group_with_the_next_one_that_was_set_up_ahead() -> None:
    """In the order of their ids: a task that was passed over would never be trained, not even after a resume."""
    bench = Bench(lambda g, a: 1.0 if g == 0 else float(a % 2), ahead=4, by_hand=True)
    for group in range(3):
        bench.open(group, "setup")
    collecting = asyncio.create_task(bench.schedule.collect())
    await settle()
    assert (bench.started, bench.groups_in("run")) == ([0, 1, 2], [0])
    bench.control.stop_after_step("test")
    await settle()
    bench.open(0)
    await settle()
    assert bench.groups_in("run") == [1]
    bench.open(1)
    assert [group.group_id for group in (await collecting).usable] == [1]
    assert (bench.started, bench.schedule.frontier, bench.schedule.untrained) == ([0, 1, 2], 2, [2])
    await bench.schedule.close()


async def test_a_stop_passes_over_no_group_that_it_gave_up() -> None:
    bench = Bench(lambda g, a: 1.0 if g == 0 else float(a % 2), k=2, by_hand=True)
    for group in range(3):
        bench.open(group, "setup")
    collecting = asyncio.create_task(bench.schedule.collect())
    await settle()
    assert bench.groups_in("run") == [0, 1, 2]
    bench.control.stop_after_step("test")
    await settle()
    assert bench.groups_in("run") == [0]
    bench.open(0)
    assert (await collecting).usable == []
    assert (bench.started, bench.schedule.frontier) == ([0, 1, 2], 0)
    await bench.schedule.close()


async def test_a_stop_gives_up_a_step_that_has_not_sampled() -> None:
    bench = Bench(by_hand=True)
    collecting = asyncio.create_task(bench.schedule.collect())
    await settle()
    assert bench.groups_in("setup") == [0]
    bench.control.stop_after_step("test")
    collected = await collecting
    await settle()
    assert (collected.usable, bench.groups_in("setup"), bench.started) == ([], [], [0])
    await bench.schedule.close()


async def test_a_stop_of_a_step_that_only_teaches_nothing_ends_with_its_bound() -> None:
    bench = Bench(lambda g, a: 1.0, unusable=4, by_hand=True)
    collecting = asyncio.create_task(bench.schedule.collect())
    await settle()
    bench.open(0, "setup")
    await settle()
    bench.control.stop_after_step("test")
    for group in range(4):
        bench.open(group)
    assert (await collecting).exhausted
    assert bench.started == [0, 1, 2, 3]
    await bench.schedule.close()


async def test_a_stop_after_a_pause_finishes_the_step() -> None:
    bench = Bench(lambda g, a: 1.0 if g == 0 else float(a % 2), by_hand=True)
    collecting = asyncio.create_task(bench.schedule.collect())
    await settle()
    bench.open(0, "setup")
    await settle()
    bench.control.pause()
    bench.open(0)
    await settle()
    assert bench.started == [0]  # held
    bench.control.stop_after_step("test")
    bench.open(1)
    assert [group.group_id for group in (await collecting).usable] == [1]
    await bench.schedule.close()


async def test_pause_holds_new_groups_until_resume() -> None:
    bench = Bench()
    bench.control.pause()
    collecting = asyncio.create_task(bench.schedule.collect())
    await settle()
    assert bench.started == []
    bench.control.resume()
    await collecting
    assert bench.started == [0]
    await bench.schedule.close()


async def test_no_group_begins_that_no_step_would_train() -> None:
    bench = Bench(max_steps=2, k=4, ahead=50)
    assert [await bench.step() for _ in range(2)] == [[0], [1]]
    await settle()
    assert bench.started == [0, 1]
    await bench.schedule.close()


async def test_sync_sets_up_ahead_and_samples_only_the_published_policy() -> None:
    bench = Bench(ahead=2, by_hand=True)
    for group in range(3):
        bench.open(group, "setup")
    collecting = asyncio.create_task(bench.schedule.collect())
    await settle()
    assert bench.started == [0, 1]
    assert bench.groups_in("run") == [0]
    bench.open(0)
    collected = await collecting
    await settle()
    assert bench.groups_in("run") == []  # group 1 waits, set up, while group 0 trains
    await bench.schedule.may_publish()
    bench.schedule.published()
    await settle()
    assert bench.groups_in("run") == [1]
    assert collected.usable[0].policy_version == 0
    bench.open(1)
    assert (await bench.schedule.collect()).usable[0].policy_version == 1
    await bench.schedule.close()


async def test_async_begins_as_many_groups_as_the_bound_allows_and_no_more() -> None:
    bench = Bench(groups_per_step=2, k=1, by_hand=True)
    for group in range(20):
        bench.open(group, "setup")
    collecting = asyncio.create_task(bench.schedule.collect())
    await settle()
    assert bench.groups_in("run") == [0, 1, 2, 3]
    for group in (0, 1):
        bench.open(group)
    await collecting
    await settle()
    assert bench.groups_in("run") == [2, 3]
    bench.schedule.published()
    await settle()
    assert bench.groups_in("run") == [2, 3, 4, 5]
    await bench.schedule.close()


async def test_a_step_trains_the_oldest_groups_and_waits_for_them() -> None:
    bench = Bench(k=3, by_hand=True)
    collecting = asyncio.create_task(bench.schedule.collect())
    await settle()
    for group in (1, 2, 3):
        bench.open(group)
    await settle()
    assert not collecting.done()
    assert bench.schedule.waits_for == (0, 2)
    bench.open(0)
    assert [group.group_id for group in (await collecting).usable] == [0]
    bench.schedule.published()
    assert bench.schedule.untrained == [1, 2, 3, 4]
    assert [await bench.step() for _ in range(3)] == [[1], [2], [3]]
    await bench.schedule.close()


async def test_a_rejected_group_frees_its_place_at_once() -> None:
    bench = Bench(lambda g, a: 1.0 if g == 1 else float(a % 2), k=1, by_hand=True)
    collecting = asyncio.create_task(bench.schedule.collect())
    await settle()
    assert bench.groups_in("setup") == [0, 1]
    bench.open(1)
    await settle()
    assert bench.groups_in("setup") == [0, 2]
    bench.open(0)
    collected = await collecting
    # Group 1 is told with the step before which it is decided by age: the next one, that trains group 2.
    assert [group.group_id for group in collected.finished] == [0]
    bench.schedule.published()
    bench.open(2)
    assert [group.group_id for group in (await bench.schedule.collect()).finished] == [1, 2]
    assert bench.schedule.unusable_before_frontier == 1
    await bench.schedule.close()


@pytest.mark.parametrize(("delta", "waits"), [(0, True), (1, False)])
async def test_a_publish_waits_for_attempts_that_it_would_age_too_much(delta: int, waits: bool) -> None:
    bench = Bench(k=1, delta=delta, by_hand=True)
    for group in range(9):
        bench.open(group, "setup")
    bench.open(0)
    await bench.schedule.collect()
    await settle()
    assert bench.groups_in("run") == [1]
    publishing = asyncio.create_task(bench.schedule.may_publish())
    await settle()
    assert publishing.done() is not waits
    bench.open(1, "run")
    await publishing
    bench.schedule.published()
    await bench.schedule.close()


async def test_nothing_begins_that_a_waiting_publish_would_have_to_wait_for_again() -> None:
    bench = Bench(lambda g, a: 1.0 if g == 1 else float(a % 2), k=1, delta=0, by_hand=True)
    for group in range(9):
        bench.open(group, "setup")
    bench.open(0)
    await bench.schedule.collect()
    publishing = asyncio.create_task(bench.schedule.may_publish())
    await settle()
    bench.open(1)  # rejected: group 2 has its place, but would begin under the old policy
    await publishing
    await settle()
    assert 2 in bench.started
    assert bench.groups_in("run") == []
    bench.schedule.published()
    await settle()
    assert bench.groups_in("run") == [2, 3]
    await bench.schedule.close()


async def test_a_stop_gives_up_what_the_step_in_hand_does_not_train() -> None:
    bench = Bench(k=3, ahead=2, by_hand=True)
    collecting = asyncio.create_task(bench.schedule.collect())
    await settle()
    for group in range(4):
        bench.open(group, "setup")
    await settle()
    assert (bench.groups_in("run"), bench.groups_in("setup")) == ([0, 1, 2, 3], [4])
    bench.control.stop_after_step("test")
    await settle()
    assert (bench.groups_in("run"), bench.groups_in("setup")) == ([0], [])
    bench.open(0)
    assert [group.group_id for group in (await collecting).usable] == [0]
    assert bench.schedule.frontier == 1
    await bench.schedule.close()


async def test_a_resumed_schedule_goes_on_with_the_same_groups() -> None:
    bench = Bench(k=2)
    assert [await bench.step() for _ in range(2)] == [[0], [1]]
    await bench.schedule.close()
    again = Bench(k=2)
    again.schedule.go_on(
        version=bench.schedule.version,
        next_group=bench.schedule.frontier,
        unusable_groups=0,
        consecutive_unusable=0,
    )
    assert await again.step() == [2]
    assert again.schedule.version == 3
    await again.schedule.close()


@pytest.mark.parametrize("k", [0, 1, 2, 4])
async def test_no_group_is_older_than_the_bound_and_none_is_lost_whatever_the_order(k: int) -> None:
    rng = random.Random(k)
    dead = {group for group in range(400) if rng.random() < 0.3}
    bench = Bench(
        lambda g, a: 1.0 if g in dead else float(a % 2),
        groups_per_step=3,
        size=2,
        k=k,
        ahead=4,
        concurrent=7,
        max_steps=25,
        unusable=50,
    )

    async def at_random(name: str, key: tuple[int, int]) -> None:
        for _ in range(rng.randrange(30)):
            await asyncio.sleep(0)

    bench._phase = at_random  # type: ignore[method-assign]
    trained: list[int] = []
    oldest = 0
    for step in range(25):
        collected = await bench.schedule.collect()
        oldest = max(oldest, *(step - group.policy_version for group in collected.usable))
        trained += [group.group_id for group in collected.usable]
        for _ in range(rng.randrange(40)):
            await asyncio.sleep(0)
        await bench.schedule.may_publish()
        bench.schedule.published()
    assert trained == [group for group in range(400) if group not in dead][:75]
    assert oldest <= k
    assert k == 0 or oldest > 0
    await bench.schedule.close()


async def test_many_slots_are_not_given_in_one_turn_of_the_loop() -> None:
    """Each holder renders and sends a prompt at once: hundreds in one turn would hold up everything else."""
    bench = Bench(size=50, groups_per_step=2, by_hand=True)
    collecting = asyncio.create_task(bench.schedule.collect())
    bench.open(0, "setup")
    bench.open(1, "setup")
    given = [0]
    for _ in range(200):
        await asyncio.sleep(0)
        given.append(bench.schedule.slots.used)
    assert given[-1] == 100
    assert max(later - earlier for earlier, later in itertools.pairwise(given)) <= SLOTS_A_TURN
    collecting.cancel()
    await bench.schedule.close()
