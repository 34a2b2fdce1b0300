"""Whether Loops still has a checkpoint that a run's store names, and which of that run's others it has."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Literal

from engine.loops.errors import LoopsError
from engine.loops.management import LoopsCheckpoint, LoopsManagement, UnknownToLoops
from engine.store.rows import CheckpointRow

ASK_SECONDS = 60.0
"""How long Loops may take to say what it has."""

type Part = Literal["sampler", "trainer"]
"""Sampler weights (an adapter to serve or sample from), or the trainer's state with its optimizer (to resume from)."""


class NoLongerKept(UnknownToLoops):
    """Loops answered, and has that part of the checkpoint no more.

    ``others``: those of its run that it has, the newest first.
    """

    def __init__(self, sentence: str, others: Sequence[str]) -> None:
        super().__init__(sentence)
        self.others = others


def address_of(row: CheckpointRow, part: Part) -> str | None:
    """A part's address on Loops; None where the checkpoint was saved without it."""
    return row.sampler_path if part == "sampler" else row.trainer_path


async def kept_checkpoint(
    loops: LoopsManagement, row: CheckpointRow, part: Part, of_run: Sequence[CheckpointRow]
) -> LoopsCheckpoint:
    """The part of a checkpoint as Loops has it. ``of_run``: all of its run's saved checkpoints. Bounded.

    Raises:
        NoLongerKept: it is gone; the sentence names those that are left.
        LoopsError: Loops could not be asked.
    """
    address = address_of(row, part)
    assert address is not None, "whoever asks has looked for the address"
    try:
        async with asyncio.timeout(ASK_SECONDS):
            try:
                return await loops.checkpoint(address)
            except UnknownToLoops:
                others = await _left(loops, part, [other for other in of_run if other.name != row.name])
    except TimeoutError as error:
        raise LoopsError(
            f"Loops at {loops.place} did not say within {ASK_SECONDS:.0f} s whether it still has {row.name} of run "
            f"{row.run_id}"
        ) from error
    left = f"it still has {', '.join(others[:8])}" if others else "it has none of that run's others either"
    raise NoLongerKept(f"Loops at {loops.place} no longer has {row.name} of run {row.run_id}; {left}", others)


async def _left(loops: LoopsManagement, part: Part, rows: Sequence[CheckpointRow]) -> list[str]:
    """Names of those whose part Loops has, newest first."""
    addresses: set[str] = set()
    for loops_run_id in dict.fromkeys(row.loops_run_id for row in rows if row.loops_run_id is not None):
        try:
            addresses |= {found.address for found in await loops.checkpoints(loops_run_id)}
        except UnknownToLoops:
            continue
    kept = [row for row in rows if address_of(row, part) in addresses]
    return [row.name for row in sorted(kept, key=lambda row: -row.step)]
