"""``checkpoints``: a run's checkpoints listed, saved, downloaded, deployed."""

from __future__ import annotations

import asyncio
import json
import os
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from loops_tui.checkpoint_words import kind_words, score_of, size_words, state_words, why_words
from loops_tui.commands.looking import refused_to_look_on
from loops_tui.commands.output import (
    DONE,
    FAILED,
    STOPPED,
    Output,
    UsageError,
    asked_for,
    columns,
    confirmed,
    open_project_store,
    person_there,
)
from loops_tui.commands.printed import to_draw_on
from loops_tui.lease_words import coarse

if TYPE_CHECKING:
    from collections.abc import Callable

    from engine.hosting.checkpoints import DeployChoice, DownloadProgress, Part, PlannedDeployment
    from engine.store.rows import CheckpointRow

SAVE_SECONDS = 900.0
"""How long a save is waited for: it comes when the step in hand has ended."""
_SAY_SECONDS = 5.0
_HEADINGS = ("NAME", "STEP", "STATE", "HOLDS", "SIZE", "SAVED", "AGE")


@dataclass(frozen=True, slots=True)
class DeployOptions:
    """What was given on the command line for a deployment; None: not given."""

    model_name: str | None = None
    instance_type: str | None = None
    secret: str | None = None
    dry_run: bool = False
    assume_yes: bool = False


@dataclass(frozen=True, slots=True)
class Asked:
    """The command's arguments."""

    run: str
    action: str | None
    name: str | None
    directory: Path | None
    part: str
    refresh: bool
    deploy: DeployOptions


def checkpoints(asked: Asked, out: Output) -> int:
    """Carry out one of the actions; without one, list."""
    match asked.action:
        case None:
            return _list(asked, out)
        case "save":
            _may_change("checkpoints save")
            if asked.name is not None:
                raise UsageError("save takes no name: a checkpoint is named after its step")
            return _save(asked.run, out)
        case "download":
            if asked.name is None or asked.directory is None:
                raise UsageError("say which and where: loops-tui checkpoints RUN download NAME DIR")
            return _download(asked.run, asked.name, asked.directory, asked.part, out)
        case "deploy":
            if asked.name is None:
                raise UsageError("say which: loops-tui checkpoints RUN deploy NAME")
            if not asked.deploy.dry_run:
                _may_change("checkpoints deploy")
            return _deploy(asked.run, asked.name, asked.deploy, out)
        case other:
            raise UsageError(f"{other!r} is no action of checkpoints; there are save, download and deploy")


def _may_change(command: str) -> None:
    refusal = refused_to_look_on(command, os.environ)
    if refusal is not None:
        raise UsageError(refusal)


# -- listing -------------------------------------------------------------------------------------------------------


def _list(asked: Asked, out: Output) -> int:
    with open_project_store() as store:
        store.reconcile()
        run = store.reader().run(asked.run)
        rows = store.reader().checkpoints(run.run_id)
    if asked.refresh and rows:
        from engine.hosting.checkpoints import refresh_checkpoints

        rows = asyncio.run(refresh_checkpoints(Path.cwd(), run.run_id))
    out.value([_value(row, run.recipe) for row in rows])
    if out.as_json:
        return DONE
    if not rows:
        out.line(f"run {run.run_id} has no checkpoints")
        return DONE
    now = time.time()
    score = "LOSS" if run.recipe == "sft" else "REWARD"
    for line in columns(
        [(*_HEADINGS[:4], score, *_HEADINGS[4:]), *(_cells(row, run.recipe, now) for row in rows)]
    ):
        out.line(line)
    for row in rows:
        if row.error is not None:
            out.note(f"{row.name}: {row.error}")
    newest = next((row for row in rows if row.sampler_path is not None), None)
    if newest is not None:
        out.note(f"Sampler weights of {newest.name}: {newest.sampler_path}")
    return DONE


def _cells(row: CheckpointRow, recipe: str, now: float) -> tuple[str, ...]:
    _, score = score_of(row, recipe)
    return (
        row.name,
        str(row.step),
        state_words(row),
        kind_words(row),
        "–" if score is None else f"{score:.3f}",
        size_words(row.size_bytes),
        why_words(row),
        coarse(now - (row.saved_at or row.created_at)),
    )


def _value(row: CheckpointRow, recipe: str) -> dict[str, Any]:
    return {
        "run": row.run_id,
        "name": row.name,
        "step": row.step,
        "state": str(row.state),
        "why": row.why,
        "created_at": row.created_at,
        "saved_at": row.saved_at,
        "policy_version": row.policy_version,
        **({"loss": score_of(row, recipe)[1]} if recipe == "sft" else {"reward": row.reward_mean}),
        "size_bytes": row.size_bytes,
        "loops_run_id": row.loops_run_id,
        "trainer_path": row.trainer_path,
        "sampler_path": row.sampler_path,
        "error": row.error,
    }


# -- saving --------------------------------------------------------------------------------------------------------


def _save(ref: str, out: Output) -> int:
    """Ask the live host, and wait for its answer."""
    from engine.hosting.requests import request
    from engine.store.rows import CommandState

    with open_project_store() as store:
        out.note("Asking for a checkpoint; it is saved when the step in hand has ended …")
        row = request(store, ref, "save", timeout=SAVE_SECONDS)
    out.value({"run": row.run_id, "command": row.kind, "state": str(row.state), "answer": row.answer})
    if row.state is CommandState.DONE:
        out.line(f"{row.run_id}: {row.answer}")
        return DONE
    if row.state in (CommandState.QUEUED, CommandState.ACCEPTED):
        out.error(f"the host of {row.run_id} has not saved yet; the command stands and will be carried out")
    else:
        out.error(f"{row.run_id}: save was {row.state}: {row.answer}")
    return FAILED


