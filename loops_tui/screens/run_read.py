"""What the Run screen reads, kept on the reading thread so that only what is new is read again."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from engine.store.rows import (
    AttemptRow,
    CheckpointRow,
    CheckpointState,
    CommandRow,
    EvalRow,
    GroupRow,
    GroupState,
    HostRow,
    LogRow,
    RunRow,
    StepRow,
)
from engine.store.run_queries import StepProgress
from loops_tui.exploit_signals import ExploitWatch
from loops_tui.health import Finding
from loops_tui.signals import signals

if TYPE_CHECKING:
    from engine.store.queries import StoreReader

GROUPS = 400  # newest groups shown
LOG_LINES = 2000
ATTEMPTS = 500  # of a bin of rewards
ALL_REWARDS_SECONDS = 5.0  # between two counts of a whole live run's rewards


@dataclass(frozen=True, slots=True)
class RunWish:
    """What a person has chosen to see of a run. Nothing chosen: the newest, as it comes."""

    group_id: int | None = None
    step: int | None = None  # the groups (and figures, and rewards) of this step only
    eval_id: str | None = None  # the groups of this evaluation instead of training's
    rewards: tuple[float, float] | None = None  # the attempts with a reward in these bounds, of all groups
    histogram: bool = False  # whether rewards, of the step or of the run, are looked at and worth counting

    @property
    def following(self) -> bool:
        """Whether the newest is shown."""
        return self.group_id is None and self.step is None and self.eval_id is None and self.rewards is None


@dataclass(frozen=True, slots=True)
class RunView:
    """A run as its screen shows it. ``groups`` are in the order in which they began."""

    run: RunRow
    host: HostRow | None
    steps: Sequence[StepRow]
    groups: Sequence[GroupRow]
    group_id: int | None  # whose attempts these are; None where they are of several
    attempts: Sequence[AttemptRow]
    progress: StepProgress
    log: Sequence[LogRow]
    command: CommandRow | None
    now: float
    wish: RunWish
    names: frozenset[str] = frozenset()  # of all metrics of all steps
    learning: Sequence[Finding] = ()  # what its rows say about its health
    evals: Sequence[EvalRow] = ()  # oldest first
    checkpoints: Sequence[CheckpointRow] = ()  # newest first
    rewards: Mapping[float, int] = field(default_factory=dict)
    sandboxes: int = 0  # that may exist right now
    groups_ahead: int = 0  # under way for later steps than the one in hand
    phase_since: float | None = None
    pointed: int | None = None  # the step under the plot's cursor

    @property
    def supervised(self) -> bool:
        """Whether the run is fine-tuning: without groups, attempts and rewards."""
        return self.run.recipe == "sft"

    @property
    def resumed_at(self) -> Sequence[float]:
        """When it was taken up again, in Unix seconds."""
        return [float(sitting["at"]) for sitting in _sittings(self.run)]

    @property
    def group(self) -> GroupRow | None:
        """The group whose attempts are shown."""
        return next((row for row in self.groups if row.group_id == self.group_id), None)

    @property
    def shown_step(self) -> StepRow | None:
        """The step under the cursor, the chosen one, or the last finished one."""
        wanted = self.pointed if self.pointed is not None else self.wish.step
        if wanted is not None:
            return next((row for row in self.steps if row.step == wanted), None)
        return next((row for row in reversed(self.steps) if row.state == "done"), None)

    @property
    def saved(self) -> Sequence[CheckpointRow]:
        return [row for row in self.checkpoints if row.state is CheckpointState.SAVED]


class RunWatch:
    """Reads one run again and again. All calls come from the reading thread."""

    def __init__(self, run_id: str) -> None:
        self.run_id = run_id
        self._steps: list[StepRow] = []
        self._names: set[str] = set()
        self._log: list[LogRow] | None = None
        self._phase: tuple[tuple[bool, str, int], float | None] | None = None
        self._counted: tuple[float, Mapping[float, int]] | None = None
        self._exploits = ExploitWatch(run_id)
        self._resumes = 0  # of the run, when it was last looked at

    def read(self, reader: StoreReader, wish: RunWish) -> RunView:
        """The run now, as far as ``wish`` asks for it."""
        now = time.time()
        run = reader.run(self.run_id)
        if (resumes := len(_sittings(run))) != self._resumes:
            # A resume takes back what came after its checkpoint; those steps and groups are then done again.
            self._resumes, self._exploits = resumes, ExploitWatch(self.run_id)
            self._steps.clear()
        steps = self._read_steps(reader)
        newest = reader.training_groups(self.run_id, GROUPS)
        groups = newest
        if wish.eval_id is not None:
            groups = reader.eval_groups(self.run_id, wish.eval_id)
        elif wish.step is not None:
            groups = reader.training_groups(self.run_id, GROUPS, step=wish.step)
        group_id, attempts = self._read_attempts(reader, wish, groups)
        evals = reader.evals(self.run_id)[::-1]
        progress = StepProgress() if run.state.final else reader.progress(self.run_id)
        commands = reader.commands(self.run_id, 1)
        return RunView(
            run=run,
            host=reader.host(run.host_id),
            steps=steps,
            groups=groups,
            group_id=group_id,
            attempts=attempts,
            progress=progress,
            log=self._read_log(reader),
            command=commands[0] if commands else None,
            now=now,
            wish=wish,
            names=frozenset(self._names),
            learning=[*signals(run, steps, newest, evals), *self._exploits.read(reader, steps, newest)],
            evals=evals,
            checkpoints=reader.checkpoints(self.run_id),
            rewards=self._read_rewards(reader, wish, run) if wish.histogram else {},
            sandboxes=reader.live_lease_counts().get(self.run_id, 0),
            groups_ahead=sum(_is_ahead(group, run.step + 1) for group in newest),
            phase_since=self._since(run, steps, progress, now),
        )

    def _read_attempts(
        self, reader: StoreReader, wish: RunWish, groups: Sequence[GroupRow]
    ) -> tuple[int | None, Sequence[AttemptRow]]:
        if wish.rewards is not None:
            low, high = wish.rewards
            return None, reader.attempts_between(self.run_id, low, high, step=wish.step, limit=ATTEMPTS)
        group_id = wish.group_id
        if group_id is None and groups:
            group_id = groups[-1].group_id
        return group_id, [] if group_id is None else reader.attempts(self.run_id, group_id)

    def _read_steps(self, reader: StoreReader) -> Sequence[StepRow]:
        # Finished steps do not change; the one in hand is read anew.
        while self._steps and self._steps[-1].state != "done":
            self._steps.pop()
        last = self._steps[-1].step if self._steps else 0
        fresh = reader.steps(self.run_id, last)
        for step in fresh:
            self._names.update(step.metrics)
        self._steps.extend(fresh)
        return tuple(self._steps)

    def _read_log(self, reader: StoreReader) -> Sequence[LogRow]:
        if self._log is None:
            self._log = reader.last_log(self.run_id, LOG_LINES)
        else:
            last = self._log[-1].log_id if self._log else 0
            self._log.extend(reader.log(self.run_id, last, LOG_LINES))
            del self._log[:-LOG_LINES]
        return tuple(self._log)

    def _read_rewards(self, reader: StoreReader, wish: RunWish, run: RunRow) -> Mapping[float, int]:
        """Rewards by value: of the step asked for, or of the run, whose many attempts are not counted all the time."""
        if wish.step is not None:
            return reader.reward_counts(self.run_id, step=wish.step)
        now = time.monotonic()
        if self._counted is None or now - self._counted[0] >= ALL_REWARDS_SECONDS or run.state.final:
            self._counted = (now, reader.reward_counts(self.run_id))
        return self._counted[1]

    def _since(
        self, run: RunRow, steps: Sequence[StepRow], progress: StepProgress, now: float
    ) -> float | None:
        """When the phase began, in Unix seconds: by the rows where they tell, else when it was first seen here."""
        if steps and run.phase == ("training" if run.recipe == "sft" else "sampling"):
            return steps[-1].started_at
        if run.phase == "training" and progress.ready_at is not None:
            return progress.ready_at
        # A run that is taken up again begins another one, and so does each step, though others were between unseen.
        phase = (run.state.final, run.phase, run.step)
        if self._phase is None or self._phase[0] != phase:
            # What was there from the first look on may be older than that: nothing is said then.
            self._phase = (phase, None if self._phase is None else now)
        return self._phase[1]


def _sittings(run: RunRow) -> Sequence[Mapping[str, Any]]:
    """What the run's row says of each resume; a store from elsewhere may hold anything there."""
    told = run.info.get("resumed")
    sittings = told if isinstance(told, list) else []
    return [sitting for sitting in sittings if isinstance(sitting, dict) and _is_time(sitting.get("at"))]


def _is_time(value: object) -> bool:
    return isinstance(value, int | float)


def _is_ahead(group: GroupRow, step: int) -> bool:
    """Whether a group runs, or is ready, for a later step than ``step``."""
    return group.state in (GroupState.RUNNING, GroupState.READY) and (group.step or 0) > step
