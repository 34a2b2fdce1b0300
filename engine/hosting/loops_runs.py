"""Ending Loops runs from outside, live ones too. On the engine's loop or a command's, never on a screen's."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path

from engine.config.problems import ConfigError
from engine.hosting.account import is_named_after, note_loops_state, services
from engine.hosting.errors import HostingError
from engine.hosting.loops_access import loops_of
from engine.loops.ending import deactivate as end_loops_run
from engine.loops.errors import LoopsError
from engine.loops.management import (
    INACTIVE,
    LoopsManagement,
    LoopsRunInfo,
    LoopsSampler,
    UnknownToLoops,
)
from engine.recipes.contract import LoopsEndpoint
from engine.store.errors import StoreError, UnknownRun
from engine.store.rows import RunRow
from engine.store.store import Store

END_SECONDS = 120.0
"""How long a live run's host may take to end it: it saves its last step and releases its sandboxes."""
WATCH_SECONDS = 300.0
"""How long a Loops run may take to become INACTIVE."""
_LOOK_SECONDS = 0.2


@dataclass(frozen=True, slots=True)
class Deactivated:
    """How it went with one Loops run. ``error``: one sentence, where it may still bill."""

    loops_run_id: str
    run_id: str | None  # of this project; None for a run that it does not know
    was_active: bool = False
    since: float | None = None
    until: float | None = None
    error: str | None = None

    @property
    def inactive(self) -> bool:
        return self.error is None


async def deactivate(
    project_dir: Path, ref: str, told: Callable[[str], None] = lambda _: None
) -> list[Deactivated]:
    """End every Loops run of a run, and watch until each is INACTIVE. Safe to repeat; checkpoints stay.

    ``ref`` is a run of this project (id, directory, unique beginning), or the id of any Loops run, or of a sampler
    that belongs to no run, of the account. A live run
    is asked to end first: it saves its last step, its attempts end and its sandboxes are released. ``told`` hears
    how it goes, from this loop.

    Raises:
        UnknownRun: neither this project nor Loops knows it.
        HostingError, ConfigError, StoreError: Loops cannot be reached from here. A live run then goes on.
    """
    if not Store.exists(project_dir):
        return [
            await _deactivate_unknown(project_dir, ref, told, f"there is no run {ref!r} in {project_dir}")
        ]
    store = await asyncio.to_thread(Store.open, project_dir)
    try:
        await asyncio.to_thread(store.reconcile)
        try:
            row = store.reader().run(ref)
        except UnknownRun as unknown:
            return [await _deactivate_unknown(project_dir, ref, told, str(unknown))]
        if not row.state.final:
            await _require_answer(project_dir, row)
        await _end_live(store, row, told)
        row = store.reader().get_run(row.run_id) or row
        return await _deactivate_known(store, project_dir, row, told)
    finally:
        await asyncio.to_thread(store.close)


async def _deactivate_known(
    store: Store, project_dir: Path, row: RunRow, told: Callable[[str], None]
) -> list[Deactivated]:
    async with loops_of(project_dir, row) as endpoint:
        ids = await _loops_runs_of(store, row, endpoint)
        if not ids:
            raise HostingError(f"run {row.run_id} never had a Loops run; there is nothing to deactivate")
        ended = [await _end_one(endpoint, loops_run_id, row.run_id, told) for loops_run_id in ids]
    last = next((one for one in ended if one.loops_run_id == row.loops_run_id), None)
    if last is not None and last.inactive:
        info = LoopsRunInfo(last.loops_run_id, "", "", INACTIVE, last.since or 0.0)
        await asyncio.to_thread(note_loops_state, store, row, info)
    return ended


async def _loops_runs_of(store: Store, row: RunRow, endpoint: LoopsEndpoint) -> list[str]:
    """Every Loops run that may be up for this run: its sittings', and what a killed process left unnamed."""
    named = [point.loops_run_id for point in store.reader().checkpoints(row.run_id)]
    found = [row.loops_run_id, *row.info.get("loops_runs", [])]
    try:
        async with LoopsManagement(endpoint.url, endpoint.api_key) as loops:
            listed = await loops.runs()
    except LoopsError:  # it will be met again, and told, by the ending itself
        listed = []
    active = {run.id for run in listed if run.active}
    found += [loops_run_id for loops_run_id in named if loops_run_id in active]
    found += [run.id for run in listed if run.active and is_named_after(run, row)]
    return list(dict.fromkeys(str(loops_run_id) for loops_run_id in found if loops_run_id))


