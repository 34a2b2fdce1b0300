"""What surrounds every recipe's loop: a dead server, an abort, the budget, and an end in which nothing is lost."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Protocol

from engine.loops.errors import LoopsUnavailable
from engine.loops.watch import until_gone
from engine.policy.rendering import RenderingError
from engine.recipes.contract import Outcome, RunFailed, RunHandle
from engine.recipes.saving import Saver
from engine.recipes.spending import SandboxTime, SpendMeter
from engine.store.rows import RunState

if TYPE_CHECKING:
    from engine.project import Project

ABORT_SAVE_SECONDS = 60.0
"""How long an aborted run may take to save its last finished step."""
STOP_SECONDS = 30.0


class Loop(Protocol):
    """A recipe's loop, as the frame sees it."""

    saver: Saver

    async def main(self) -> Outcome:
        """Train to the end."""
        ...

    def unfinished(self, reason: str) -> None:
        """The run ends in mid-step: tell the rows of what was in flight why."""
        ...

    def progress(self) -> tuple[str, float]:
        """How far the step is, as a line for the log, and for how many seconds this phase has lasted."""
        ...

    def phase(self, text: str) -> None:
        """What the run is doing now."""
        ...

    def outcome(self, state: RunState) -> Outcome:
        """How far it came."""
        ...

    @property
    def between_steps(self) -> bool:
        """Whether the trainer holds exactly the steps that are finished."""
        ...

    async def close(self) -> None:
        """Let go of everything. Bounded."""
        ...


def spend_meter(project: Project, handle: RunHandle) -> SpendMeter:
    """The meter of a run; a resumed one goes on from what its row says."""
    config, store = project.config, handle.store
    reader = store.reader() if store is not None else None
    run = reader.get_run(handle.run_id) if reader is not None else None

    def sandboxes() -> SandboxTime:
        return SandboxTime(*reader.sandbox_time(handle.run_id, time.time())) if reader else SandboxTime()

    return SpendMeter(
        config.budget,
        config.prices,
        before=run.spend if run is not None else None,
        scope=handle.endpoint.scope,
        replicas=config.compute.replicas or 1,
        sandboxes=sandboxes,
    )


async def carry(loop: Loop, project: Project, handle: RunHandle, meter: SpendMeter) -> Outcome:
    """Run a recipe's loop to its end.

    Returns:
        The outcome: DONE, STOPPED (asked to, or out of budget, after the step in flight) or ABORTED. Where the run
        stands is saved.

    Raises:
        RunFailed: with one sentence; the store and the run directory hold what was done until then.
        asyncio.CancelledError: the host is going down.
    """
    control, endpoint = handle.control, handle.endpoint

    def out_of_budget(key: str) -> None:
        handle.note(ended_by=f"[budget] {key}")
        control.stop_after_step(f"[budget] {key}", "budget")

    meter.tell(
        lambda spend: handle.recorder.run(spend=spend),
        lambda sentence: handle.log("warning", "budget", sentence),
        out_of_budget,
    )
    main = asyncio.create_task(loop.main(), name="loop")
    gone = asyncio.create_task(until_gone(endpoint.url, endpoint.api_key), name="loops watch")
    abort = asyncio.create_task(control.wait_aborted(), name="abort watch")
    beside = [
        asyncio.create_task(_tell_progress(loop, project, handle), name="progress"),
        asyncio.create_task(meter.watch(), name="spend"),
    ]
    try:
        await asyncio.wait({main, gone, abort}, return_when=asyncio.FIRST_COMPLETED)
        if main.done():
            return main.result()
        main.cancel()
        await asyncio.wait({main}, timeout=STOP_SECONDS)
        if main.done() and not main.cancelled():
            main.exception()  # what a cancelled request ended with is no news
        if abort.done():
            loop.unfinished("aborted")
            if loop.between_steps and not control.lost:
                loop.phase("saving")
                await loop.saver.last(control.ending, ABORT_SAVE_SECONDS)
            return loop.outcome(RunState.ABORTED)
        loop.unfinished("failed")
        raise RunFailed(gone.result())
    except LoopsUnavailable as error:
        loop.unfinished("failed")
        # A failing request may be the first sign of a dead server; the watch, a moment later, says it plainly.
        raise RunFailed(str(error)) from error
    except RenderingError as error:
        loop.unfinished("failed")
        raise RunFailed(str(error)) from error
    finally:
        tasks = {main, gone, abort, *beside}
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks, timeout=STOP_SECONDS)
        await asyncio.shield(_close(loop, meter, handle))


async def _close(loop: Loop, meter: SpendMeter, handle: RunHandle) -> None:
    try:
        await loop.saver.close()
        await loop.close()
    finally:
        handle.recorder.run(spend=await asyncio.to_thread(meter.read))


async def _tell_progress(loop: Loop, project: Project, handle: RunHandle) -> None:
    """While a phase lasts long, say so in the log. Runs until cancelled."""
    every = project.config.output.progress_every_seconds
    while True:
        await asyncio.sleep(every)
        line, lasted = loop.progress()
        if lasted >= every:
            handle.log("info", "run", line)
