"""The RL loop: collect groups, train on those that teach something, publish, tell the store; until done.

What is sampled when, under which policy, is the schedule's: see ``engine.recipes.rl.schedule``.
"""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Any

from engine.collecting import spare_what_stays
from engine.config.settings import Settings
from engine.episodes.contract import Episode, Task
from engine.loops.canary import Canary
from engine.loops.session import LoopsSession
from engine.policy.first_replies import FirstReplies
from engine.recipes.contract import Outcome, RunFailed, RunHandle
from engine.recipes.cursor import Identity
from engine.recipes.evaluation.held_out import HeldOut
from engine.recipes.frame import carry, spend_meter
from engine.recipes.rl.connecting import Connections
from engine.recipes.rl.cursor import Cursor, identity_of
from engine.recipes.rl.groups import Collected
from engine.recipes.rl.metrics import StepSeconds, reward_metrics, step_metrics
from engine.recipes.rl.order import TaskOrder
from engine.recipes.rl.pace import LoopLag, Pace, StepClock, Totals
from engine.recipes.rl.parts import deadlines_of
from engine.recipes.rl.report import Reporter
from engine.recipes.rl.rollout import Rollout
from engine.recipes.rl.schedule import Schedule, ScheduleSettings
from engine.recipes.rl.updating import Updater
from engine.recipes.rl.wording import exhausted_line, solved_line, step_line, untrained_line
from engine.recipes.saving import Saver
from engine.recipes.spending import SpendMeter
from engine.store.rows import RunState, StepRow

if TYPE_CHECKING:
    from engine.project import Project


#: How often the live figures are told.
PACE_SECONDS = 2.0


async def train(project: Project, handle: RunHandle) -> Outcome:
    """Run an RL config to its end, from its beginning or from ``handle.resume_from`` on. See ``frame.carry``."""
    meter = await asyncio.to_thread(spend_meter, project, handle)
    return await carry(_Run(project, handle, meter), project, handle, meter)


