"""The Loops runs that earlier sittings of a run left up."""

from __future__ import annotations

from engine.loops.ending import deactivate
from engine.loops.management import LoopsManagement


async def end_earlier(url: str | None, api_key: str | None, name: str) -> list[str]:
    """Deactivate every active Loops run of this name and return their ids; also one that no store knows.

    A process that is killed while Loops provisions leaves a trainer whose id nobody was told.

    Raises:
        LoopsError: they could not be listed, or one could not be confirmed to be INACTIVE.
    """
    async with LoopsManagement(url, api_key) as loops:
        active = [run.id for run in await loops.runs() if run.active and run.name == name]
    for loops_run_id in active:
        await deactivate(url, api_key, loops_run_id)
    return active
