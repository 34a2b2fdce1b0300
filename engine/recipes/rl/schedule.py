"""When groups and their attempts begin, and which groups a step trains on: one schedule for sync and for async.

Strict admission, FIFO batches. Groups count up; those that teach nothing free their place. A group may sample under
policy version ``v`` iff fewer than (v + k + 1) x groups_per_step groups before it are kept (k:
``max_steps_off_policy``; 0 is sync mode), and step ``b`` trains the oldest groups_per_step kept ones, waiting for them.
So no trained group is older than k updates, nothing is thrown away for its age, and short attempts are not preferred.

An attempt is set up, samples while it holds one of ``max_concurrent_rollouts`` slots, and is graded. Setups may run
ahead of a slot and of admission; grading has a limit of its own. Both limits count an evaluation's attempts too.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from engine.episodes.contract import Task
from engine.episodes.places import Places
from engine.episodes.runtime import AttemptResult
from engine.recipes.control import RunControl
from engine.recipes.rl.groups import Collected, Group, judge
from engine.recipes.rl.kept import Kept
from engine.recipes.rl.order import TaskOrder
from engine.recipes.rl.slots import AttemptPlaces, Key, Slots

#: Attempts that are begun, and attempts that get a slot, in one turn of the event loop: an episode's own code may take
#: some milliseconds at once then, and hundreds of them in one turn would hold up everything else for a second.
SLOTS_A_TURN = SETUPS_A_TURN = 8
CLOSE_SECONDS = 120.0


@dataclass(frozen=True, slots=True)
class ScheduleSettings:
    """How many of what; see ``[training]``. ``max_steps``: no group begins that no step of the run could train.
    ``max_concurrent_evaluation``: an evaluation's attempts may fill so many slots, where that is more."""

    group_size: int
    groups_per_step: int
    max_steps: int
    max_group_losses: int
    max_consecutive_unusable_groups: int
    max_concurrent_rollouts: int
    max_concurrent_grading: int
    setups_ahead: int = 0
    max_steps_off_policy: int = 0
    max_policy_delta: int = 0
    max_concurrent_evaluation: int = 0


