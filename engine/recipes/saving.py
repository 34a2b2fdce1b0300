"""Checkpoints of a run: when one is due, its row from the intent to the end, and the answers to who asked for it."""

from __future__ import annotations

import asyncio
import time
from contextlib import suppress
from typing import Any

from engine.loops.errors import SaveFailed
from engine.loops.session import LoopsSession, Saving
from engine.recipes.contract import RunHandle
from engine.recipes.control import SaveRequest
from engine.store.errors import StoreError
from engine.store.rows import CheckpointRow, CheckpointState, StepRow

SAVE_SECONDS = 1800.0
"""How long Loops may take for one checkpoint; a large model's optimizer is tens of gigabytes."""


def checkpoint_name(step: int) -> str:
    """The name of the checkpoint after ``step`` optimizer steps."""
    return f"step-{step:06d}"


class Saver:
    """Saves the trainer between steps. Loops writes while the next step is being sampled; one checkpoint at a time.

    ``stands`` must be told after each step where the run stands: that is what a checkpoint records.
    """

    def __init__(self, handle: RunHandle, every: int | None) -> None:
        self._handle, self._every = handle, every
        self._session: LoopsSession | None = None
        self._step: StepRow | None = None
        self._cursor: dict[str, Any] = {}
        self._saved: CheckpointRow | None = handle.resume_from  # the last one that Loops has whole
        self._writing: asyncio.Task[None] | None = None

    def stands(self, session: LoopsSession, step: StepRow, cursor: dict[str, Any]) -> None:
        """The trainer holds exactly this finished step; the run would go on from ``cursor``."""
        self._session, self._step, self._cursor = session, step, cursor

    async def after_step(self) -> None:
        """Save if this step's checkpoint is due or was asked for; returns once Loops has taken the request."""
        requests = self._handle.control.take_saves()
        step = self._step
        every = self._every is not None and step is not None and step.step % self._every == 0
        if requests or every:
            await self._save("every" if every else "asked", requests)

    async def asked(self) -> None:
        """Between two steps: save if somebody asked for it."""
        requests = self._handle.control.take_saves()
        if requests:
            await self._save("asked", requests)

    async def last(self, why: str, timeout: float = SAVE_SECONDS) -> None:
        """The run ends: save where it stands unless that is saved already, and wait for what is being written."""
        try:
            async with asyncio.timeout(timeout):
                await self._save(why, self._handle.control.take_saves())
                if self._writing is not None:
                    await asyncio.shield(self._writing)
        except TimeoutError:
            self._handle.log("error", "loops", f"the last checkpoint was not saved within {timeout:.0f} s")

    async def close(self) -> None:
        """Give up what is still being written."""
        if self._writing is not None:
            self._writing.cancel()
            await asyncio.wait({self._writing})

    async def _save(self, why: str, requests: list[SaveRequest]) -> None:
        """Begin a checkpoint of where the run stands; ``requests`` are answered when it has ended."""
        await self._written()
        session, step = self._session, self._step
        if session is None or step is None:
            if self._saved is not None:
                _answer(requests, True, f"{self._saved.name} is saved already")
            _answer(requests, False, "no step is finished yet: there is nothing to save")
            return
        if self._saved is not None and self._saved.step == step.step:
            _answer(requests, True, f"{self._saved.name} is saved already")
            return
        row = self._intent(session, step, why)
        try:
            # Committed before Loops is asked: a process that is killed now leaves a row that says so.
            await self._handle.recorder.flush()
            saving = await session.save(row.name)
        except (SaveFailed, StoreError) as error:
            self._failed(row, str(error), requests)
            return
        except asyncio.CancelledError:
            self._failed(row, "the run ended before Loops was asked to save it", requests)
            raise
        self._writing = asyncio.create_task(self._write(session, saving, row, requests), name=row.name)

    def _intent(self, session: LoopsSession, step: StepRow, why: str) -> CheckpointRow:
        row = CheckpointRow(
            run_id=self._handle.run_id,
            name=checkpoint_name(step.step),
            step=step.step,
            state=CheckpointState.SAVING,
            why=why,
            created_at=time.time(),
            policy_version=step.policy_version,
            loops_run_id=session.loops_run_id,
            reward_mean=step.metrics.get("reward/mean_with_unusable"),
            metrics=dict(step.metrics),
            cursor=self._cursor,
        )
        self._handle.recorder.checkpoint(row)
        return row

    async def _write(
        self, session: LoopsSession, saving: Saving, row: CheckpointRow, requests: list[SaveRequest]
    ) -> None:
        recorder = self._handle.recorder
        try:
            row.trainer_path, row.sampler_path = await saving.paths()
        except SaveFailed as error:
            self._failed(row, str(error), requests)
            return
        except asyncio.CancelledError:
            self._failed(row, "the run ended before Loops had saved it", requests)
            raise
        row.state, row.saved_at = CheckpointState.SAVED, time.time()
        recorder.checkpoint(row)
        self._saved = row
        self._handle.log("info", "loops", f"checkpoint {row.name} is saved ({row.why})")
        _answer(requests, True, f"saved as {row.name}", f"{row.name} is saved already")
        try:
            row.size_bytes = await session.saved_bytes(row.name)
        except SaveFailed as error:
            self._handle.log("debug", "loops", f"the size of {row.name} is not known: {error}")
        else:
            recorder.checkpoint(row)

    def _failed(self, row: CheckpointRow, error: str, requests: list[SaveRequest]) -> None:
        row.state, row.error = CheckpointState.FAILED, error
        self._handle.log("error", "loops", f"checkpoint {row.name} could not be saved: {error}")
        _answer(requests, False, f"{row.name} could not be saved: {error}")
        with suppress(StoreError):  # a store that fails ends the run by itself
            self._handle.recorder.checkpoint(row)

    async def _written(self) -> None:
        if self._writing is not None:
            await asyncio.shield(self._writing)


def _answer(requests: list[SaveRequest], done: bool, text: str, later: str | None = None) -> None:
    """Answer all requests; ``later`` is for those that came after the first. None is left to answer."""
    for number, request in enumerate(requests):
        request.answer(done, later if number and later is not None else text)
    requests.clear()
