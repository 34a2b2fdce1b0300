"""One evaluation: every held-out task attempted by the run's own episode, with weights that hold still.

Nothing of it is ever trained on. Its groups, attempts and transcripts are ordinary rows with negative group ids; one
lost attempt costs that attempt alone.
"""

from __future__ import annotations

import asyncio
import hashlib
import statistics
import time
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass, field

from engine.episodes.places import Places, Unlimited
from engine.episodes.runtime import AttemptPlan, AttemptResult, run_attempt
from engine.loops.errors import LoopsUnavailable
from engine.policy.conversation import ConversationTrace, Model
from engine.policy.tokens import Sampler, Segment
from engine.recipes.attempt_rows import set_result, transcript_of
from engine.recipes.evaluation.estimates import TaskScore, interval, pass_at, score
from engine.recipes.evaluation.plan import EvalPlan, Weights
from engine.recipes.evaluation.wording import begun_line, ended_line
from engine.recipes.repeats import Repeats
from engine.recipes.rl.comparing import compare
from engine.store.recorder import RunRecorder
from engine.store.rows import AttemptRow, AttemptState, EvalRow, GroupRow, GroupState
from engine.store.store import Store

#: How many conversations are scored by the trainer as well: enough to see a disagreement.
SCORED_SEGMENTS = 64


@dataclass(slots=True)
class _Counted:
    """What a graded attempt leaves behind for the numbers."""

    reward: float
    turns: int
    sampled_tokens: int
    timed_out: bool
    truncated: bool


@dataclass(slots=True)
class _Work:
    """An evaluation while it runs."""

    row: EvalRow
    sampler: Sampler
    groups: list[GroupRow]
    jobs: Iterator[tuple[int, int]]  # (place of the task, attempt)
    counted: list[list[_Counted]]
    left: list[int]  # attempts of each task that have no reward yet and are not lost
    running: list[int]  # attempts of each task that have not ended
    uncompared: list[list[tuple[AttemptRow, AttemptResult]]]  # of each task, to be graded against each other
    segments: list[Segment] = field(default_factory=list)  # of a few graded attempts, for ``score``
    attempts: dict[tuple[int, int], AttemptRow] = field(default_factory=dict)
    early: bool = False