class Schedule:
    """Begins groups in the background and hands over a step's worth at a time. ``close`` it, however the run ends.

    Args:
        hold: returns when new work may begin; it waits while the run is paused.
        attempt: runs attempt ``j`` of a group to its end within places; never raises for one attempt's bad luck.
        compare: grades a group's attempts against each other, where that is done.
        started: called when a group begins; its policy version is not final yet.
        sampling: called when a group's first attempt samples, for its policy version holds from now on, and whenever it
            will be trained a step earlier.
        ended: called when a group is judged.
    """

    def __init__(
        self,
        *,
        tasks: list[Task[object]],
        order: TaskOrder,
        settings: ScheduleSettings,
        control: RunControl,
        hold: Callable[[], Awaitable[None]],
        attempt: Callable[[Group, int, Places], Awaitable[AttemptResult]],
        compare: Callable[[Group], Awaitable[None]],
        started: Callable[[Group], None],
        sampling: Callable[[Group], None] = lambda _: None,
        ended: Callable[[Group], None],
    ) -> None:
        self._tasks, self._order, self._settings, self._control = tasks, order, settings, control
        self._hold, self._attempt, self._compare = hold, attempt, compare
        self._started, self._sampling, self._ended = started, sampling, ended
        self.version = 0
        self.frontier = 0  # groups with lower ids are trained on or rejected, and told
        self.unusable_groups = 0
        self.unusable_before_frontier = 0
        most = settings.max_concurrent_rollouts
        self.slots = Slots(settings.max_concurrent_grading, self._slots_changed, ungraded=most)
        self.attempts_ended = 0
        self._next_group = 0
        self._consecutive_unusable = 0
        self._kept: dict[int, Kept] = {}  # by id, ascending
        self._decided: dict[int, Group] = {}  # judged, not yet told by ``collect``
        self._publishing = self._collecting = self._gave_up = self._closed = False
        self._given = self._begun = 0  # slots, and attempts, in this turn of the event loop
        self._background: set[asyncio.Task[None]] = set()
        self._watching: asyncio.Task[None] | None = None
        self._changed = asyncio.Event()
        self._error: BaseException | None = None

    def go_on(
        self, *, version: int, next_group: int, unusable_groups: int, consecutive_unusable: int
    ) -> None:
        """Before anything begins: where a resumed run stands."""
        self.version, self.frontier, self._next_group = version, next_group, next_group
        self.unusable_groups = self.unusable_before_frontier = unusable_groups
        self._consecutive_unusable = consecutive_unusable

    @property
    def untrained(self) -> list[int]:
        """Groups from the frontier on that have begun: in flight, or ready and not trained on."""
        return list(range(self.frontier, self._next_group))

    @property
    def waits_for(self) -> tuple[int, int] | None:
        """The oldest group that the next batch waits for, and how many of its attempts have not ended."""
        waited = next((kept for kept in self._batch if not kept.usable), None)
        return None if waited is None else (waited.group.group_id, waited.left)

    def guest(self, group_id: int, attempt: int) -> Places:
        """Places of an evaluation's attempt: among the same slots, and before the schedule's own attempts. They are
        given at any time, before the first ``collect`` and after ``close`` too."""
        return self.slots.guest((group_id, attempt))

    def is_ahead(self, attempt: tuple[int, int | None]) -> bool:
        """Whether nobody waits for an attempt of a group yet: it may be set up, but not sample."""
        kept = self._kept.get(attempt[0])
        return kept is not None and not kept.in_hand

    async def collect(self) -> Collected:
        """Wait for a step's worth of usable groups; groups of later steps go on meanwhile and afterwards.

        Once the run is to stop, the step in hand is finished, in sync mode with further groups for those that teach
        nothing; groups of later steps are cancelled. The result holds fewer groups than a step needs where none had
        sampled yet, where too many in a row taught nothing, and where one that taught nothing could only be replaced
        past the cancelled ones: their tasks would be skipped.

        Raises:
            LoopsUnavailable: what ended an attempt ends the run.
        """
        if self._watching is None:
            self._watching = asyncio.create_task(self._watch_control(), name="schedule")
        self._collecting = True
        self._pump()
        try:
            return await self._collect(time.monotonic())
        finally:
            self._collecting = False

    async def _collect(self, begun: float) -> Collected:
        while self._error is None:
            batch = self._batch
            complete = len(batch) == self._settings.groups_per_step and all(kept.usable for kept in batch)
            busy = any(kept.in_hand and not kept.usable for kept in batch)
            ending = self._control.stopping and (self._gave_up or not self._step_in_hand)
            over = self._exhausted or ending
            if complete or (over and not busy):
                return self._handed_over(complete, time.monotonic() - begun)
            if not busy and self._control.paused:
                await self._hold()
                self._pump()
                continue
            self._changed.clear()
            await self._changed.wait()  # bounded by the deadlines of the attempts that are waited for
        raise self._error

    async def may_publish(self) -> None:
        """Wait until a publish makes no running attempt cross more than ``max_policy_delta`` versions.

        Bounded by the deadlines of those attempts: nothing begins meanwhile that the publish would have to wait for.
        """
        self._publishing = True
        limit = self._settings.max_policy_delta
        while (oldest := self.slots.oldest) is not None and self.version + 1 - oldest > limit:
            if self._error is not None:
                raise self._error
            self._changed.clear()
            await self._changed.wait()

    def published(self) -> None:
        """The batch that was handed over last is trained on and its policy serves: later groups may begin."""
        for kept in self._batch:
            del self._kept[kept.group.group_id]
        self._publishing = False
        self.version += 1
        self._pump()

    async def close(self) -> None:
        """Cancel everything in flight and wait until it has let go of what it held: what does not is left behind."""
        self._closed = True
        if tasks := [*self._background, *([self._watching] if self._watching is not None else [])]:
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks, timeout=CLOSE_SECONDS)

    @property
    def _batch(self) -> list[Kept]:
        """The kept groups that the next update trains on, as far as they have begun."""
        return list(self._kept.values())[: self._settings.groups_per_step]

    @property
    def _exhausted(self) -> bool:
        return self._consecutive_unusable >= self._settings.max_consecutive_unusable_groups

    @property
    def _step_in_hand(self) -> bool:
        """Whether a step is waited for that has cost something: one of its groups has sampled."""
        begun = bool(self._decided) or any(kept.sampled for kept in self._batch)
        return begun and self._collecting and not self._control.aborted

    @property
    def _held(self) -> bool:
        """Whether no further group may come into hand now."""
        if self._control.stopping and not self._step_in_hand:
            return True
        return self._control.paused or self._exhausted

    @property
    def _window(self) -> int:
        """How many of the oldest kept groups may be in hand: of the last step's alone where the run is to stop."""
        ahead = 0 if self._control.stopping else self._settings.max_steps_off_policy
        return (ahead + 1) * self._settings.groups_per_step

    def _handed_over(self, complete: bool, seconds: float) -> Collected:
        usable = [kept.group for kept in self._batch if kept.usable]
        frontier = usable[-1].group_id + 1 if complete else self._next_group
        told = [group_id for group_id in sorted(self._decided) if group_id < frontier]
        finished = [self._decided.pop(group_id) for group_id in told]
        if complete:
            for group in usable:
                assert 0 <= self.version - group.policy_version <= self._settings.max_steps_off_policy
            self.frontier = frontier
            self.unusable_before_frontier += len(finished) - len(usable)
        return Collected(usable, finished, self._exhausted, seconds)

    # Beginning things

    def _pump(self) -> None:
        """Begin whatever may begin now."""
        self._give_guests()
        if self._closed or self._watching is None or self._error is not None:
            return
        window = self._window
        self._admit(window)
        self._give_slots()
        while self._begun < SETUPS_A_TURN and (kept := self._next_to_set_up()) is not None:
            admissible = list(self._kept).index(kept.group.group_id) < window
            if admissible and not self._held:
                kept.in_hand = True
            limit = self._settings.setups_ahead
            if admissible:
                limit += self._settings.max_concurrent_rollouts - self.slots.used
            if self.slots.ahead >= limit:
                if not kept.tasks:  # it has not begun after all
                    del self._kept[kept.group.group_id]
                return
            self._set_up(kept)

    def _admit(self, window: int) -> None:
        if not self._held:
            for kept in list(self._kept.values())[:window]:
                kept.in_hand = True

    def _give_guests(self) -> None:
        most = max(self._settings.max_concurrent_rollouts, self._settings.max_concurrent_evaluation)
        for key in self.slots.guests:
            if self.slots.used < most and self._given < SLOTS_A_TURN:
                self._give(key)

    def _give_slots(self) -> None:
        limits = self._settings
        for group_id, attempt in self.slots.waiting:
            # A policy that is about to be published must not be waited for by what would have to be waited for.
            stopped = self._publishing and limits.max_policy_delta == 0
            if stopped or self.slots.used >= limits.max_concurrent_rollouts or self._given == SLOTS_A_TURN:
                return
            kept = self._kept.get(group_id)
            if kept is None or not kept.in_hand:
                continue
            if not kept.sampled:
                kept.sampled = True
                kept.group.policy_version = self.version
                kept.group.for_step = self._step_of(group_id)
                self._sampling(kept.group)
            self._give((group_id, attempt))

    def _give(self, key: Key) -> None:
        self.slots.give(key, self.version)
        self._await_next_turn()
        self._given += 1

    def _await_next_turn(self) -> None:
        if not self._given and not self._begun:
            asyncio.get_running_loop().call_soon(self._next_turn)

    def _next_turn(self) -> None:
        self._given = self._begun = 0
        self._pump()

    def _next_to_set_up(self) -> Kept | None:
        """The oldest group with attempts that have not begun: a new one where all have."""
        held, stopping = self._held, self._control.stopping
        for kept in self._batch if stopping else self._kept.values():
            if not kept.all_begun and (kept.in_hand or not held):
                return kept
        steps = 1 if stopping else self._settings.max_steps - self.version
        full = len(self._kept) >= steps * self._settings.groups_per_step
        if held or full or (stopping and self._gave_up):
            return None
        index, epoch = self._order.of(self._next_group)
        size = self._settings.group_size
        group = Group(self._next_group, self._tasks[index], epoch, size, self.version, [None] * size)
        self._kept[group.group_id] = Kept(group, left=size)
        return self._kept[group.group_id]

    def _set_up(self, kept: Kept) -> None:
        group = kept.group
        if not kept.tasks:
            self._next_group = group.group_id + 1
            group.started_at, group.for_step = time.time(), self._step_of(group.group_id)
            self._started(group)
        self._await_next_turn()
        self._begun += 1
        attempt = len(kept.tasks)
        places = self.slots.begin((group.group_id, attempt))
        work = self._one(kept, attempt, places)
        task = asyncio.create_task(work, name=f"group {group.group_id} attempt {attempt}")
        kept.tasks.append(task)
        self._background.add(task)
        task.add_done_callback(lambda task: self._left(task, places))

    def _step_of(self, group_id: int) -> int:
        """The step that trains a kept group, if none before it is rejected."""
        return self.version + list(self._kept).index(group_id) // self._settings.groups_per_step + 1

    def _slots_changed(self) -> None:
        self._pump()
        self._changed.set()

    # While they run

    async def _one(self, kept: Kept, attempt: int, places: AttemptPlaces) -> None:
        try:
            kept.group.results[attempt] = await self._attempt(kept.group, attempt, places)
            places.over()
            kept.left -= 1
            self.attempts_ended += 1
            if kept.left == 0:
                await self._judge(kept)
        except Exception as error:  # noqa: BLE001 - whatever it is ends the run: ``collect`` raises it
            self._error = self._error or error

    def _left(self, task: asyncio.Task[None], places: AttemptPlaces) -> None:
        """An attempt has ended, or was cancelled before it ever ran."""
        self._background.discard(task)
        places.over()
        self._slots_changed()

    async def _judge(self, kept: Kept) -> None:
        group = kept.group
        await self._compare(group)
        group.ended_at = time.time()
        group.verdict = judge(group, self._settings.max_group_losses)
        self._decided[group.group_id] = group
        if group.verdict.usable:
            self._consecutive_unusable = 0
        else:
            del self._kept[group.group_id]
            self.unusable_groups += 1
            self._consecutive_unusable += 1
            self._move_up()
        self._ended(group)

    def _move_up(self) -> None:
        for kept in self._kept.values():
            step = self._step_of(kept.group.group_id)
            if kept.tasks and kept.group.for_step != step:
                kept.group.for_step = step
                self._sampling(kept.group)

    async def _watch_control(self) -> None:
        """Begin or give up groups as people ask; until cancelled."""
        seen = self._control.wishes
        while True:
            if self._control.stopping:
                # While nothing is waited for, the oldest are what is being trained on.
                needed = self._batch if self._step_in_hand or not self._collecting else []
                if self._step_in_hand and self._settings.max_steps_off_policy == 0:
                    needed = list(self._kept.values())  # set up ahead: the next in line
                for kept in list(self._kept.values()):
                    if kept not in needed:
                        self._give_up(kept)
            self._pump()
            self._changed.set()
            seen = await self._control.wait_changed(seen)

    def _give_up(self, kept: Kept) -> None:
        del self._kept[kept.group.group_id]
        self._gave_up = self._gave_up or bool(kept.tasks)
        for task in kept.tasks:
            task.cancel()