# -- downloading ---------------------------------------------------------------------------------------------------


def _download(ref: str, name: str, directory: Path, part: str, out: Output) -> int:
    from engine.hosting.checkpoints import download_checkpoint

    if part not in ("sampler", "trainer"):
        raise UsageError(f"--part is sampler or trainer, not {part!r}")
    wanted: Part = "sampler" if part == "sampler" else "trainer"
    target = Path.cwd() / os.path.expanduser(directory)
    with open_project_store():
        pass  # told of before anything else where there is none
    with _progress(out) as progress:
        done = asyncio.run(download_checkpoint(Path.cwd(), ref, name, target, part=wanted, progress=progress))
    out.value(
        {
            "directory": str(done.directory),
            "files": list(done.files),
            "bytes": done.bytes,
            "fetched_bytes": done.fetched_bytes,
        }
    )
    out.line(str(done.directory))
    fetched = (
        "all of it was there already"
        if not done.fetched_bytes
        else f"{size_words(done.fetched_bytes)} fetched"
    )
    out.note(f"{len(done.files)} files, {size_words(done.bytes)}, {fetched}")
    return DONE


@contextmanager
def _progress(out: Output) -> Iterator[Callable[[DownloadProgress], None]]:
    """A bar on a terminal, a line every few seconds elsewhere."""
    if not sys.stderr.isatty():
        said = time.monotonic()

        def line(progress: DownloadProgress) -> None:
            nonlocal said
            if time.monotonic() - said >= _SAY_SECONDS:
                said = time.monotonic()
                out.note(
                    f"{progress.file}: {size_words(progress.bytes_done)} of {size_words(progress.bytes)}, "
                    f"{progress.files_done} of {progress.files} files"
                )

        yield line
        return
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TransferSpeedColumn

    from loops_tui.widgets.safe_text import safe

    columns_ = (
        TextColumn("{task.description}", markup=False),
        BarColumn(24),
        DownloadColumn(),
        TransferSpeedColumn(),
    )
    with Progress(*columns_, console=Console(file=to_draw_on(sys.stderr)), transient=True) as bar:
        task = bar.add_task("", total=None)

        def draw(progress: DownloadProgress) -> None:
            bar.update(
                task, completed=progress.bytes_done, total=progress.bytes, description=safe(progress.file, 40)
            )

        yield draw


# -- deploying -----------------------------------------------------------------------------------------------------


def _deploy(ref: str, name: str, options: DeployOptions, out: Output) -> int:
    from engine.hosting.checkpoints import deploy_checkpoint, plan_deployment, remembered_choice

    here = Path.cwd()
    with open_project_store() as store:
        run = store.reader().run(ref)
    choice = _given(remembered_choice(here, run), options)
    asking = person_there(out) and not options.assume_yes
    # A machine of last time is only offered where somebody is asked: it may be gone by now.
    given = replace(choice, instance_type=options.instance_type or "") if asking else choice
    plan = asyncio.run(plan_deployment(here, run.run_id, name, given))
    if asking:
        choice = _ask(choice, options, plan, out)
        plan = asyncio.run(plan_deployment(here, run.run_id, name, choice))
    if options.dry_run:
        out.value({"method": "POST", "url": plan.url, "body": plan.body})
        out.line(f"POST {plan.url}")
        for line in json.dumps(plan.body, indent=2).splitlines():
            out.line(line)
        out.note("Nothing was sent.")
        return DONE
    if not choice.instance_type:
        raise UsageError(f"say on which machine with --instance-type; {_kinds(plan)}")
    if asking and not confirmed(
        f"This makes a deployment of {plan.checkpoint} that bills until you deactivate it on Baseten. Go on?"
    ):
        out.note("nothing was deployed")
        return STOPPED
    made = asyncio.run(deploy_checkpoint(here, run.run_id, name, choice))
    out.value(
        {
            "run": made.run_id,
            "checkpoint": made.checkpoint,
            "model_id": made.deployment.model_id,
            "deployment_id": made.deployment.deployment_id,
        }
    )
    out.line(f"model {made.deployment.model_id}, deployment {made.deployment.deployment_id}")
    out.note(
        f"It comes up in some minutes, and bills. In requests to it the model is called {made.checkpoint!r}."
    )
    return DONE


def _given(remembered: DeployChoice, options: DeployOptions) -> DeployChoice:
    """The command line over what was chosen last time."""
    from engine.hosting.checkpoints import DeployChoice

    return DeployChoice(
        options.model_name or remembered.model_name,
        options.instance_type or remembered.instance_type,
        options.secret or remembered.secret,
    )


def _ask(choice: DeployChoice, options: DeployOptions, plan: PlannedDeployment, out: Output) -> DeployChoice:
    """Ask for what the command line does not say."""
    from engine.hosting.checkpoints import DeployChoice

    name, kind, secret = choice.model_name, choice.instance_type, choice.secret
    if options.model_name is None:
        name = asked_for("Name of the model on Baseten", name)
    if options.instance_type is None:
        out.note(_kinds(plan))
        kind = asked_for("Instance type", kind)
    if options.secret is None:
        secret = asked_for("Name of the workspace secret that holds the Hugging Face token", secret)
    return DeployChoice(name, kind, secret)


def _kinds(plan: PlannedDeployment) -> str:
    from engine.hosting.checkpoints import kinds_in_words

    if not plan.instance_types:
        return "Baseten lists no instance types"
    return f"there are {kinds_in_words(plan.instance_types)}"
