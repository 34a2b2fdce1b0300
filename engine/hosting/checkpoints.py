"""A run's checkpoints from outside it: look them up, bring them here, have them served.

Everything here runs on the engine's loop or a command's. Saving is the live run's own business: ask its host with
``engine.hosting.request(store, ref, "save")``.
"""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Literal

from engine.hosting.errors import HostingError
from engine.hosting.loops_access import LOCAL, asking_loops
from engine.loops.deploying import (
    DEFAULT_SECRET,
    ROUTE,
    DeployChoice,
    choice_problem,
    deployment_request,
    unknown_outcome,
)
from engine.loops.downloading import Downloaded, DownloadProgress, download
from engine.loops.errors import LoopsError
from engine.loops.management import (
    Deployment,
    InstanceType,
    LoopsCheckpoint,
    LoopsManagement,
    OutcomeUnknown,
    UnknownToLoops,
)
from engine.store.queries import StoreReader
from engine.store.rows import CheckpointRow, CheckpointState, RunRow
from engine.store.schema import STORE_DIRECTORY, prepare_directory
from engine.store.store import Store

__all__ = [
    "CheckpointUnknown",
    "DeployChoice",
    "Deployed",
    "DeploymentUnknown",
    "DownloadProgress",
    "Downloaded",
    "PlannedDeployment",
    "checkpoint_of",
    "deploy_checkpoint",
    "download_checkpoint",
    "plan_deployment",
    "refresh_checkpoints",
    "remembered_choice",
]

type Part = Literal["sampler", "trainer"]
"""Sampler weights (an adapter to serve or sample from), or the trainer's state with its optimizer (to resume from)."""

_REMEMBERED = "deployments.json"


class CheckpointUnknown(HostingError):
    """The run has no such checkpoint, or not that part of it."""


class DeploymentUnknown(HostingError):
    """A deployment was asked for and nobody knows whether it was made."""


# -- which ---------------------------------------------------------------------------------------------------------


def checkpoint_of(reader: StoreReader, run: RunRow, name: str) -> CheckpointRow:
    """A run's checkpoint by its name, a step number, or "last". Raises CheckpointUnknown with what there is."""
    saved = [row for row in reader.checkpoints(run.run_id) if row.state is CheckpointState.SAVED]
    if not saved:
        raise CheckpointUnknown(f"run {run.run_id} has no saved checkpoint")
    if name == "last":
        return max(saved, key=lambda row: row.step)
    for row in saved:
        if name in (row.name, str(row.step)):
            return row
    names = ", ".join(row.name for row in sorted(saved, key=lambda row: -row.step)[:8])
    raise CheckpointUnknown(f"run {run.run_id} has no saved checkpoint {name!r}; there are {names}")


def _address(row: CheckpointRow, part: Part) -> str:
    address = row.sampler_path if part == "sampler" else row.trainer_path
    if address is None:
        raise CheckpointUnknown(f"checkpoint {row.name} of run {row.run_id} has no {part} part")
    return address


async def refresh_checkpoints(project_dir: Path, ref: str) -> list[CheckpointRow]:
    """Ask Loops about a run's checkpoints and store what it says: sizes, and which are gone; newest first.

    Raises UnknownRun, HostingError, ConfigError or StoreError.
    """
    store = await asyncio.to_thread(Store.open, project_dir)
    try:
        run = store.reader().run(ref)
        rows = store.reader().checkpoints(run.run_id)
        async with asking_loops(project_dir, run) as loops:
            found = await _listed(loops, {row.loops_run_id for row in rows if row.loops_run_id})
        recorder = store.recorder(run.run_id, files=False)
        for row in rows:
            recorder.checkpoint(_as_listed(row, found))
        await recorder.flush()
        return store.reader().checkpoints(run.run_id)
    finally:
        await asyncio.to_thread(store.close)


async def _listed(loops: LoopsManagement, loops_run_ids: set[str]) -> dict[str, LoopsCheckpoint]:
    """The checkpoints of several Loops runs, by address."""
    found: dict[str, LoopsCheckpoint] = {}
    for loops_run_id in loops_run_ids:
        try:
            found.update({item.address: item for item in await loops.checkpoints(loops_run_id)})
        except UnknownToLoops:
            continue
    return found


def _as_listed(row: CheckpointRow, found: dict[str, LoopsCheckpoint]) -> CheckpointRow:
    parts = [found[path] for path in (row.trainer_path, row.sampler_path) if path in found]
    if row.state is CheckpointState.SAVED and not parts:
        return replace(row, state=CheckpointState.DELETED, error="Loops no longer has it")
    return replace(row, size_bytes=sum(part.size_bytes for part in parts)) if parts else row


# -- downloading ---------------------------------------------------------------------------------------------------


async def download_checkpoint(
    project_dir: Path,
    ref: str,
    name: str,
    directory: Path,
    *,
    part: Part = "sampler",
    progress: Callable[[DownloadProgress], None] = lambda _: None,
) -> Downloaded:
    """Bring a checkpoint's files into a directory; the same call again goes on where this one stopped.

    Raises UnknownRun, CheckpointUnknown, HostingError, ConfigError or StoreError.
    """
    run, row = await asyncio.to_thread(_find, project_dir, ref, name)
    address = _address(row, part)
    about = {"run": run.run_id, "name": row.name, "step": row.step, "part": part}
    async with asking_loops(project_dir, run) as loops:
        checkpoint = await loops.checkpoint(address)
        return await download(loops, checkpoint, directory, about=about, progress=progress)


