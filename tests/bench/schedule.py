"""The engine's schedule against the reference schedule, on simulated latencies at 1/20 of their time.

    uv run python -m tests.bench.schedule [--json] [--steps 40] [--seeds 1] [--slots 16,32,64] [--updates 2,6] [--k 0,1,2,4]
                                          [--virtual]

Plays the workload of ``schedule_reference`` through the engine's own schedule, once without faults and once with 25 %
groups without variance and 2 % failing tries. Timers slip on a machine that is busy: see ``load`` and ``timer_slip``.
The same is played on a clock that leaps over all sleeps as well: ``ratio_alone`` is the schedule's own, whatever the
machine does. ``--virtual`` does only that.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import selectors
import statistics
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from engine.episodes import Task
from engine.episodes.places import Places
from engine.episodes.runtime import AttemptResult
from engine.policy.conversation import ConversationTrace
from engine.recipes.control import RunControl
from engine.recipes.rl.groups import Group
from engine.recipes.rl.order import TaskOrder
from engine.recipes.rl.schedule import Schedule, ScheduleSettings
from engine.recipes.rl.slots import Slots
from engine.store.rows import AttemptState
from tests.bench.schedule_reference import GROUP_SIZE, GROUPS_PER_STEP, STEPS, Workload, reference

SCALE = 20.0
LIMIT, LIMIT_WITH_FAULTS = 1.05, 1.10
DEAD, FAULTS = 0.25, 0.02
#: Attempts set up ahead in async mode; in sync mode as many as there are slots.
AHEAD = 8


@dataclass(frozen=True, slots=True)
class Case:
    """One run of the benchmark; ``update`` in simulated seconds."""

    slots: int
    update: float
    k: int
    seed: int
    faulty: bool

    @property
    def load(self) -> Workload:
        return Workload(self.seed, DEAD, FAULTS) if self.faulty else Workload(self.seed)

    @property
    def ahead(self) -> int:
        return AHEAD if self.k else self.slots


@dataclass(slots=True)
class Played:
    """``seconds`` in simulated time. ``discarded``: attempts whose work came to nothing but for a fault of theirs."""

    seconds: float
    staleness: int
    discarded: int
    slots_busy: float


async def play(case: Case, steps: int) -> Played:
    """Run a case through the engine's schedule."""
    load, ended = case.load, 0

    async def attempt(group: Group, number: int, places: Places) -> AttemptResult:
        nonlocal ended
        work = load.work(group.group_id, number)
        for each in work.tries:
            await asyncio.sleep(each.setup / SCALE)
            async with places.sampling(lambda: None):
                await asyncio.sleep(each.run / SCALE)
        async with places.grading(lambda: None):
            await asyncio.sleep(work.grade / SCALE)
        ended += 1
        reward = 1.0 if load.is_dead(group.group_id) else float(number % 2)
        return AttemptResult(AttemptState.DONE, ConversationTrace(), reward=reward)

    async def compare(group: Group) -> None:
        """These attempts have rewards of their own."""

    control = RunControl()
    schedule = Schedule(
        tasks=[Task(object(), "task", 0)],
        order=TaskOrder(1, 0, False),
        settings=ScheduleSettings(
            group_size=GROUP_SIZE,
            groups_per_step=GROUPS_PER_STEP,
            max_steps=steps,
            max_group_losses=0,
            max_consecutive_unusable_groups=1000,
            max_concurrent_rollouts=case.slots,
            max_concurrent_grading=1000,
            setups_ahead=case.ahead,
            max_steps_off_policy=case.k,
            max_policy_delta=case.k,
        ),
        control=control,
        hold=control.wait_if_paused,
        attempt=attempt,
        compare=compare,
        started=lambda group: None,
        ended=lambda group: None,
    )
    told, stale = 0, 0
    clock = asyncio.get_running_loop().time
    schedule.slots = Slots(1000, schedule._slots_changed, clock)
    began = clock()
    try:
        for step in range(steps):
            collected = await schedule.collect()
            told += len(collected.finished)
            stale = max(stale, *(step - group.policy_version for group in collected.usable))
            await asyncio.sleep(case.update / SCALE)
            await schedule.may_publish()
            schedule.published()
    finally:
        seconds = clock() - began
        busy = schedule.slots.seconds() / (seconds * case.slots)
        begun = sum(kept.group.size for kept in schedule._kept.values())
        await schedule.close()
    # Rejected groups are told with the step whose groups are younger: all that began were trained or rejected.
    return Played(seconds * SCALE, stale, begun + ended - (told * GROUP_SIZE), round(busy, 3))


async def slip(stop: asyncio.Event) -> list[float]:
    """How late a timer of 20 ms is, in seconds, until told to stop."""
    late: list[float] = []
    clock = asyncio.get_running_loop().time
    while not stop.is_set():
        before = clock()
        await asyncio.sleep(0.02)
        late.append(clock() - before - 0.02)
    return late


class _Leaping(selectors.DefaultSelector):
    """Waits for nothing, and remembers how long it should have."""

    def __init__(self) -> None:
        super().__init__()
        self.passed = 0.0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        self.passed += max(timeout or 0.0, 0.0)
        return super().select(0)