class Evaluator:
    """Makes the evaluations of one run.

    Args:
        log: told of what a person should find later (level, text).
        told: how far an evaluation is, in a few words.
        stopping: whether no further attempt should begin.
        hold: returns when an attempt may begin (a pause).
        places: those of a group's attempt, where others sample and grade beside the evaluation.
        score: how well the trainer agrees with the sampler on what was sampled, as metrics; only where both hold the
            same weights.
    """

    def __init__(
        self,
        plan: EvalPlan,
        *,
        store: Store,
        recorder: RunRecorder,
        host_id: str | None,
        log: Callable[[str, str], None],
        told: Callable[[str], None] = lambda _: None,
        stopping: Callable[[], bool] = lambda: False,
        hold: Callable[[], Awaitable[None]] | None = None,
        places: Callable[[int, int], Places] = lambda _group, _attempt: Unlimited(),
        score: Callable[[list[Segment]], Awaitable[dict[str, float]]] | None = None,
    ) -> None:
        self._plan, self._store, self._recorder, self._host_id = plan, store, recorder, host_id
        self._log, self._told, self._stopping, self._hold = log, told, stopping, hold
        self._places = places
        self._score = score if plan.samples_plainly else None
        self.attempts_ended = 0  # of all evaluations

    async def evaluate(self, sampler: Sampler, weights: Weights, why: str) -> EvalRow:
        """Attempt every task and store what came of it. ``sampler`` must sample as ``plan.sampling`` says.

        Returns the evaluation as it is stored: "done", or "stopped" where it was told to end before it was through.

        Raises:
            LoopsUnavailable: no attempt can succeed any more; the row says "failed".
            StoreError: it cannot be stored.
        """
        plan = self._plan
        row = EvalRow(
            run_id=self._recorder.run_id,
            eval_id=weights.name,
            target=weights.target,
            state="running",
            why=why,
            created_at=time.time(),
            step=weights.step,
            checkpoint=weights.checkpoint,
            tasks=len(plan.tasks),
            attempts=plan.settings.attempts_per_task,
            sampling=plan.sampling_words,
            host_id=self._host_id,
        )
        names = [(task.id, task.index) for task in plan.tasks]
        groups = await asyncio.to_thread(self._store.begin_evaluation, row, names)
        self._log("info", begun_line(row))
        work = _Work(
            row,
            sampler,
            groups,
            # Attempt by attempt over all tasks: what is stopped early has covered them evenly.
            iter([(place, attempt) for attempt in range(row.attempts) for place in range(row.tasks)]),
            [[] for _ in groups],
            [row.attempts for _ in groups],
            [row.attempts for _ in groups],
            [[] for _ in groups],
        )
        state, error = "stopped", None
        try:
            await self._all(work)
            if self._score is not None and not work.early:
                row.metrics |= await self._score(work.segments)
            state = "stopped" if work.early else "done"
        except LoopsUnavailable as failure:
            state, error = "failed", str(failure)
            raise
        finally:
            self._end(work, state, error)
        return row

    async def _all(self, work: _Work) -> None:
        repeats = Repeats()
        workers = min(self._plan.concurrent, work.row.tasks * work.row.attempts)
        try:
            async with asyncio.TaskGroup() as group:
                for _ in range(workers):
                    group.create_task(self._worker(work, repeats))
        except ExceptionGroup as several:  # all of one cause: the first says it
            raise several.exceptions[0] from several

    async def _worker(self, work: _Work, repeats: Repeats) -> None:
        for place, attempt in work.jobs:
            if self._hold is not None:
                await self._hold()
            if self._stopping():
                work.early = True
                return
            await self._attempt(work, place, attempt, repeats)

    async def _attempt(self, work: _Work, place: int, attempt: int, repeats: Repeats) -> None:
        plan, group, task = self._plan, work.groups[place], self._plan.tasks[place]
        row = AttemptRow(
            group.run_id,
            group.group_id,
            attempt,
            AttemptState.QUEUED,
            queued_at=time.time(),
            started_at=time.time(),
        )
        work.attempts[place, attempt] = row

        def changed(state: AttemptState) -> None:
            row.state = state
            self._recorder.attempt(row)

        def log(level: str, text: str) -> None:
            news = repeats.news(text)
            if news is not None:
                self._log(level, f"{work.row.eval_id}, task {task.id}, attempt {attempt}: {news}")

        def model(trace: ConversationTrace, tried: int, waiting: Callable[[bool], None]) -> Model:
            return Model(
                sampler=work.sampler,
                renderer=plan.renderer,
                limits=plan.limits,
                trace=trace,
                seed=lambda call: evaluation_seed(plan.settings.seed, task.index, attempt, tried, call),
                affinity_key=f"{group.run_id}-{work.row.eval_id}-{task.index}",
                waiting=waiting,
            )

        sandboxes = plan.sandboxes
        result = await run_attempt(
            AttemptPlan(
                episode=plan.episode,
                task=task,
                options=plan.options,
                attempt=attempt,
                deadlines=plan.deadlines,
                max_retries=plan.max_retries,
                model=model,
                sandboxes=sandboxes.source(group.group_id, attempt, log) if sandboxes is not None else None,
                places=self._places(group.group_id, attempt),
            ),
            changed=changed,
            log=log,
        )
        self.attempts_ended += 1
        work.running[place] -= 1
        if result.episode is None:
            self._ended(work, place, row, result)
        else:
            work.uncompared[place].append((row, result))
        if work.running[place] == 0:
            await self._compare(work, place)

    async def _compare(self, work: _Work, place: int) -> None:
        """Where the episode grades a task's attempts against each other, do so once all have ended."""
        waiting = sorted(work.uncompared[place], key=lambda ended: ended[0].attempt)

        def log(level: str, text: str) -> None:
            self._log(level, f"{work.row.eval_id}, task {work.groups[place].task_id}: {text}")

        problem = await compare([result for _, result in waiting], self._plan.deadlines.grading, log)
        if problem is not None:
            log("warning", problem)
        for row, result in waiting:
            self._ended(work, place, row, result)

    def _ended(self, work: _Work, place: int, row: AttemptRow, result: AttemptResult) -> None:
        recorder, group = self._recorder, work.groups[place]
        del work.attempts[place, row.attempt]
        set_result(row, result)
        recorder.attempt(row)
        transcript = transcript_of(row, group.task_id, result, self._plan.trace)
        if transcript is not None:
            recorder.transcript(transcript)
        work.left[place] -= 1
        if result.reward is None:
            work.row.lost += 1
            group.attempts_lost += 1
        else:
            work.row.graded += 1
            group.attempts_done += 1
            if self._score is not None and len(work.segments) < SCORED_SEGMENTS:
                work.segments += result.trace.segments
            work.counted[place].append(
                _Counted(
                    result.reward,
                    result.trace.replies,
                    result.trace.sampled_tokens,
                    result.timed_out,
                    result.trace.truncated,
                )
            )
        if work.left[place] == 0:
            _judge(group, [counted.reward for counted in work.counted[place]])
        recorder.group(group)
        recorder.evaluation(work.row)
        ended = work.row.graded + work.row.lost
        self._told(f"evaluating {work.row.eval_id}: {ended} of {work.row.tasks * work.row.attempts} attempts")

    def _end(self, work: _Work, state: str, error: str | None) -> None:
        """The numbers, and a true end to what was in flight."""
        row, now = work.row, time.time()
        for attempt in work.attempts.values():
            attempt.state, attempt.ended_at = AttemptState.CANCELLED, now
            self._recorder.attempt(attempt)
        for place, group in enumerate(work.groups):
            if work.left[place]:
                _judge(group, [counted.reward for counted in work.counted[place]], reason=state)
                self._recorder.group(group)
        scores = {
            group.task_id: task_score
            for group, counted in zip(work.groups, work.counted, strict=True)
            if (task_score := score([one.reward for one in counted], self._plan.settings.pass_reward))
        }
        set_numbers(row, scores)
        row.metrics |= _attempt_metrics([one for counted in work.counted for one in counted])
        row.state, row.error, row.ended_at = state, error, now
        row.metrics["eval/seconds"] = now - row.created_at
        self._recorder.evaluation(row)
        self._log("info" if error is None else "error", ended_line(row))


