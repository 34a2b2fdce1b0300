"""Telling the store what a run does: the rows of groups, attempts, steps and transcripts."""

from __future__ import annotations

import time
from collections import Counter

from engine.episodes.runtime import AttemptResult
from engine.recipes.attempt_rows import set_result, transcript_of
from engine.recipes.contract import RunHandle
from engine.recipes.rl.groups import Group
from engine.store.rows import (
    AttemptRow,
    AttemptState,
    GroupRow,
    GroupState,
    StepRow,
)


class Reporter:
    """Writes one run's rows. Holds the last row of each group and attempt in flight, nothing of finished ones."""

    def __init__(self, handle: RunHandle, trace: str) -> None:
        self._handle = handle
        self._trace = trace
        self._step = 0
        self._phase = ""
        self._changed_at = time.monotonic()
        self._groups: dict[int, GroupRow] = {}
        self._attempts: dict[tuple[int, int], AttemptRow] = {}

    def phase(self, text: str) -> None:
        """What the run is doing now, in a word or two."""
        self._phase, self._changed_at = text, time.monotonic()
        self._handle.recorder.run(phase=text)

    @property
    def doing(self) -> str:
        """The phase told last."""
        return self._phase

    def progress(self) -> tuple[str, float]:
        """How far the step is, as a line for the log, and for how many seconds this phase has lasted."""
        lasted = time.monotonic() - self._changed_at
        states = Counter(row.state for row in self._attempts.values())
        parts = [f"{count} {state}" for state, count in sorted(states.items())]
        doing = ", ".join([self._phase, *parts]) if self._phase == "sampling" else self._phase
        return f"step {self._step}: {doing}, {lasted:.0f} s", lasted

    def step_began(self, step: int) -> StepRow:
        """A step's row; hand it back to :meth:`step_changed` as it goes on."""
        self._step = step
        row = StepRow(self._handle.run_id, step, "collecting", time.time())
        self._handle.recorder.step(row)
        return row

    def step_changed(self, row: StepRow) -> None:
        self._handle.recorder.step(row)

    def group_started(self, group: Group) -> None:
        row = GroupRow(
            run_id=self._handle.run_id,
            group_id=group.group_id,
            state=GroupState.RUNNING,
            task_id=group.task.id,
            task_index=group.task.index,
            step=group.for_step,
            epoch=group.epoch,
            policy_version=group.policy_version,
            started_at=group.started_at,
        )
        self._groups[group.group_id] = row
        self._handle.recorder.group(row)
        now = time.time()
        for attempt in range(group.size):
            queued = AttemptRow(
                self._handle.run_id, group.group_id, attempt, AttemptState.QUEUED, queued_at=now
            )
            self._attempts[group.group_id, attempt] = queued
            self._handle.recorder.attempt(queued)

    def group_sampling(self, group: Group) -> None:
        """A group's first attempt samples: which policy it began under is known. Or another step will train it."""
        row = self._groups[group.group_id]
        row.policy_version, row.step = group.policy_version, group.for_step
        self._handle.recorder.group(row)

    def attempt_phase(self, group: Group, attempt: int, state: AttemptState) -> None:
        """An attempt entered a phase."""
        row = self._attempts[group.group_id, attempt]
        row.state = state
        if row.started_at is None:
            row.started_at = time.time()
        self._handle.recorder.attempt(row)

    def attempt_ended(self, group: Group, attempt: int, result: AttemptResult) -> None:
        """An attempt ended, however; its transcript goes to the store and leaves memory."""
        row = self._attempts[group.group_id, attempt]
        set_result(row, result)
        self._handle.recorder.attempt(row)
        group_row = self._groups[group.group_id]
        if result.state is AttemptState.DONE:
            group_row.attempts_done += 1
        else:
            group_row.attempts_lost += 1
        self._handle.recorder.group(group_row)
        transcript = transcript_of(row, group.task.id, result, self._trace)
        if transcript is not None:
            self._handle.recorder.transcript(transcript)
        result.trace.forget_text()

    def group_judged(self, group: Group) -> None:
        """A group ended and was judged; its advantages are told."""
        verdict = group.verdict
        assert verdict is not None
        row = self._groups[group.group_id]
        lost = verdict.reason == "too_many_losses"
        row.state = GroupState.READY if verdict.usable else GroupState.LOST if lost else GroupState.REJECTED
        row.reason, row.ended_at = verdict.reason, group.ended_at
        row.reward_mean, row.reward_std = verdict.mean, verdict.std
        if verdict.rewards:
            row.reward_min, row.reward_max = min(verdict.rewards.values()), max(verdict.rewards.values())
        for attempt, advantage in verdict.advantages.items():
            attempt_row = self._attempts[group.group_id, attempt]
            attempt_row.advantage = advantage
            self._handle.recorder.attempt(attempt_row)
        self._handle.recorder.group(row)  # last: once a group is decided, its attempts are told in a file
        for attempt in range(group.size):
            del self._attempts[group.group_id, attempt]
        if not verdict.usable:
            del self._groups[group.group_id]

    def group_trained(self, group: Group, step: int) -> None:
        row = self._groups.pop(group.group_id)
        row.state, row.step = GroupState.TRAINED, step
        self._handle.recorder.group(row)

    def unfinished(self, reason: str) -> None:
        """The run ends with groups in flight or untrained: say so in their rows."""
        now = time.time()
        for row in self._attempts.values():
            if row.ended_at is None:
                row.state, row.ended_at = AttemptState.CANCELLED, now
                self._handle.recorder.attempt(row)
        for row in self._groups.values():
            row.state, row.reason, row.ended_at = GroupState.REJECTED, reason, row.ended_at or now
            self._handle.recorder.group(row)
        self._attempts.clear()
        self._groups.clear()