class LeapingLoop(asyncio.SelectorEventLoop):
    """An event loop whose time passes only while nothing is to be done, and then at once."""

    def __init__(self) -> None:
        self._leaps = _Leaping()
        super().__init__(self._leaps)
        self._clock_resolution = 1e-9  # timers of one moment are still in order

    def time(self) -> float:
        return self._leaps.passed


@lru_cache(maxsize=1000)
def _needed(case: Case, steps: int) -> float:
    return reference(case.load, slots=case.slots, update=case.update, k=case.k, ahead=case.ahead, steps=steps)


async def measure(cases: list[Case], steps: int, at_once: int) -> dict[str, Any]:
    """All cases, ``at_once`` beside each other: each is a few hundred timers a second."""
    for case in cases:  # the workload is drawn before any clock runs
        _needed(case, steps)
    stop, room = asyncio.Event(), asyncio.Semaphore(at_once)
    watching = asyncio.create_task(slip(stop))

    async def one(case: Case) -> Played:
        async with room:
            return await play(case, steps)

    # Long cases first: the last ones then end together.
    ordered = sorted(cases, key=lambda case: -_needed(case, steps))
    played = dict(zip(ordered, await asyncio.gather(*map(one, ordered)), strict=True))
    stop.set()
    late = sorted(await watching)
    rows: list[dict[str, Any]] = []
    groups: dict[tuple[int, float, int, bool], list[Case]] = {}
    for case in cases:
        groups.setdefault((case.slots, case.update, case.k, case.faulty), []).append(case)
    for (slots, update, k, faulty), several in groups.items():
        ratios = [played[case].seconds / _needed(case, steps) for case in several]
        limit = LIMIT_WITH_FAULTS if faulty else LIMIT
        row: dict[str, Any] = {"slots": slots, "update": update, "k": k, "faulty": faulty}
        row["reference"] = round(statistics.fmean(_needed(case, steps) for case in several), 1)
        row["wall"] = round(statistics.fmean(played[case].seconds for case in several), 1)
        row["ratio"] = round(statistics.fmean(ratios), 4)
        row["staleness"] = max(played[case].staleness for case in several)
        row["discarded"] = sum(played[case].discarded for case in several)
        row["slots_busy"] = round(statistics.fmean(played[case].slots_busy for case in several), 3)
        row["ok"] = row["ratio"] <= limit and row["staleness"] <= k and row["discarded"] == 0
        rows.append(row)
    return {
        "steps": steps,
        "scale": SCALE,
        "load": [round(value, 1) for value in os.getloadavg()],
        "timer_slip_p99_ms": round(late[int(0.99 * (len(late) - 1))] * 1000, 1),
        "ok": all(row["ok"] for row in rows),
        "rows": rows,
    }


def _numbers(text: str) -> list[int]:
    return [int(part) for part in text.split(",")]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--slots", type=_numbers, default=[16, 32, 64])
    parser.add_argument("--updates", type=_numbers, default=[2, 6])
    parser.add_argument("--k", type=_numbers, default=[0, 1, 2, 4])
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--steps", type=int, default=STEPS)
    parser.add_argument("--at-once", type=int, default=6, help="cases that run beside each other")
    parser.add_argument("--virtual", action="store_true", help="on a clock that leaps: takes seconds")
    parser.add_argument("--json", action="store_true")
    chosen = parser.parse_args()
    cases = [
        Case(slots, float(update), k, seed, faulty)
        for faulty in (False, True)
        for slots in chosen.slots
        for update in chosen.updates
        for k in chosen.k
        for seed in range(chosen.seeds)
    ]
    with asyncio.Runner(loop_factory=LeapingLoop) as runner:
        alone = runner.run(measure(cases, chosen.steps, chosen.at_once))
    result = alone if chosen.virtual else asyncio.run(measure(cases, chosen.steps, chosen.at_once))
    for row, same in zip(result["rows"], alone["rows"], strict=True):
        row["ratio_alone"] = same["ratio"]
    result["virtual"] = chosen.virtual
    if chosen.json:
        print(json.dumps(result))
        return
    print(
        f"{result['steps']} steps of {GROUPS_PER_STEP} x {GROUP_SIZE}, {chosen.seeds} seeds, 1/{SCALE:.0f} time, "
        f"load {result['load']}, timers late by {result['timer_slip_p99_ms']} ms (p99)"
    )
    print("slots update k faulty | reference    wall  ratio alone | staleness discarded busy | ok")
    for row in result["rows"]:
        print(
            f"{row['slots']:>5} {row['update']:>6g} {row['k']} {row['faulty']!s:>6} | {row['reference']:>9.1f} "
            f"{row['wall']:>7.1f} {row['ratio']:>6.3f} {row['ratio_alone']:>5.3f} | {row['staleness']:>9} {row['discarded']:>9} "
            f"{row['slots_busy']:>4.2f} | {'yes' if row['ok'] else 'NO'}"
        )


if __name__ == "__main__":
    main()
