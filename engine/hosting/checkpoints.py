"""A run's checkpoints from outside it: look them up, bring them here, have them served.

Everything here runs on the engine's loop or a command's. Saving is the live run's own business: ask its host with
``engine.hosting.request(store, ref, "save")``.
"""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from engine.hosting.checkpoint_lookup import CheckpointUnknown, find_checkpoint, wanted_checkpoint
from engine.hosting.errors import BadRequest, HostingError
from engine.hosting.loops_access import LOCAL, asking_loops
from engine.loops.deploying import (
    DEFAULT_SECRET,
    ROUTE,
    DeployChoice,
    choice_problem,
    deployment_request,
    kinds_in_words,
    name_problem,
    unknown_outcome,
    usable_name,
)
from engine.loops.downloading import Downloaded, DownloadProgress, download
from engine.loops.errors import LoopsError
from engine.loops.kept import Part
from engine.loops.management import (
    Deployment,
    InstanceType,
    LoopsCheckpoint,
    LoopsManagement,
    OutcomeUnknown,
    UnknownToLoops,
)
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
    "Part",
    "PlannedDeployment",
    "deploy_checkpoint",
    "download_checkpoint",
    "kinds_in_words",
    "name_problem",
    "plan_deployment",
    "refresh_checkpoints",
    "remembered_choice",
]

_REMEMBERED = "deployments.json"


class DeploymentUnknown(HostingError):
    """A deployment was asked for and nobody knows whether it was made."""


# -- what Loops has ------------------------------------------------------------------------------------------------


async def refresh_checkpoints(project_dir: Path, ref: str) -> list[CheckpointRow]:
    """Ask Loops about a run's checkpoints and store what it says: sizes, and which are gone, whole or in part; newest first.

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
    """A checkpoint's row as Loops' list has it; one that was taken for gone is back where the list has it again."""
    if row.loops_run_id is None or row.state not in (CheckpointState.SAVED, CheckpointState.DELETED):
        return row
    trainer, sampler = (found.get(path or "") for path in (row.trainer_path, row.sampler_path))
    parts = [part for part in (trainer, sampler) if part is not None]
    if not parts:
        return replace(row, state=CheckpointState.DELETED, error="Loops no longer has it")
    lost = [
        what
        for what, path, part in (
            ("trainer's state", row.trainer_path, trainer),
            ("sampler weights", row.sampler_path, sampler),
        )
        if path is not None and part is None
    ]
    error = row.error if row.state is CheckpointState.SAVED else None
    return replace(
        row,
        state=CheckpointState.SAVED,
        size_bytes=sum(part.size_bytes for part in parts),
        trainer_path=None if trainer is None else row.trainer_path,
        sampler_path=None if sampler is None else row.sampler_path,
        error=f"Loops no longer has its {lost[0]}" if lost else error,
    )


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
    wanted = await find_checkpoint(project_dir, ref, name, part)
    row = wanted.row
    about = {"run": row.run_id, "name": row.name, "step": row.step, "part": part}
    async with asking_loops(project_dir, wanted.run) as loops:
        checkpoint = await wanted.on_loops(loops)
        return await download(loops, checkpoint, directory, about=about, progress=progress)


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
        str(known.get("model_name") or usable_name(run.name)),
        str(known.get("instance_type") or ""),
        str(known.get("secret") or DEFAULT_SECRET),
    )


def _remember(project_dir: Path, choice: DeployChoice) -> None:
    path = prepare_directory(project_dir) / _REMEMBERED
    temporary = path.with_suffix(f".{os.getpid()}")
    temporary.write_text(json.dumps(asdict(choice), indent=1) + "\n", encoding="utf-8")
    temporary.replace(path)


def _require_sound(choice: DeployChoice, kinds: Sequence[InstanceType] = ()) -> None:
    """Raises BadRequest where Baseten would refuse it."""
    problem = choice_problem(choice, kinds)
    if problem is not None:
        raise BadRequest(problem)


async def plan_deployment(project_dir: Path, ref: str, name: str, choice: DeployChoice) -> PlannedDeployment:
    """What would be sent to deploy a checkpoint; the machine may still be chosen (""). Makes and changes nothing.

    Raises BadRequest, UnknownRun, CheckpointUnknown, HostingError, ConfigError or StoreError.
    """
    _require_sound(choice)
    wanted = await find_checkpoint(project_dir, ref, name, "sampler")
    async with asking_loops(project_dir, wanted.run) as loops:
        checkpoint = await wanted.on_loops(loops)
        kinds = await loops.instance_types()
        url = f"{loops.base_url}{ROUTE}"
    _require_sound(choice, kinds)
    body = deployment_request([checkpoint.id], choice)
    return PlannedDeployment(wanted.run.run_id, wanted.row.name, wanted.address, url, body, kinds)


async def deploy_checkpoint(project_dir: Path, ref: str, name: str, choice: DeployChoice) -> Deployed:
    """Have a checkpoint's sampler weights served by Baseten. **Bills**, and each call makes another deployment.

    The choice is remembered for the project; what was asked for and what came of it is in the run's log.

    Raises:
        DeploymentUnknown: the request was sent, and nobody knows what came of it; the sentence says where to look.
        BadRequest, UnknownRun, CheckpointUnknown, HostingError, ConfigError, StoreError: nothing was made.
    """
    _require_sound(choice)
    if not choice.instance_type.strip():
        raise BadRequest("no instance type is given; Baseten's list of instance types names them")
    store = await asyncio.to_thread(Store.open, project_dir)
    try:
        reader = store.reader()
        wanted = wanted_checkpoint(reader, reader.run(ref), name, "sampler")
        run, row = wanted.run, wanted.row
        if run.scope == LOCAL:
            raise HostingError(
                f"run {run.run_id} is on this machine's own Loops server, which ends with the last program that uses "
                f"it and so serves nothing for good; `loops-tui try {run.run_id}@{row.name}` talks to the checkpoint, "
                f"`loops-tui checkpoints {run.run_id} download {row.name} DIR` gives you its files"
            )
        recorder = store.recorder(run.run_id, files=False)
        what = f"checkpoint {row.name} as {choice.model_name!r} on {choice.instance_type}"
        async with asking_loops(project_dir, run) as loops:
            checkpoint = await wanted.on_loops(loops)
            _require_sound(choice, await loops.instance_types())
            await asyncio.to_thread(_remember, project_dir, choice)
            try:
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
