"""What the account holds on Loops, this project's or not.

Everything here runs on the engine's loop or a command's, never on a screen's.
"""

from __future__ import annotations

import asyncio
import time
from contextlib import AsyncExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import ClassVar

from engine.hosting.errors import HostingError
from engine.hosting.loops_access import LOCAL, environment, has_local_runs, local_loops, remote_loops
from engine.loops.errors import LoopsError
from engine.loops.management import LoopsManagement, LoopsRunInfo, LoopsSampler
from engine.recipes.contract import LoopsEndpoint
from engine.store.rows import RunRow
from engine.store.store import Store

_ALL_RUNS = 1_000_000


@dataclass(frozen=True, slots=True)
class AccountRun:
    """A Loops run as its service says it is, and which run of this project it belongs to (None: none)."""

    loops: LoopsRunInfo
    where: str  # "Baseten", an address, or "local"
    run_id: str | None
    #: Whether it is the one that its run's own row tells of, and not one left by a killed process.
    current: bool = False

    @property
    def name(self) -> str:
        return self.loops.name


@dataclass(frozen=True, slots=True)
class AccountSampler:
    """A sampler of its own, and the service that it is on. It has no name and belongs to no run."""

    loops: LoopsSampler
    where: str
    name: ClassVar[None] = None
    run_id: ClassVar[None] = None


@dataclass(frozen=True, slots=True)
class Account:
    """All that this project can reach. ``problems``: a sentence for each service that did not answer."""

    runs: list[AccountRun]
    samplers: list[AccountSampler]  # that are up and belong to no run: an evaluation's or a trial's
    problems: list[str]

    @property
    def unseen(self) -> list[AccountRun | AccountSampler]:
        """What is up and no run of this project tells of: it bills, and nobody here would miss it."""
        return [run for run in self.runs if run.loops.active and not run.current] + self.samplers


async def account_runs(project_dir: Path) -> Account:
    """Every Loops run of the account that the key belongs to, and of the project's own server, newest first.

    Beside them the samplers that are up and belong to no run: one whose process was killed is released by nobody.

    What they say about this project's runs is stored. Raises HostingError where there is no service to ask.
    """
    runs: list[AccountRun] = []
    samplers: list[AccountSampler] = []
    problems: list[str] = []
    async with AsyncExitStack() as stack:
        for endpoint in await services(project_dir, stack):
            try:
                async with LoopsManagement(endpoint.url, endpoint.api_key) as loops:
                    where = LOCAL if endpoint.scope == LOCAL else loops.place
                    # Runs first: a service that does not list its samplers still lists what costs most.
                    runs += [AccountRun(run, where, None) for run in await loops.runs()]
                    samplers += [
                        AccountSampler(sampler, where) for sampler in await loops.samplers() if sampler.active
                    ]
            except LoopsError as error:
                problems.append(str(error))
    if Store.exists(project_dir):
        runs = await asyncio.to_thread(_recognise, project_dir, runs)
    return Account(sorted(runs, key=lambda run: run.loops.created_at, reverse=True), samplers, problems)


async def services(project_dir: Path, stack: AsyncExitStack) -> list[LoopsEndpoint]:
    """Where this project's Loops runs can be: Baseten where there is a key, its own server where it had runs."""
    endpoints: list[LoopsEndpoint] = []
    environ = environment(project_dir)
    if environ.get("BASETEN_API_KEY", "").strip():
        endpoints.append(remote_loops(environ, "auto"))
    if has_local_runs(project_dir):
        endpoints.append(await stack.enter_async_context(local_loops(project_dir)))
    if not endpoints:
        raise HostingError(
            "there is no Loops service to ask: BASETEN_API_KEY is not set, and no local run was made here"
        )
    return endpoints


def _recognise(project_dir: Path, runs: list[AccountRun]) -> list[AccountRun]:
    """Which of them are this project's; what they say of its runs is stored."""
    with Store.open(project_dir) as store:
        rows = store.reader().runs(_ALL_RUNS)
        by_loops_id = {row.loops_run_id: row for row in rows if row.loops_run_id}
        known: list[AccountRun] = []
        for run in runs:
            row = by_loops_id.get(run.loops.id) or next(
                (row for row in rows if is_named_after(run.loops, row)), None
            )
            current = row is not None and row.loops_run_id == run.loops.id
            known.append(replace(run, run_id=row.run_id if row else None, current=current))
            if row is not None and current:
                note_loops_state(store, row, run.loops)
    return known


def is_named_after(loops: LoopsRunInfo, row: RunRow) -> bool:
    """Whether a Loops run was made for a run of ours: each is called ``<name>-<run id>``."""
    return loops.name == f"{row.name}-{row.run_id}"


def note_loops_state(store: Store, row: RunRow, loops: LoopsRunInfo) -> None:
    """Store what Loops says about a run's Loops run. Raises StoreError."""
    until = None if loops.active else row.loops_until or time.time()
    recorder = store.recorder(row.run_id, files=False)
    recorder.run(loops_state=loops.state, loops_since=row.loops_since or loops.created_at, loops_until=until)
    recorder.flush_blocking()