class _Run:
    """One run's moving parts."""

    def __init__(self, project: Project, handle: RunHandle, meter: SpendMeter) -> None:
        self.project, self.handle, self.settings = project, handle, project.rl
        self.meter = meter
        self.reporter = Reporter(handle, self.settings.output.trace)
        self.connections = Connections(project, handle, self.reporter.phase)
        self.saver = Saver(handle, self.settings.output.checkpoint_every)
        self.step = 0
        self.reward_first: float | None = None
        self.reward_last: float | None = None
        self._reward_best: float | None = None
        self._schedule: Schedule | None = None
        self._held_out: HeldOut | None = None
        self._lag = LoopLag()
        self._last_step: StepRow | None = None  # the last that was finished in this sitting
        self._training = False  # whether the trainer may hold a part of a step

    async def main(self) -> Outcome:
        handle, training = self.handle, self.settings.training
        episode = self.project.episode()
        tasks: list[Task[Any]] = [Task(task.value, task.id, task.index) for task in self.project.tasks()]
        identity = await asyncio.to_thread(identity_of, self.project)
        sandboxes = await self.connections.open_sandboxes()
        handle.recorder.run(state=RunState.STARTING)
        self.reporter.phase("provisioning Loops")
        session, renderer = await self.connections.connect()
        spare_what_stays()
        handle.recorder.run(state=RunState.RUNNING, policy_version=session.version)

        attempts = Rollout(
            handle=handle,
            settings=self.settings,
            reporter=self.reporter,
            sampler=self.meter.metered(session),
            first=self._first_replies(session),
            renderer=renderer,
            episode=episode.cls,
            options=episode.options,
            deadlines=deadlines_of(self.project),
            sandboxes=sandboxes,
        )
        schedule = self._schedule = Schedule(
            tasks=tasks,
            order=TaskOrder(len(tasks), training.seed, training.shuffle_tasks),
            settings=schedule_settings(self.settings, episode.cls),
            control=handle.control,
            hold=self._hold,
            attempt=attempts.attempt,
            compare=attempts.compare,
            started=self.reporter.group_started,
            sampling=self.reporter.group_sampling,
            ended=self.reporter.group_judged,
        )
        if sandboxes is not None:
            sandboxes.let_wait(schedule.is_ahead)
        self._clock = StepClock(schedule.slots.seconds, time.monotonic)
        self._go_on(schedule)
        self._held_out = HeldOut(
            self.project,
            handle,
            renderer=renderer,
            deadlines=deadlines_of(self.project),
            sandboxes=sandboxes,
            session=session,
            metered=self.meter.metered,
            places=schedule.guest,
            told=self.reporter.phase,
            changed=self.reporter.step_changed,
        )
        pace = asyncio.create_task(self._tell_pace(schedule, self._held_out), name="pace")
        lag = asyncio.create_task(self._lag.watch(), name="loop lag")
        try:
            await self._held_out.at_start(self.step)
            return await self._steps(session, schedule, identity, self._held_out)
        finally:
            pace.cancel()
            lag.cancel()
            await schedule.close()

    async def _steps(
        self, session: LoopsSession, schedule: Schedule, identity: Identity, held_out: HeldOut
    ) -> Outcome:
        """Train step after step, until there are enough or something ends it."""
        handle, training = self.handle, self.settings.training
        canary = Canary(session, lambda level, text: handle.log(level, "loops", text))
        updater = Updater(
            self.settings,
            session,
            schedule,
            canary,
            phase=self.reporter.phase,
            warn=lambda text: handle.log("warning", "loops", text),
        )
        while self.step < training.max_steps:
            await self._hold()
            if handle.control.stopping:
                return await self._stopped()
            row = self.reporter.step_began(self.step + 1)
            self.reporter.phase("sampling")
            self._clock.begin()
            collected = await schedule.collect()
            handle.recorder.run(unusable_groups=schedule.unusable_groups)
            if len(collected.usable) < training.groups_per_step:
                self._note_rewards(collected)
                await schedule.close()
                self.reporter.unfinished("stopped")
                row.state, row.ended_at = "unfinished", time.time()
                row.metrics = reward_metrics([], collected.finished)
                self.reporter.step_changed(row)
                if collected.exhausted:
                    return await self._exhausted(collected)
                if collected.finished and not handle.control.aborted:
                    usable, needed = len(collected.usable), training.groups_per_step
                    handle.log("info", "run", untrained_line(row.step, usable, needed))
                return await self._stopped()
            row.state = "training"
            self.reporter.step_changed(row)
            row.metrics = await self._update(session, updater, collected)
            del collected  # its attempts must not stay in memory while the next ones are sampled
            row.metrics["slots/busy"] = self._clock.busy(self.settings.max_concurrent_rollouts)
            if (late := self._lag.of_step()) is not None:
                row.metrics["time/loop_lag_p99"] = late
            row.state, row.ended_at, row.policy_version = "done", time.time(), session.version
            self.reporter.step_changed(row)
            # What a checkpoint says is told after all rows of its step: a resume finds either both or neither.
            self.saver.stands(session, row, self._cursor(identity, schedule).to_row())
            self._last_step = row
            self._training = False
            await self.meter.look()
            if not handle.control.stopping and self.step < training.max_steps:
                await self.saver.after_step()
                await held_out.after_step(row)
        return await self._end(RunState.DONE, "end")

    def _first_replies(self, session: LoopsSession) -> FirstReplies | None:
        if not self.settings.sampling.share_first_call:
            return None
        return FirstReplies(
            self.meter.metered_many(session),
            lambda: session.version,
            lambda text: self.handle.log("warning", "loops", text),
        )

    def _go_on(self, schedule: Schedule) -> None:
        """Where the run is resumed, set every counter as its checkpoint has it."""
        point = self.handle.resume_from
        if point is None:
            return
        cursor = Cursor.from_row(point.cursor)
        self.step = point.step
        self.reward_first, self.reward_last = cursor.reward_first, cursor.reward_last
        self._reward_best = cursor.reward_best
        schedule.go_on(
            version=point.step,
            next_group=cursor.next_group,
            unusable_groups=cursor.unusable_groups,
            consecutive_unusable=cursor.consecutive_unusable,
        )

    def _cursor(self, identity: Identity, schedule: Schedule) -> Cursor:
        return Cursor(
            identity=identity,
            next_group=schedule.frontier,
            consecutive_unusable=0,  # the group before the frontier is one that was trained on
            unusable_groups=schedule.unusable_before_frontier,
            reward_first=self.reward_first,
            reward_last=self.reward_last,
            reward_best=self._reward_best,
            untrained=schedule.untrained,
        )

    async def _tell_pace(self, schedule: Schedule, held_out: HeldOut) -> None:
        """Keep the live figures in the run's row (``info["pace"]``) until cancelled; evaluations count."""

        def totals() -> Totals:
            attempts = schedule.attempts_ended + held_out.attempts_ended
            return Totals(attempts, self.meter.sampled_tokens, schedule.slots.seconds())

        pace = Pace(totals, self.settings.max_concurrent_rollouts)
        while True:
            await asyncio.sleep(PACE_SECONDS)
            waits = self.reporter.doing
            if waits == "sampling" and schedule.waits_for is not None:
                group_id, left = schedule.waits_for
                waits = f"group {group_id}, {left} attempt{'' if left == 1 else 's'} left"
            figures = {**pace.read(), **self._lag.read()}
            self.handle.note(pace={**figures, "waits_for": waits, "ahead": schedule.slots.ahead})

    async def _hold(self) -> None:
        """Return when the run is not paused; a checkpoint that is asked for meanwhile is saved at once."""
        control = self.handle.control
        with self._clock.pausing():
            while control.paused:
                await self.saver.asked()
                if self._held_out is not None:
                    await self._held_out.asked(self._last_step, self.step, paused=True)
                await control.wait_if_paused_or_asked()

    async def _update(
        self, session: LoopsSession, updater: Updater, collected: Collected
    ) -> dict[str, float]:
        """Train on a step's groups and publish. Returns the step's metrics."""
        training, handle = self.settings.training, self.handle
        self.reporter.phase("training")
        self._training = True
        updated = await updater.update(collected.usable, self.step + 1)
        self.meter.trained(
            sum(result.trace.trainable_tokens for g in collected.usable for result in g.graded)
        )
        self.step += 1
        for group in collected.usable:
            self.reporter.group_trained(group, self.step)
        self._note_rewards(collected)
        waited = collected.seconds - self._clock.paused
        overlapped = updated.train + updated.held + updated.publish
        seconds = StepSeconds(
            waited,
            updated.train,
            updated.held,
            updated.publish,
            waited + (overlapped if self.settings.max_steps_off_policy else 0.0),
        )
        metrics = step_metrics(collected.usable, collected.finished, updated.result, seconds)
        metrics |= updated.metrics
        handle.recorder.run(
            step=self.step,
            policy_version=session.version,
            reward_first=self.reward_first,
            reward_last=self.reward_last,
        )
        handle.log("info", "run", step_line(self.step, training.max_steps, metrics))
        return metrics

    def _note_rewards(self, collected: Collected) -> None:
        """First and last mean reward of a run are over all graded attempts of a step, rejected groups included."""
        mean = reward_metrics([], collected.finished).get("reward/mean_with_unusable")
        if mean is None:
            return
        if self.reward_first is None:
            self.reward_first = mean
        self.reward_last = mean
        best = max(reward for group in collected.finished for reward in group.rewards)
        self._reward_best = best if self._reward_best is None else max(self._reward_best, best)
        self.handle.recorder.run(reward_first=self.reward_first, reward_last=self.reward_last)

    async def _exhausted(self, collected: Collected) -> Outcome:
        """Too many groups in a row taught nothing: solved, if all of them earn the best reward ever seen here."""
        count = self.settings.training.max_consecutive_unusable_groups
        rewards = [reward for group in collected.finished for reward in group.rewards]
        if self.step > 0 and rewards and self._reward_best is not None and min(rewards) >= self._reward_best:
            self.handle.note(ended_by="[training] max_consecutive_unusable_groups")
            self.handle.log("info", "run", solved_line(count, self._reward_best))
            return await self._end(RunState.DONE, "end")
        await self.saver.last("end")
        raise RunFailed(exhausted_line(count, collected.finished))

    async def _stopped(self) -> Outcome:
        control = self.handle.control
        if control.aborted:  # train() ends it
            await asyncio.Event().wait()
        return await self._end(RunState.STOPPED, control.ending)

    async def _end(self, state: RunState, why: str) -> Outcome:
        if self._schedule is not None:
            self.reporter.phase("releasing what is in flight")
            await self._schedule.close()
            self.reporter.unfinished("stopped")
        self.reporter.phase("saving")
        await self.saver.last(why)
        if state is RunState.DONE and self._held_out is not None:
            await self._held_out.at_end(self._last_step)
        return self.outcome(state)

    @property
    def between_steps(self) -> bool:
        """Whether the trainer holds exactly the steps that are finished."""
        return not self._training

    def unfinished(self, reason: str) -> None:
        self.reporter.unfinished(reason)

    def progress(self) -> tuple[str, float]:
        return self.reporter.progress()

    def phase(self, text: str) -> None:
        self.reporter.phase(text)

    def outcome(self, state: RunState) -> Outcome:
        session = self.connections.session
        return Outcome(
            state, self.step, self.reward_first, self.reward_last, session.loops_run_id if session else None
        )

    async def close(self) -> None:
        await self.connections.close()


def schedule_settings(settings: Settings, episode: type[Episode[Any, Any]]) -> ScheduleSettings:
    """How many of what a run of these settings does. Where there is nothing to set up, nothing is set up ahead."""
    training = settings.training
    set_up = settings.runtime.config.sandbox is not None or episode.setup is not Episode.setup
    return ScheduleSettings(
        group_size=training.group_size,
        groups_per_step=training.groups_per_step,
        max_steps=training.max_steps,
        max_group_losses=training.max_group_losses,
        max_consecutive_unusable_groups=training.max_consecutive_unusable_groups,
        max_concurrent_rollouts=settings.max_concurrent_rollouts,
        max_concurrent_grading=settings.max_concurrent_grading,
        setups_ahead=settings.setups_ahead if set_up else 0,
        max_steps_off_policy=settings.max_steps_off_policy,
        max_policy_delta=settings.max_policy_delta_in_trajectory,
        max_concurrent_evaluation=(settings.eval.max_concurrent or 0) if settings.eval is not None else 0,
    )
