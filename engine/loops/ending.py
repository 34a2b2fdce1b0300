"""Ending a Loops run, so that it stops billing, and watching until it has ended."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass

from engine.loops.errors import LoopsError, explain
from engine.loops.management import LoopsManagement, LoopsRunInfo, UnknownToLoops

LOOK_SECONDS = 1.0
SAY_SECONDS = 10.0


@dataclass(frozen=True, slots=True)
class Ended:
    """A Loops run that is INACTIVE, and whether it was up before it was told to end."""

    run: LoopsRunInfo
    was_active: bool


async def deactivate(
    url: str | None,
    api_key: str | None,
    loops_run_id: str,
    *,
    told: Callable[[str], None] = lambda _: None,
    timeout: float = 60.0,
) -> Ended:
    """End a run's billing and watch until Loops says it is INACTIVE.

    ``told`` hears what is done, and how it goes every ten seconds.

    Raises:
        UnknownToLoops: there is no such run.
        LoopsError: it could not be confirmed within ``timeout`` seconds; the sentence says that it may still bill.
    """
    try:
        async with asyncio.timeout(timeout), LoopsManagement(url, api_key) as loops:
            return await _end(loops, loops_run_id, told)
    except UnknownToLoops:
        raise
    except (LoopsError, TimeoutError) as error:
        cause = (
            f"it is still not INACTIVE after {timeout:.0f} s"
            if isinstance(error, TimeoutError)
            else str(error)
        )
        raise LoopsError(
            f"the Loops run {loops_run_id} could not be deactivated and may still bill: {cause}"
        ) from error
    except Exception as error:  # the client could not even be made
        raise LoopsError(explain(error, f"deactivating the run {loops_run_id}", url)) from error


async def _end(loops: LoopsManagement, loops_run_id: str, told: Callable[[str], None]) -> Ended:
    run = await loops.run(loops_run_id)
    if not run.active:
        told(f"{loops_run_id} was INACTIVE already")
        return Ended(run, was_active=False)
    told(f"Deactivating {loops_run_id} …")
    await loops.deactivate_run(loops_run_id)
    begun = said = time.monotonic()
    run = await loops.run(loops_run_id)
    while run.active:
        if time.monotonic() - said >= SAY_SECONDS:
            said = time.monotonic()
            told(f"the Loops run {loops_run_id} is still {run.state} after {said - begun:.0f} s")
        await asyncio.sleep(LOOK_SECONDS)
        run = await loops.run(loops_run_id)
    return Ended(run, was_active=True)
