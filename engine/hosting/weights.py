"""Weights in hand: a sampler of a checkpoint or of the base model, opened beside any run and released at the end.

For evaluations on demand and for trying weights out. Nothing of it trains.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from engine.hosting.checkpoint_lookup import WantedCheckpoint, wanted_checkpoint
from engine.hosting.errors import BadRequest, HostingError
from engine.hosting.loops_access import LOCAL, local_loops, remote_loops
from engine.hosting.prepare import load_project
from engine.hosting.presence import Presence
from engine.hosting.resuming import project_as_run
from engine.loops.errors import LoopsError
from engine.loops.management import LoopsManagement
from engine.loops.pinned import PinnedSampler
from engine.loops.sampling import SamplingSettings
from engine.loops.watch import until_gone
from engine.policy.rendering import PolicyRenderer, RenderingError
from engine.recipes.contract import LoopsEndpoint
from engine.recipes.rl.parts import renderer_of, sandboxes_of
from engine.recipes.sft.data import sft_renderer
from engine.sandboxes.errors import SandboxError
from engine.sandboxes.for_run import RunSandboxes
from engine.store.redact import secret_values
from engine.store.rows import CheckpointRow, RunRow
from engine.store.store import Store

if TYPE_CHECKING:
    from engine.project import Project


@dataclass(frozen=True, slots=True)
class WeightsAsked:
    """Whose weights: a run's checkpoint (by name, step or "last"), a run's base model, or a config's base model."""

    run: str | None = None
    checkpoint: str | None = None  # None: the base model
    config: str | None = None
    overrides: Sequence[str] = ()


@dataclass(slots=True)
class WeightsInHand:
    """An open sampler and what belongs to it. ``sandboxes`` is None for an episode without one."""

    project: Project
    store: Store
    host_id: str
    run: RunRow | None
    checkpoint: CheckpointRow | None
    endpoint: LoopsEndpoint
    renderer: PolicyRenderer
    sampler: PinnedSampler
    sandboxes: RunSandboxes | None

    @property
    def name(self) -> str:
        """What to call the weights."""
        if self.checkpoint is None:
            return f"the base model {self.project.config.model.base_model}"
        return f"{self.checkpoint.name} of run {self.checkpoint.run_id}"


@asynccontextmanager
async def weights_in_hand(
    project_dir: Path,
    asked: WeightsAsked,
    *,
    purpose: str,
    with_sandboxes: bool,
    ready: Callable[[Project], object] = lambda _: None,
    told: Callable[[str], None] = lambda _: None,
) -> AsyncIterator[WeightsInHand]:
    """Open a sampler for weights; it is released when the block ends, however it ends.

    ``purpose`` is what this process is called while it holds sandboxes. ``ready`` looks, in a thread, whether what is
    wanted of the config is there, and raises where it is not: a mistake must not open what may bill. ``told`` hears what
    is opened, what it costs where ``[prices]`` say so, and what could not be released.

    Raises:
        UnknownRun, CheckpointUnknown, HostingError, ConfigError, StoreError: with one sentence.
    """
    store = await asyncio.to_thread(Store.open, project_dir)
    try:
        project, run, wanted = await asyncio.to_thread(_find, project_dir, store, asked)
        checkpoint = None if wanted is None else wanted.row
        store.redactor.add(secret_values(project.environ))
        try:
            await asyncio.to_thread(ready, project)
            async with (
                _endpoint(project_dir, project, run) as endpoint,
                _present(store, purpose) as host_id,
                _opened(project, endpoint, wanted, told) as (sampler, renderer),
                _sandboxes(project, store, host_id, with_sandboxes, told) as sandboxes,
            ):
                yield WeightsInHand(
                    project, store, host_id, run, checkpoint, endpoint, renderer, sampler, sandboxes
                )
        finally:
            project.close()
    except (LoopsError, RenderingError, SandboxError) as error:
        raise HostingError(str(error)) from error
    finally:
        await asyncio.to_thread(store.close)


async def while_loops_lives[ResultT](endpoint: LoopsEndpoint, work: Coroutine[Any, Any, ResultT]) -> ResultT:
    """The work's result, or HostingError as soon as the Loops service is gone: the SDK alone would wait for minutes."""
    working = asyncio.create_task(work)
    gone = asyncio.create_task(until_gone(endpoint.url, endpoint.api_key))
    try:
        await asyncio.wait({working, gone}, return_when=asyncio.FIRST_COMPLETED)
        if working.done():
            return working.result()
        raise HostingError(gone.result())
    finally:
        gone.cancel()
        working.cancel()
        await asyncio.wait({working, gone})


