"""A schedule over attempts that end when a test says so."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field

from engine.episodes import Task
from engine.episodes.places import Places
from engine.episodes.runtime import AttemptResult
from engine.policy.conversation import ConversationTrace
from engine.recipes.control import RunControl
from engine.recipes.rl.groups import Group
from engine.recipes.rl.order import TaskOrder
from engine.recipes.rl.schedule import Schedule, ScheduleSettings
from engine.store.rows import AttemptState

ANY = 10_000


async def settle() -> None:
    """Let everything run that can run without news from outside."""
    for _ in range(50):
        await asyncio.sleep(0)


@dataclass
class Bench:
    """Rewards are given by (group, attempt). Without ``by_hand`` attempts end at once; with it, a phase of a group
    (("setup", 0), ("run", 0), ("grade", 0)) ends when its gate is opened."""

    reward: Callable[[int, int], float | None] = lambda _group, attempt: float(attempt % 2)
    groups_per_step: int = 1
    size: int = 2
    concurrent: int = 100
    grading: int = 100
    evaluation: int = 0
    ahead: int = 0
    k: int = 0
    delta: int | None = None
    max_steps: int = ANY
    unusable: int = 3
    losses: int = 0
    by_hand: bool = False
    started: list[int] = field(default_factory=list)
    steps: dict[int, int] = field(default_factory=dict)  # of groups that sample: which one trains them
    now: dict[str, set[tuple[int, int]]] = field(default_factory=lambda: defaultdict(set))
    most: dict[str, int] = field(default_factory=lambda: defaultdict(int))
    gates: dict[tuple[str, int], asyncio.Event] = field(default_factory=lambda: defaultdict(asyncio.Event))
    fails: Exception | None = None  # what the first attempt of the last gate raises

    def __post_init__(self) -> None:
        self.control = RunControl()
        self.schedule = Schedule(
            tasks=[Task(object(), str(i), i) for i in range(3)],
            order=TaskOrder(3, 0, False),
            settings=ScheduleSettings(
                group_size=self.size,
                groups_per_step=self.groups_per_step,
                max_steps=self.max_steps,
                max_group_losses=self.losses,
                max_consecutive_unusable_groups=self.unusable,
                max_concurrent_rollouts=self.concurrent,
                max_concurrent_grading=self.grading,
                setups_ahead=self.ahead,
                max_steps_off_policy=self.k,
                max_policy_delta=self.k if self.delta is None else self.delta,
                max_concurrent_evaluation=self.evaluation,
            ),
            control=self.control,
            hold=self.control.wait_if_paused,
            attempt=self.attempt,
            compare=self.compare,
            started=lambda group: self.started.append(group.group_id),
            sampling=lambda group: self.steps.update({group.group_id: group.for_step}),
            ended=lambda group: None,
        )

    async def attempt(self, group: Group, index: int, places: Places) -> AttemptResult:
        key = (group.group_id, index)
        await self._phase("setup", key)
        async with places.sampling(lambda: None):
            await self._phase("run", key)
        async with places.grading(lambda: None):
            await self._phase("grade", key)
        reward = self.reward(*key)
        state = AttemptState.LOST if reward is None else AttemptState.DONE
        return AttemptResult(state, ConversationTrace(), reward=reward)

    async def _phase(self, name: str, key: tuple[int, int]) -> None:
        self.now[name].add(key)
        self.most[name] = max(self.most[name], len(self.now[name]))
        try:
            await (self.gates[name, key[0]].wait() if self.by_hand else asyncio.sleep(0))
            if self.fails is not None and key[1] == 0:
                raise self.fails
        finally:
            self.now[name].discard(key)

    async def compare(self, group: Group) -> None:
        """These attempts have rewards of their own."""

    def open(self, group: int, *phases: str) -> None:
        """Let all attempts of a group through these phases; all three by default."""
        for phase in phases or ("setup", "run", "grade"):
            self.gates[phase, group].set()

    def groups_in(self, phase: str) -> list[int]:
        """Groups with attempts in a phase now."""
        return sorted({group for group, _ in self.now[phase]})

    async def step(self) -> list[int]:
        """A whole step: the ids of the groups that it trained."""
        collected = await self.schedule.collect()
        await self.schedule.may_publish()
        self.schedule.published()
        return [group.group_id for group in collected.usable]