async def _deactivate_unknown(
    project_dir: Path, ref: str, told: Callable[[str], None], unknown: str
) -> Deactivated:
    """A run of the account that this project does not know."""
    async with AsyncExitStack() as stack:
        try:
            endpoints = await services(project_dir, stack)
        except (HostingError, ConfigError):
            raise UnknownRun(unknown) from None
        problems: list[str] = []
        for endpoint in endpoints:
            try:
                async with LoopsManagement(endpoint.url, endpoint.api_key) as loops:
                    if await _knows_run(loops, ref):
                        return await _end_one(endpoint, ref, None, told)
                    sampler = next((one for one in await loops.samplers() if one.id == ref), None)
                    if sampler is not None:
                        return await _end_sampler(loops, sampler, told)
            except LoopsError as error:
                problems.append(str(error))
    if problems:
        raise HostingError("; ".join(problems))
    raise UnknownRun(f"{unknown}; Loops knows no run of that id either")


async def _knows_run(loops: LoopsManagement, loops_run_id: str) -> bool:
    try:
        await loops.run(loops_run_id)
    except UnknownToLoops:
        return False
    return True


async def _end_sampler(
    loops: LoopsManagement, sampler: LoopsSampler, told: Callable[[str], None]
) -> Deactivated:
    told(f"Ending the sampler {sampler.id} …" if sampler.active else f"{sampler.id} was INACTIVE already")
    try:
        await loops.deactivate_sampler(sampler.model_id, sampler.deployment_id)
    except LoopsError as error:
        return Deactivated(sampler.id, None, error=f"the sampler {sampler.id} may still bill: {error}")
    return Deactivated(sampler.id, None, sampler.active, sampler.created_at, time.time())


async def _end_one(
    endpoint: LoopsEndpoint, loops_run_id: str, run_id: str | None, told: Callable[[str], None]
) -> Deactivated:
    try:
        ended = await end_loops_run(
            endpoint.url, endpoint.api_key, loops_run_id, told=told, timeout=WATCH_SECONDS
        )
    except LoopsError as error:
        return Deactivated(loops_run_id, run_id, error=str(error))
    return Deactivated(loops_run_id, run_id, ended.was_active, ended.run.created_at, time.time())


async def _require_answer(project_dir: Path, row: RunRow) -> None:
    """A live run is ended only where its Loops run can be ended after it: it would bill on, and train nothing.

    Raises HostingError or ConfigError.
    """
    async with loops_of(project_dir, row) as endpoint:
        try:
            async with LoopsManagement(endpoint.url, endpoint.api_key) as loops:
                await loops.runs()
        except LoopsError as error:
            raise HostingError(
                f"{error}; run {row.run_id} goes on, and so does its Loops run, which may bill"
            ) from error


async def _end_live(store: Store, row: RunRow, told: Callable[[str], None]) -> None:
    """Let a live host end its run before its Loops run is taken away: it saves and releases what it holds."""
    reader = store.reader()

    def live() -> RunRow | None:
        run = reader.get_run(row.run_id)
        return None if run is None or run.state.final else run

    if live() is None:
        return
    told(f"Run {row.run_id} is {row.state}: asking it to end, with what it has finished saved")
    try:
        await asyncio.to_thread(store.request, row.run_id, "abort", {"why": "deactivate"})
    except StoreError as error:
        if live() is not None:
            told(f"it cannot be asked: {error}")
        return
    deadline = time.monotonic() + END_SECONDS
    while await asyncio.to_thread(live) is not None:
        if time.monotonic() > deadline:
            told(f"it has not ended within {END_SECONDS:.0f} s; its calls will fail from now on")
            return
        await asyncio.sleep(_LOOK_SECONDS)
        await asyncio.to_thread(store.reconcile)
    told(f"Run {row.run_id} has ended")
