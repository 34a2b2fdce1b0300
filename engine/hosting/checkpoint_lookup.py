"""Which checkpoint of a run is meant, and whether Loops still has it."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from engine.hosting.errors import BadRequest
from engine.loops.kept import NoLongerKept, Part, address_of, kept_checkpoint
from engine.loops.management import LoopsCheckpoint, LoopsManagement
from engine.store.queries import StoreReader
from engine.store.rows import CheckpointRow, CheckpointState, RunRow
from engine.store.store import Store


class CheckpointUnknown(BadRequest):
    """The run has no such checkpoint, or not that part of it, or Loops no longer has it."""


@dataclass(frozen=True, slots=True)
class WantedCheckpoint:
    """A saved checkpoint's part as the store knows it. ``of_run``: all saved checkpoints of its run."""

    run: RunRow
    row: CheckpointRow
    part: Part
    address: str
    of_run: Sequence[CheckpointRow]

    async def on_loops(self, loops: LoopsManagement) -> LoopsCheckpoint:
        """The same as Loops has it. Raises CheckpointUnknown where it is gone, LoopsError where nobody says."""
        try:
            return await kept_checkpoint(loops, self.row, self.part, self.of_run)
        except NoLongerKept as error:
            raise CheckpointUnknown(str(error)) from error


def saved_checkpoints(reader: StoreReader, run_id: str) -> list[CheckpointRow]:
    """A run's saved checkpoints, as the store knows them."""
    return [row for row in reader.checkpoints(run_id) if row.state is CheckpointState.SAVED]


def wanted_checkpoint(reader: StoreReader, run: RunRow, name: str, part: Part) -> WantedCheckpoint:
    """A run's checkpoint by its name, a step number, or "last". Raises CheckpointUnknown with what there is."""
    saved = saved_checkpoints(reader, run.run_id)
    row = _named(saved, run, name)
    address = address_of(row, part)
    if address is None:
        what = "sampler weights" if part == "sampler" else "trainer's state"
        raise CheckpointUnknown(f"checkpoint {row.name} of run {run.run_id} was saved without its {what}")
    return WantedCheckpoint(run, row, part, address, saved)


async def find_checkpoint(project_dir: Path, ref: str, name: str, part: Part) -> WantedCheckpoint:
    """``wanted_checkpoint`` in a project's store. Raises StoreError as well."""

    def find() -> WantedCheckpoint:
        with Store.open(project_dir) as store:
            reader = store.reader()
            return wanted_checkpoint(reader, reader.run(ref), name, part)

    return await asyncio.to_thread(find)


def _named(saved: Sequence[CheckpointRow], run: RunRow, name: str) -> CheckpointRow:
    if not saved:
        raise CheckpointUnknown(f"run {run.run_id} has no saved checkpoint")
    if name == "last":
        return max(saved, key=lambda row: row.step)
    for row in saved:
        if name in (row.name, str(row.step)):
            return row
    names = ", ".join(row.name for row in sorted(saved, key=lambda row: -row.step)[:8])
    raise CheckpointUnknown(f"run {run.run_id} has no saved checkpoint {name!r}; there are {names}")