def set_numbers(row: EvalRow, scores: dict[str, TaskScore]) -> None:
    """What the tasks' scores (task id -> score) say, in an evaluation's row and its metrics."""
    row.per_task = {
        task: {"mean": one.mean, "graded": one.graded, "passed": one.passed} for task, one in scores.items()
    }
    row.pass_at = pass_at(list(scores.values()), row.attempts)
    found = interval([one.mean for one in scores.values()])
    if found is None:
        return
    row.mean, row.low, row.high = found.mean, found.low, found.high
    row.metrics["eval/mean"] = found.mean
    if found.low is not None and found.high is not None:
        row.metrics["eval/low"], row.metrics["eval/high"] = found.low, found.high
    row.metrics |= {f"eval/pass@{k}": value for k, value in row.pass_at.items()}
    row.metrics |= {"eval/graded": float(row.graded), "eval/lost": float(row.lost)}


def evaluation_seed(seed: int, task: int, attempt: int, tried: int, call: int) -> int:
    """A seed for one sampling call: the same for every evaluation of a config, so that two differ by weights alone."""
    text = f"evaluate/{seed}/{task}/{attempt}/{tried}/{call}"
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=4).digest()) >> 1


def _judge(group: GroupRow, rewards: list[float], reason: str | None = None) -> None:
    """A task's group has no further attempts: how it stands."""
    group.state = GroupState.EVALUATED if rewards else GroupState.LOST
    group.reason = (
        reason if reason is not None and reason != "done" else None if rewards else "too_many_losses"
    )
    group.ended_at = time.time()
    if rewards:
        group.reward_mean, group.reward_std = statistics.fmean(rewards), statistics.pstdev(rewards)
        group.reward_min, group.reward_max = min(rewards), max(rewards)


def _attempt_metrics(counted: list[_Counted]) -> dict[str, float]:
    if not counted:
        return {}
    return {
        "eval/turns": statistics.fmean(one.turns for one in counted),
        "eval/sampled_tokens": statistics.fmean(one.sampled_tokens for one in counted),
        "eval/timed_out": statistics.fmean(float(one.timed_out) for one in counted),
        "eval/truncated": statistics.fmean(float(one.truncated) for one in counted),
    }