def _find(
    project_dir: Path, store: Store, asked: WeightsAsked
) -> tuple[Project, RunRow | None, WantedCheckpoint | None]:
    """The config, the run and the checkpoint that are meant. Blocks: it imports the config's modules."""
    if asked.run is None:
        assert asked.config is not None
        return load_project(asked.config, asked.overrides, project_dir), None, None
    store.reconcile()
    reader = store.reader()
    run = reader.run(asked.run)
    wanted = None if asked.checkpoint is None else wanted_checkpoint(reader, run, asked.checkpoint, "sampler")
    return project_as_run(run, asked.overrides, project_dir), run, wanted


@asynccontextmanager
async def _endpoint(project_dir: Path, project: Project, run: RunRow | None) -> AsyncIterator[LoopsEndpoint]:
    scope = str(project.scope) if run is None else run.scope
    if scope == LOCAL:
        async with local_loops(project_dir) as endpoint:
            yield endpoint
        return
    yield remote_loops(project.environ, scope, None if run is None else run.loops_url)


@asynccontextmanager
async def _present(store: Store, purpose: str) -> AsyncIterator[str]:
    presence = Presence(store, purpose)
    await asyncio.to_thread(presence.__enter__)
    try:
        yield presence.host_id
    finally:
        await asyncio.shield(asyncio.to_thread(presence.__exit__, None, None, None))


@asynccontextmanager
async def _opened(
    project: Project,
    endpoint: LoopsEndpoint,
    wanted: WantedCheckpoint | None,
    told: Callable[[str], None],
) -> AsyncIterator[tuple[PinnedSampler, PolicyRenderer]]:
    """The sampler and its renderer, loaded beside each other. Raises CheckpointUnknown before anything is opened."""
    if wanted is not None:
        async with LoopsManagement(endpoint.url, endpoint.api_key) as loops:
            await wanted.on_loops(loops)
    model = project.config.model
    local = endpoint.scope == LOCAL
    base = str(project.model_dir or model.base_model) if local else model.base_model
    loading = asyncio.create_task(asyncio.to_thread(_renderer, project))
    try:
        sampler = await PinnedSampler.open(
            url=endpoint.url,
            api_key=endpoint.api_key,
            settings=SamplingSettings(),
            base_model=base if wanted is None else None,
            model_path=None if wanted is None else wanted.address,
            max_seq_len=model.max_seq_len,
            scope=endpoint.sdk_scope,
            request_seconds=project.config.compute.request_timeout_seconds,
        )
        try:
            told(f"Sampler {sampler.sampler_id}: {_cost_words(project, endpoint, sampler)}")
            renderer = await loading
            yield sampler, renderer
        finally:
            left = await asyncio.shield(sampler.close())
            told(left if left is not None else f"Sampler {sampler.sampler_id} is released")
    finally:
        if not loading.done():
            await asyncio.wait({loading}, timeout=60.0)


def _renderer(project: Project) -> PolicyRenderer:
    """What the weights were trained to answer. Raises RenderingError."""
    return sft_renderer(project) if project.config.recipe == "sft" else renderer_of(project)


def require_episode(project: Project) -> None:
    """Raises BadRequest where a config has no episode."""
    recipe = project.config.recipe
    if recipe != "rl":
        raise BadRequest(f"{project.path.name} is of the recipe {recipe!r}, which has no episode to attempt")


@asynccontextmanager
async def _sandboxes(
    project: Project, store: Store, host_id: str, wanted: bool, told: Callable[[str], None]
) -> AsyncIterator[RunSandboxes | None]:
    if not wanted:
        yield None
        return
    sandboxes = await sandboxes_of(project, store, run_id=None, host_id=host_id)
    try:
        yield sandboxes
    finally:
        if sandboxes is not None:
            lost = await asyncio.shield(sandboxes.close())
            if lost:
                told(f"{lost} sandboxes could not be released: run loops-tui cleanup")


def _cost_words(project: Project, endpoint: LoopsEndpoint, sampler: PinnedSampler) -> str:
    """What a sampler costs, as far as anybody knows."""
    prices = project.config.prices
    if endpoint.scope == LOCAL:
        return "on this machine, at no cost"
    if sampler.has_deployment:
        hour = prices.sampler_hour
        price = f"{hour:g} {prices.currency} an hour" if hour is not None else "by the hour"
        return f"a deployment of its own, which bills {price} until it is released"
    tokens = [
        f"{price:g} {prices.currency} for a million {what} tokens"
        for what, price in (("prompt", prices.prompt_million), ("sampled", prices.sampled_million))
        if price is not None
    ]
    return "on the serverless pool, which bills " + (", ".join(tokens) or "by token")
