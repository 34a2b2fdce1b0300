"""The reference workload of the schedule's benchmark, and the work-conserving schedule that it is measured against.

The workload is a function of (seed, group, attempt) alone, so no schedule changes it. Seconds of simulated time.
"""

from __future__ import annotations

import heapq
import itertools
import random
from dataclasses import dataclass, field
from functools import lru_cache

STEPS, GROUPS_PER_STEP, GROUP_SIZE = 40, 4, 8


@dataclass(frozen=True, slots=True)
class Try:
    """One try of an attempt: ``run`` is how long it runs, to its end or until its infrastructure fails."""

    setup: float
    run: float
    fails: bool = False


@dataclass(frozen=True, slots=True)
class Work:
    """An attempt: its tries, the last of which succeeds, and its grading."""

    tries: tuple[Try, ...]
    grade: float


@dataclass(frozen=True, slots=True)
class Workload:
    """``dead``: share of groups whose attempts all score alike. ``faults``: share of tries that fail half-way."""

    seed: int
    dead: float = 0.0
    faults: float = 0.0

    def is_dead(self, group: int) -> bool:
        """Whether a group teaches nothing."""
        return random.Random(f"{self.seed}/{group}/dead").random() < self.dead

    def work(self, group: int, attempt: int) -> Work:
        """What an attempt takes."""
        return _work(self.seed, self.faults, group, attempt)


@lru_cache(maxsize=100_000)
def _work(seed: int, faults: float, group: int, attempt: int) -> Work:
    rng = random.Random(f"{seed}/{group}/{attempt}")
    turns = min(12, 1 + int(rng.expovariate(1 / 5)))
    run = 0.0
    for _ in range(turns):
        run += rng.lognormvariate(-0.9, 0.6)
        run += rng.lognormvariate(-1.9, 1.0)
        if rng.random() < 0.02:
            run += min(8.0, rng.paretovariate(1.2))
    setup, grade = rng.lognormvariate(-0.2, 0.4), rng.lognormvariate(-0.9, 0.4)
    tries = [Try(setup, run)]
    again = random.Random(f"{seed}/{group}/{attempt}/faults")
    while again.random() < faults and len(tries) < 3:
        tries.insert(0, Try(setup, run / 2, fails=True))
    return Work(tuple(tries), grade)


@dataclass
class _Reference:
    """An event simulation; see :func:`reference`."""

    load: Workload
    slots: int
    update: float
    k: int
    ahead: int
    steps: int
    now: float = 0.0
    version: int = 0
    busy: int = 0
    setting: int = 0
    training: bool = False
    events: list[tuple[float, int, str, tuple[int, int], int]] = field(default_factory=list)
    ready: list[tuple[int, int, int]] = field(default_factory=list)  # (group, attempt, try)
    kept: list[int] = field(default_factory=list)
    begun: dict[int, int] = field(default_factory=dict)  # attempts that have begun, by group
    left: dict[int, int] = field(default_factory=dict)
    fresh: int = 0

    def __post_init__(self) -> None:
        self.order = itertools.count()

    def push(self, after: float, kind: str, key: tuple[int, int], number: int) -> None:
        heapq.heappush(self.events, (self.now + after, next(self.order), kind, key, number))

    def admissible(self, group: int) -> bool:
        return self.kept.index(group) < (self.k + 1) * GROUPS_PER_STEP

    def next_group(self) -> int | None:
        for group in self.kept:
            if self.begun[group] < GROUP_SIZE:
                return group
        if self.version * GROUPS_PER_STEP + len(self.kept) >= self.steps * GROUPS_PER_STEP:
            return None
        group, self.fresh = self.fresh, self.fresh + 1
        self.kept.append(group)
        self.begun[group], self.left[group] = 0, GROUP_SIZE
        return group

    def pump(self) -> None:
        while (group := self.next_group()) is not None:
            held, admissible = self.setting + len(self.ready), self.admissible(group)
            if not (
                (admissible and held + self.busy < self.slots + self.ahead)
                or (not admissible and held < self.ahead)
            ):
                break
            attempt = self.begun[group]
            self.begun[group] += 1
            self.setting += 1
            self.push(self.load.work(group, attempt).tries[0].setup, "ready", (group, attempt), 0)
        self.ready.sort()
        while self.ready and self.busy < self.slots and self.admissible(self.ready[0][0]):
            group, attempt, number = self.ready.pop(0)
            self.busy += 1
            self.push(self.load.work(group, attempt).tries[number].run, "ran", (group, attempt), number)
        batch = self.kept[:GROUPS_PER_STEP]
        if not self.training and len(batch) == GROUPS_PER_STEP and not any(self.left[g] for g in batch):
            self.training = True
            self.push(self.update, "published", (0, 0), 0)

    def play(self) -> float:
        self.pump()
        while self.events:
            self.now, _, kind, key, number = heapq.heappop(self.events)
            group, attempt = key
            if kind == "ready":
                self.setting -= number == 0
                self.ready.append((group, attempt, number))
            elif kind == "ran":
                self.busy -= 1
                work = self.load.work(group, attempt)
                if work.tries[number].fails:
                    self.push(work.tries[number + 1].setup, "ready", key, number + 1)
                else:
                    self.push(work.grade, "graded", key, number)
            elif kind == "graded":
                self.left[group] -= 1
                if self.left[group] == 0 and self.load.is_dead(group):
                    self.kept.remove(group)
            else:
                self.training = False
                self.version += 1
                del self.kept[:GROUPS_PER_STEP]
                if self.version == self.steps:
                    return self.now
            self.pump()
        raise RuntimeError("the reference schedule is stuck")


def reference(load: Workload, *, slots: int, update: float, k: int, ahead: int, steps: int = STEPS) -> float:
    """Seconds that a work-conserving schedule with FIFO batches and strict admission needs.

    Args:
        slots: attempts that run at once. update: seconds of training and publishing a step.
        k: updates that a group's policy may be behind. ahead: attempts set up before they may run.
    """
    return _Reference(load, slots, update, k, ahead, steps).play()
