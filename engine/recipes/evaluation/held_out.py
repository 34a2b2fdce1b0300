"""A run's evaluations of its own weights: at its start, every few steps, at its end, and when somebody asks."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from engine.episodes.places import Places
from engine.episodes.runtime import Deadlines
from engine.loops.scoring import divergence
from engine.loops.session import LoopsSession
from engine.policy.rendering import PolicyRenderer
from engine.policy.tokens import Sampler, Segment
from engine.recipes.contract import RunFailed, RunHandle
from engine.recipes.control import EvaluationRequest
from engine.recipes.evaluation.evaluator import Evaluator
from engine.recipes.evaluation.plan import EvalPlan, Weights, held_out_tasks
from engine.recipes.evaluation.wording import ended_line
from engine.recipes.rl.batch import datum_of
from engine.sandboxes.for_run import RunSandboxes
from engine.store.rows import EvalRow, StepRow

if TYPE_CHECKING:
    from engine.project import Project


class HeldOut:
    """Evaluates between steps, so that the weights hold still. Without ``[eval]`` in the config it does nothing.

    Args:
        session: its trainer and its sampler hold the same weights between steps.
        metered: the same sampler, its tokens counted.
        places: those of attempt ``j`` of a group of an evaluation, among the run's own.
        told: what the run is doing, in a few words.
        changed: hands a finished step's row to the store again, with the evaluation's numbers in its metrics.
    """

    def __init__(
        self,
        project: Project,
        handle: RunHandle,
        *,
        renderer: PolicyRenderer,
        deadlines: Deadlines,
        sandboxes: RunSandboxes | None,
        session: LoopsSession,
        metered: Callable[[Sampler], Sampler],
        places: Callable[[int, int], Places],
        told: Callable[[str], None],
        changed: Callable[[StepRow], None],
    ) -> None:
        self._handle, self._settings, self._changed = handle, project.rl.eval, changed
        self._phase = told
        self._session, self._metered, self._through_pause = session, metered, False
        self._evaluated: set[int] = set()
        self._has_start = False
        self._evaluator: Evaluator | None = None
        if self._settings is None:
            return
        if handle.store is None:
            raise RunFailed("this run's config has [eval], but its host keeps no store")
        episode = project.episode()
        self._plan = EvalPlan.of(
            project.rl,
            tasks=held_out_tasks(self._settings, episode.task_type),
            episode=episode.cls,
            options=episode.options,
            deadlines=deadlines,
            renderer=renderer,
            sandboxes=sandboxes,
        )
        self._evaluator = Evaluator(
            self._plan,
            store=handle.store,
            recorder=handle.recorder,
            host_id=handle.host_id,
            log=lambda level, text: handle.log(level, "eval", text),
            told=told,
            stopping=lambda: handle.control.stopping,
            hold=self._hold,
            places=places,
            score=self._agreement,
        )
        for row in handle.store.reader().evals(handle.run_id):  # of earlier sittings
            if row.state == "done" and row.why == "start":
                self._has_start = True
            elif row.state == "done" and row.target == "live" and row.step is not None:
                self._evaluated.add(row.step)

    @property
    def attempts_ended(self) -> int:
        """Of all evaluations of this sitting."""
        return 0 if self._evaluator is None else self._evaluator.attempts_ended

    async def at_start(self, step: int) -> None:
        """Before the first step: the weights that the run begins with."""
        if self._settings is None or not self._settings.at_start or step > 0 or self._has_start:
            return
        await self._evaluate(self._weights(0), "start")

    async def after_step(self, row: StepRow) -> None:
        """After a step: if it is its turn, or somebody asked."""
        every = None if self._settings is None else self._settings.every_steps
        if every is not None and row.step % every == 0 and row.step not in self._evaluated:
            await self._of_step(row, "every")
        await self.asked(row, row.step)

    async def at_end(self, row: StepRow | None) -> None:
        """After the last step of a run that has run to its end."""
        if row is None:
            return
        if self._settings is not None and self._settings.at_end and row.step not in self._evaluated:
            await self._of_step(row, "end")
        await self.after_step(row)

    async def asked(self, row: StepRow | None, step: int, *, paused: bool = False) -> None:
        """After ``step`` steps: carry out what was asked for, and answer it. ``row`` is the last one's, where it was made
        in this sitting."""
        requests = self._handle.control.take_evaluations()
        if not requests:
            return
        if self._evaluator is None:
            _answer(requests, False, "this run's config has no [eval]: there are no held-out tasks")
            return
        self._through_pause = paused
        try:
            if row is None:
                ended = await self._evaluate(self._weights(step), "asked")
            else:
                ended = await self._of_step(row, "asked")
        finally:
            self._through_pause = False
        if ended is None:
            _answer(requests, False, "the run is stopping")
        else:
            _answer(requests, ended.state == "done", ended_line(ended))

    def _weights(self, step: int) -> Weights:
        begins_with_base = self._handle.start_weights is None
        return Weights.base() if step == 0 and begins_with_base else Weights.live(step)

    async def _of_step(self, row: StepRow, why: str) -> EvalRow | None:
        ended = await self._evaluate(self._weights(row.step), why)
        if ended is not None and ended.state == "done":
            self._evaluated.add(row.step)
            row.metrics |= ended.metrics
            self._changed(row)
        return ended

    async def _evaluate(self, weights: Weights, why: str) -> EvalRow | None:
        if self._evaluator is None or self._handle.control.stopping:
            return None
        sampler = self._metered(self._session.sampler_with(self._plan.sampling))
        return await self._evaluator.evaluate(sampler, weights, why)

    async def _agreement(self, segments: list[Segment]) -> dict[str, float]:
        """How far trainer and sampler are apart on the evaluation's own tokens; nothing of it trains."""
        rows = [datum for segment in segments if (datum := datum_of(segment, 1.0)) is not None]
        self._phase(f"scoring {len(rows)} conversations of the evaluation")
        return await divergence(self._session, rows, "eval/train-sample-div/")

    async def _hold(self) -> None:
        if not self._through_pause:
            await self._handle.control.wait_if_paused()


def _answer(requests: list[EvaluationRequest], done: bool, text: str) -> None:
    for request in requests:
        request.answer(done, text)