def _find(project_dir: Path, ref: str, name: str) -> tuple[RunRow, CheckpointRow]:
    with Store.open(project_dir) as store:
        run = store.reader().run(ref)
        return run, checkpoint_of(store.reader(), run, name)


# -- deploying -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class PlannedDeployment:
    """The request as it would be sent (``body`` as JSON to ``url``), and the machines that there are to choose from."""

    run_id: str
    checkpoint: str
    address: str
    url: str
    body: dict[str, Any]
    instance_types: list[InstanceType]


@dataclass(frozen=True, slots=True)
class Deployed:
    """A deployment that Baseten has begun to make; it bills from when it is up until it is deactivated there."""

    run_id: str
    checkpoint: str
    deployment: Deployment


def remembered_choice(project_dir: Path, run: RunRow) -> DeployChoice:
    """What was chosen last time in this project; the run's own name for the model where nothing was."""
    known: dict[str, Any] = {}
    path = project_dir / STORE_DIRECTORY / _REMEMBERED
    if path.is_file():
        try:
            known = json.loads(path.read_text(encoding="utf-8"))
        except (OSError, ValueError):
            known = {}  # a convenience that cannot be read is asked for again
    return DeployChoice(
        str(known.get("model_name") or run.name),
        str(known.get("instance_type") or ""),
        str(known.get("secret") or DEFAULT_SECRET),
    )


def _remember(project_dir: Path, choice: DeployChoice) -> None:
    path = prepare_directory(project_dir) / _REMEMBERED
    temporary = path.with_suffix(f".{os.getpid()}")
    temporary.write_text(json.dumps(asdict(choice), indent=1) + "\n", encoding="utf-8")
    temporary.replace(path)


async def plan_deployment(project_dir: Path, ref: str, name: str, choice: DeployChoice) -> PlannedDeployment:
    """What would be sent to deploy a checkpoint. Sends nothing that makes or changes anything.

    Raises UnknownRun, CheckpointUnknown, HostingError, ConfigError or StoreError.
    """
    run, row = await asyncio.to_thread(_find, project_dir, ref, name)
    address = _address(row, "sampler")
    async with asking_loops(project_dir, run) as loops:
        checkpoint = await loops.checkpoint(address)
        kinds = await loops.instance_types()
        url = f"{loops.base_url}{ROUTE}"
    body = deployment_request([checkpoint.id], choice)
    return PlannedDeployment(run.run_id, row.name, address, url, body, kinds)


async def deploy_checkpoint(project_dir: Path, ref: str, name: str, choice: DeployChoice) -> Deployed:
    """Have a checkpoint's sampler weights served by Baseten. **Bills**, and each call makes another deployment.

    The choice is remembered for the project; what was asked for and what came of it is in the run's log.

    Raises:
        DeploymentUnknown: the request was sent, and nobody knows what came of it; the sentence says where to look.
        UnknownRun, CheckpointUnknown, HostingError, ConfigError, StoreError: nothing was made.
    """
    problem = choice_problem(choice)
    if problem is not None:
        raise HostingError(problem)
    store = await asyncio.to_thread(Store.open, project_dir)
    try:
        run = store.reader().run(ref)
        row = checkpoint_of(store.reader(), run, name)
        address = _address(row, "sampler")
        if run.scope == LOCAL:
            raise HostingError(
                f"run {run.run_id} is on this machine's own Loops server, which ends with the last program that uses "
                f"it and so serves nothing for good; `loops-tui try {run.run_id}@{row.name}` talks to the checkpoint, "
                f"`loops-tui checkpoints {run.run_id} download {row.name} DIR` gives you its files"
            )
        await asyncio.to_thread(_remember, project_dir, choice)
        recorder = store.recorder(run.run_id, files=False)
        what = f"checkpoint {row.name} as {choice.model_name!r} on {choice.instance_type}"
        async with asking_loops(project_dir, run) as loops:
            try:
                checkpoint = await loops.checkpoint(address)
                recorder.log("info", "loops", f"asking for a deployment of {what}")
                await recorder.flush()  # before the request: what may bill must be known
                made = await loops.deploy(deployment_request([checkpoint.id], choice))
            except OutcomeUnknown as error:
                sentence = unknown_outcome(choice, str(error))
                recorder.log("error", "loops", sentence)
                await recorder.flush()
                raise DeploymentUnknown(sentence) from error
            except LoopsError as error:
                recorder.log("error", "loops", f"no deployment was made: {error}")
                await recorder.flush()
                raise
        recorder.log(
            "info", "loops", f"deployed {what}: model {made.model_id}, deployment {made.deployment_id}"
        )
        await recorder.flush()
        return Deployed(run.run_id, row.name, made)
    finally:
        await asyncio.to_thread(store.close)
