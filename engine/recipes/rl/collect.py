"""Collecting a step's groups: attempts under a limit, groups judged as they end, unusable ones replaced."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

from engine.episodes.contract import Task
from engine.episodes.runtime import AttemptResult
from engine.recipes.control import RunControl
from engine.recipes.rl.groups import Group, judge
from engine.recipes.rl.order import TaskOrder


@dataclass(frozen=True, slots=True)
class CollectSettings:
    """How many of what; see ``[training]``."""

    group_size: int
    groups_per_step: int
    max_group_losses: int
    max_consecutive_unusable_groups: int
    max_concurrent_rollouts: int


@dataclass(slots=True)
class Collected:
    """What one step's rollout gave. ``exhausted``: too many groups in a row taught nothing."""

    usable: list[Group] = field(default_factory=list)
    finished: list[Group] = field(default_factory=list)
    exhausted: bool = False
    seconds: float = 0.0


class Collector:
    """Starts groups and gathers those that train.

    Sync mode: all groups of a step are sampled under the policy published last. As many run as are still needed,
    and a group that teaches nothing is replaced at once by the next task's.

    Args:
        hold: returns when new work may begin; it waits while the run is paused.
        attempt: runs attempt ``j`` of a group to its end; never raises for one attempt's bad luck.
        compare: grades a group's attempts against each other, where that is done.
        started, ended: called when a group begins and when it is judged.
    """

    def __init__(
        self,
        *,
        tasks: list[Task[object]],
        order: TaskOrder,
        settings: CollectSettings,
        control: RunControl,
        hold: Callable[[], Awaitable[None]],
        attempt: Callable[[Group, int], Awaitable[AttemptResult]],
        compare: Callable[[Group], Awaitable[None]],
        started: Callable[[Group], None],
        ended: Callable[[Group], None],
    ) -> None:
        self._tasks, self._order, self._settings, self._control = tasks, order, settings, control
        self._hold = hold
        self._attempt, self._compare = attempt, compare
        self._started, self._ended = started, ended
        self._slots = asyncio.Semaphore(settings.max_concurrent_rollouts)
        self.next_group = 0
        self.consecutive_unusable = 0
        self.unusable_groups = 0

    async def collect(self, policy_version: int) -> Collected:
        """Run groups until a step's worth is usable, or too many in a row were not.

        Once the run is to stop, the groups in flight are finished, but no unusable one is replaced: the result may
        then hold fewer groups than a step needs.
        """
        begun = time.monotonic()
        result = Collected()
        running: set[asyncio.Task[Group]] = set()
        try:
            while len(result.usable) < self._settings.groups_per_step:
                wanted = self._settings.groups_per_step - len(result.usable) - len(running)
                if not result.exhausted and not self._control.stopping:
                    for _ in range(wanted):
                        await self._hold()
                        running.add(asyncio.create_task(self._group(policy_version)))
                if not running:
                    break
                done, running = await asyncio.wait(running, return_when=asyncio.FIRST_COMPLETED)
                for group in sorted((task.result() for task in done), key=lambda group: group.group_id):
                    self._take(group, result)
        finally:
            for task in running:
                task.cancel()
            # Whatever a cancelled attempt ends with, nobody needs it any more.
            await asyncio.gather(*running, return_exceptions=True)
        result.seconds = time.monotonic() - begun
        return result

    def _take(self, group: Group, result: Collected) -> None:
        result.finished.append(group)
        assert group.verdict is not None
        if group.verdict.usable:
            result.usable.append(group)
            result.exhausted = False
            self.consecutive_unusable = 0
            return
        self.unusable_groups += 1
        self.consecutive_unusable += 1
        if self.consecutive_unusable >= self._settings.max_consecutive_unusable_groups:
            result.exhausted = True

    async def _group(self, policy_version: int) -> Group:
        group_id = self.next_group
        self.next_group += 1
        index, epoch = self._order.of(group_id)
        size = self._settings.group_size
        group = Group(
            group_id, self._tasks[index], epoch, size, policy_version, [None] * size, started_at=time.time()
        )
        self._started(group)

        async def one(attempt: int) -> None:
            async with self._slots:
                group.results[attempt] = await self._attempt(group, attempt)

        # A TaskGroup: what ends the run (Loops gone) cancels the other attempts and surfaces at once.
        try:
            async with asyncio.TaskGroup() as attempts:
                for attempt in range(size):
                    attempts.create_task(one(attempt))
        except ExceptionGroup as several:  # all of one cause: the first says it
            raise several.exceptions[0] from several
        await self._compare(group)
        group.ended_at = time.time()
        group.verdict = judge(group, self._settings.max_group_losses)
        self._ended(group)
        return group
