"""The SFT loop: batches of prepared samples, one optimizer step each, a validation loss now and then; until done."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING

from engine.loops.session import LoopsSession
from engine.loops.supervised import score_targets, train_on_targets
from engine.recipes.contract import Outcome, RunHandle
from engine.recipes.cursor import Identity
from engine.recipes.frame import carry, spend_meter
from engine.recipes.loops_run import LoopsRun
from engine.recipes.saving import Saver
from engine.recipes.sft.cursor import Cursor, identity_of
from engine.recipes.sft.data import RunData, prepare_data
from engine.recipes.sft.prepared import PreparedData
from engine.recipes.sft.schedule import Batch, batches_of_epoch, learning_rate, steps_of_run
from engine.recipes.sft.targets import Sample
from engine.recipes.spending import SpendMeter
from engine.store.rows import RunState, StepRow

if TYPE_CHECKING:
    from engine.project import Project

VALIDATION_TOKENS = 32_768
"""Tokens of one validation request; a longer sample goes alone."""


async def train(project: Project, handle: RunHandle) -> Outcome:
    """Run an SFT config to its end, from its beginning or from ``handle.resume_from`` on. See ``frame.carry``."""
    meter = await asyncio.to_thread(spend_meter, project, handle)
    return await carry(_Run(project, handle, meter), project, handle, meter)


class _Run:
    """One run's moving parts."""

    def __init__(self, project: Project, handle: RunHandle, meter: SpendMeter) -> None:
        self.project, self.handle, self.meter = project, handle, meter
        self.training = project.sft.training
        self.saver = Saver(handle, project.config.output.checkpoint_every)
        self.loops = LoopsRun(project, handle, self.phase)
        self.step = 0
        self.steps = 0
        self.row: StepRow | None = None  # of the step in hand
        self.best: float | None = None
        self.worse = 0
        self.loss_first: float | None = None
        self.loss_last: float | None = None
        self._stop_preparing = threading.Event()
        self._in_step = False
        self._phase, self._changed_at = "", time.monotonic()

    async def main(self) -> Outcome:
        handle = self.handle
        handle.recorder.run(state=RunState.STARTING)
        self.phase("preparing the data")
        identity, data = await self._prepare()
        self.steps = steps_of_run(data.train.lengths, self.training)
        self._tell_data(data)
        self.phase("provisioning Loops")
        session = await self.loops.start(sampler=False)
        await self.loops.load_weights(publish=False)
        handle.recorder.run(state=RunState.RUNNING)
        epoch, place = self._go_on()
        if handle.resume_from is None:
            await self._validate(session, data.validation)
        while self.step < self.steps:
            for batch in batches_of_epoch(epoch, data.train.lengths, self.training, place):
                await self._hold()
                if handle.control.stopping:
                    return await self._stopped()
                row = await self._step(session, data.train, batch)
                last = batch.end == len(data.train)
                if self.step == self.steps or self._validation_due(epoch_ends=last):
                    row.metrics.update(await self._validate(session, data.validation))
                row.state, row.ended_at, row.policy_version = "done", time.time(), self.step
                handle.recorder.step(row)
                epoch, place = (epoch + 1, 0) if last else (epoch, batch.end)
                # What a checkpoint says is told after all rows of its step: a resume finds either both or neither.
                self.saver.stands(session, row, self._cursor(identity, epoch, place).to_row())
                self._in_step = False
                await self.meter.look()
                if self._stops_early():
                    return await self._end(RunState.DONE, "end")
                if self.step == self.steps:
                    break
                if not handle.control.stopping:
                    await self.saver.after_step()
        return await self._end(RunState.DONE, "end")

    async def _prepare(self) -> tuple[Identity, RunData]:
        """Both in a thread that ends when this task does."""

        def told(name: str, rows: int) -> None:
            self._phase = f"preparing the {name} data ({rows:,} rows)"
            self.handle.recorder.run(phase=self._phase)

        try:
            data = await asyncio.to_thread(prepare_data, self.project, told, self._stop_preparing)
            return await asyncio.to_thread(identity_of, self.project), data
        finally:
            self._stop_preparing.set()

    def _tell_data(self, data: RunData) -> None:
        handle, summary = self.handle, data.train.summary
        handle.log("info", "run", f"Renderer: {data.renderer.name} ({data.renderer.how})")
        handle.log(
            "info",
            "run",
            f"Training data: {summary.rows:,} rows, {summary.samples:,} samples, {summary.trained_tokens:,} trained of "
            f"{summary.tokens:,} tokens; {self.steps:,} steps",
        )
        if summary.refused_rows:
            counts = ", ".join(f"{count:,} {reason}" for reason, count in sorted(summary.refused.items()))
            handle.log(
                "warning", "run", f"{summary.refused_rows:,} rows are refused ({counts}); check lists them"
            )
        handle.recorder.run(max_steps=self.steps)
        handle.note(
            data={
                "rows": summary.rows,
                "samples": summary.samples,
                "trained_tokens": summary.trained_tokens,
                "refused": summary.refused_rows,
                "validation_rows": data.validation.summary.rows if data.validation is not None else 0,
            }
        )

    def _go_on(self) -> tuple[int, int]:
        """Where the next batch begins: (epoch, place)."""
        point = self.handle.resume_from
        if point is None:
            return 0, 0
        cursor = Cursor.from_row(point.cursor)
        self.step, self.best, self.worse = point.step, cursor.best, cursor.worse
        self.loss_first, self.loss_last = cursor.loss_first, cursor.loss_last
        return cursor.epoch, cursor.place

    def _cursor(self, identity: Identity, epoch: int, place: int) -> Cursor:
        return Cursor(identity, epoch, place, self.best, self.worse, self.loss_first, self.loss_last)

    async def _step(self, session: LoopsSession, data: PreparedData, batch: Batch) -> StepRow:
        """One optimizer step. Its row is handed back, and not done yet."""
        training, began = self.training, time.monotonic()
        row = self.row = StepRow(self.handle.run_id, self.step + 1, "training", time.time())
        self.handle.recorder.step(row)
        self.phase("training")
        samples = [data.sample(int(number)) for number in batch.indices]
        rate = learning_rate(self.step + 1, self.steps, training)
        self._in_step = True
        result = await train_on_targets(
            session,
            _split(samples, training.accumulation),
            sum_loss=training.loss_aggregation == "sum",
            adam={
                "learning_rate": rate,
                "beta1": training.beta1,
                "beta2": training.beta2,
                "eps": training.eps,
                "weight_decay": training.weight_decay,
                "grad_clip_norm": training.grad_clip_norm,
            },
        )
        seconds, tokens = time.monotonic() - began, sum(len(sample.tokens) for sample in samples)
        self.step += 1
        self.meter.trained(tokens)
        row.metrics = {
            "loss": result.loss,
            "learning_rate": rate,
            "epoch": batch.epoch + batch.end / len(data),
            "rows": float(len(samples)),
            "tokens/total": float(tokens),
            "tokens/trained": float(result.tokens),
            "tokens/trained_per_second": result.tokens / seconds,
            "time/step": seconds,
            "time/train": seconds,
            **result.metrics,
        }
        self.handle.recorder.run(step=self.step, policy_version=self.step)
        line = f"step {self.step}/{self.steps}: loss {result.loss:.4f}, {result.tokens:,} trained tokens"
        self.handle.log("info", "run", f"{line}, learning rate {rate:.2e}, {seconds:.1f} s")
        return row

    def _validation_due(self, *, epoch_ends: bool) -> bool:
        every = self.training.validate_every
        return epoch_ends if every is None else self.step % every == 0

    async def _validate(self, session: LoopsSession, data: PreparedData | None) -> dict[str, float]:
        """The loss on the validation data, as metrics; none without such data."""
        if data is None:
            return {}
        self.phase("validating")
        began = time.monotonic()
        total = weight = 0.0
        for samples in _requests(data):
            found = await score_targets(session, samples)
            total += found.loss * found.weight
            weight += found.weight
        loss = total / weight
        if self.best is None or loss < self.best - self.training.early_stop_delta:
            self.best, self.worse = loss, 0
        else:
            self.worse += 1
        self.loss_first = loss if self.loss_first is None else self.loss_first
        self.loss_last = loss
        self.handle.note(loss={"first": self.loss_first, "last": loss, "best": self.best})
        self.handle.log("info", "run", f"validation loss {loss:.4f} after step {self.step}")
        return {"loss/validation": loss, "time/validate": time.monotonic() - began}

    def _stops_early(self) -> bool:
        patience = self.training.early_stop_after
        if patience is None or self.worse < patience:
            return False
        self.handle.note(ended_by="[training] early_stop_after")
        self.handle.log(
            "info",
            "run",
            f"no better validation loss in {self.worse} validations: the run ends ({self.best:.4f} was best)",
        )
        return True

    async def _hold(self) -> None:
        """Return when the run is not paused; a checkpoint that is asked for meanwhile is saved at once."""
        control = self.handle.control
        while True:
            for request in control.take_evaluations():
                request.answer(False, "a run of supervised fine-tuning is measured by its validation data")
            if not control.paused:
                return
            await self.saver.asked()
            await control.wait_if_paused_or_asked()

    async def _stopped(self) -> Outcome:
        control = self.handle.control
        if control.aborted:  # the frame ends it
            await asyncio.Event().wait()
        return await self._end(RunState.STOPPED, control.ending)

    async def _end(self, state: RunState, why: str) -> Outcome:
        self.phase("saving")
        await self.saver.last(why)
        return self.outcome(state)

    # -- what the frame asks --------------------------------------------------------------------------------------

    @property
    def between_steps(self) -> bool:
        """Whether the trainer holds exactly the steps that are finished."""
        return not self._in_step

    def phase(self, text: str) -> None:
        self._phase, self._changed_at = text, time.monotonic()
        self.handle.recorder.run(phase=text)

    def progress(self) -> tuple[str, float]:
        lasted = time.monotonic() - self._changed_at
        return f"step {self.step + 1}: {self._phase}, {lasted:.0f} s", lasted

    def unfinished(self, reason: str) -> None:
        if self.row is not None and self.row.state != "done":
            self.row.state, self.row.ended_at = "unfinished", time.time()
            self.handle.recorder.step(self.row)

    def outcome(self, state: RunState) -> Outcome:
        session = self.loops.session
        return Outcome(state, self.step, loops_run_id=session.loops_run_id if session else None)

    async def close(self) -> None:
        self._stop_preparing.set()
        await self.loops.close()


def _split(samples: list[Sample], parts: int) -> list[list[Sample]]:
    """The samples in at most so many requests of nearly equal size."""
    size = -(-len(samples) // parts)
    return [samples[start : start + size] for start in range(0, len(samples), size)]


def _requests(data: PreparedData) -> Iterator[list[Sample]]:
    """All samples in their order, in requests of a bounded size; only one is in memory."""
    samples: list[Sample] = []
    tokens = 0
    for number in range(len(data)):
        length = int(data.lengths[number])
        if samples and tokens + length > VALIDATION_TOKENS:
            yield samples
            samples, tokens = [], 0
        samples.append(data.sample(number))
        tokens += length
    yield samples
