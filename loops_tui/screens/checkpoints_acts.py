"""What one does with checkpoints: each asks first, runs in a thread, is told in the banner, and ends in a toast."""

from __future__ import annotations

import asyncio
import json
import os
from pathlib import Path
from typing import TYPE_CHECKING

from engine.store.rows import CheckpointState, RunRow
from loops_tui.acts import Acts
from loops_tui.checkpoint_words import size_words
from loops_tui.lease_words import counted
from loops_tui.loops_ports import ActFailed, Told
from loops_tui.screens.checkpoints_read import CheckpointEntry
from loops_tui.widgets.confirm import Ask, Choice, Tell
from loops_tui.widgets.form import Field, Form, something
from loops_tui.wording import number

if TYPE_CHECKING:
    from engine.loops.deploying import DeployChoice
    from loops_tui.app import LoopsApp


OF_A_CHECKPOINT = ("resume_run", "start", "download", "evaluate", "try_it", "deploy")
"""The actions that take a checkpoint's weights."""


def can_do(action: str, entry: CheckpointEntry | None) -> bool:
    """Whether one of these actions makes sense for a checkpoint as it is; :func:`why_not` says why one does not."""
    if entry is None or not entry.saved:
        return False
    row, run = entry.row, entry.run
    match action:
        case "resume_run":
            return entry.last and run is not None and run.state.final
        case "evaluate":
            return entry.has_eval and row.sampler_path is not None
        case "try_it":
            return entry.can_be_tried
        case "deploy":
            return run is not None and run.scope != "local" and row.sampler_path is not None
        case _:
            return run is not None


def why_not(action: str, entry: CheckpointEntry | None, run: RunRow | None) -> str | None:
    """Why an action makes no sense for a checkpoint and its run; None where there is nothing to say."""
    if action == "save_now":
        return "no run is live: a checkpoint is saved by a run at work"
    if action == "deactivate":
        if run is None or run.loops_run_id is None:
            return "nothing of this run is up on Loops"
        return "nothing of this run is up any more: it bills nothing"
    if action not in OF_A_CHECKPOINT:
        return None
    if entry is None:
        return "there is no checkpoint to do this with"
    if not entry.saved:
        return f"{entry.row.name} is {entry.row.state}: there are no weights to use"
    if run is None:
        return f"the record of its run is gone: nothing here knows how {entry.row.name} was trained"
    if action == "resume_run":
        if not run.state.final:
            return "its run is live: r goes on with one that has ended"
        return "a resume goes on from the run's last checkpoint; N starts another run from here"
    if action == "deploy" and run.scope == "local":
        return "it is on this machine: Baseten deploys only what was trained there"
    if action == "evaluate" and not entry.has_eval:
        return "its config names no held-out tasks ([eval])"
    return f"{entry.row.name} holds no sampler weights"


def ask_to_deactivate(app: LoopsApp, acts: Acts, run: RunRow, checkpoints: int) -> None:
    """Ask, saying what stops billing and what stays, then watch until it is INACTIVE."""
    lines = [f"  {run.name}  {run.run_id}", ""]
    if not run.state.final:
        lines.append("Ends first: the run, with its last finished step saved and its sandboxes released.")
    bills = "" if run.scope == "local" else ", and with them the billing"
    lines.append(f"Stops: the trainer and the sampler of Loops run {run.loops_run_id or '–'}{bills}.")
    kept = counted(checkpoints, "checkpoint") if checkpoints else "no checkpoint: the weights are lost"
    lines.append(f"Stays: {kept}{', to resume from, download or deploy' if checkpoints else ''}.")

    def work(told: Told) -> str:
        ended = app.hosting.loops.deactivate(run.run_id, told)
        return (
            f"{', '.join(ended)} {'is' if len(ended) == 1 else 'are'} INACTIVE; nothing of it bills any more"
        )

    def answered(answer: str | None) -> None:
        if answer == "yes":
            acts.begin(f"deactivating {run.name}", work)

    choices = [Choice("cancel", "Cancel", "escape"), Choice("yes", "Deactivate", "y", grave=True)]
    app.push_screen(Ask("Deactivate this run?", lines, choices), answered)


def ask_which_are_left(app: LoopsApp, acts: Acts, run: RunRow) -> None:
    """Ask Loops which of a run's checkpoints there still are. Takes nothing away, so there is no question first."""

    def work(told: Told) -> str:
        del told
        rows = app.hosting.loops.refresh(run.run_id)
        left = sum(row.state is CheckpointState.SAVED for row in rows)
        gone = sum(row.state is CheckpointState.DELETED for row in rows)
        return f"Loops has {counted(left, 'checkpoint')} of {run.name}" + (f"; {gone} gone" if gone else "")

    acts.begin(f"asking Loops about {run.name}", work)


def ask_to_evaluate(app: LoopsApp, acts: Acts, entry: CheckpointEntry) -> None:
    """Ask which weights: these, or the base model that they began with."""
    row = entry.row
    bills = entry.run is not None and entry.run.scope != "local"
    lines = ["The held-out tasks of its config are attempted.", "Nothing of it trains."]
    if bills:
        lines.append("A sampler is started on Loops and released: this bills.")

    def answered(answer: str | None) -> None:
        if answer is None:
            return
        name = row.name if answer == "checkpoint" else None

        def work(told: Told) -> str:
            done = app.hosting.loops.evaluate(row.run_id, name, told)
            return f"mean {number(done.mean)} ({number(done.low)}–{number(done.high)}) on {done.tasks} tasks"

        acts.begin(f"evaluating {name or 'the base model'}", work)

    choices = [
        Choice("checkpoint", f"Evaluate {row.name}", "e"),
        Choice("base", "Evaluate the base model", "b"),
        Choice("cancel", "Cancel", "escape"),
    ]
    app.push_screen(Ask("Evaluate", lines, choices), answered)


def ask_to_download(app: LoopsApp, acts: Acts, entry: CheckpointEntry) -> None:
    """Ask for the directory and the part, then bring the files."""
    row = entry.row
    default = f"checkpoints/{row.run_id}/{row.name}"
    fields = [Field("directory", "Directory", default, check=something)]
    if row.trainer_path and row.sampler_path:
        fields.append(
            Field("part", "Part: sampler (to use) or trainer (to resume from)", "sampler", check=_part)
        )

    def answered(values: dict[str, str] | None) -> None:
        if values is None:
            return
        directory = app.project_dir / os.path.expanduser(values["directory"])
        only = "sampler" if row.sampler_path else "trainer"
        part = "trainer" if values.get("part", only) == "trainer" else "sampler"

        def work(told: Told) -> str:
            done = app.hosting.loops.download(row.run_id, row.name, part, directory, told)
            return (
                f"{counted(len(done.files), 'file')}, {size_words(done.bytes)}, verified, in {done.directory}"
            )

        acts.begin(f"downloading {row.name}", work)

    lines = [f"{row.name}, {size_words(row.size_bytes)}; what lies there already is not fetched again."]
    app.push_screen(Form("Download this checkpoint", lines, fields, "Download"), answered)


def _part(text: str) -> str | None:
    return None if text.strip() in ("sampler", "trainer") else "must be sampler or trainer"


def ask_to_deploy(app: LoopsApp, acts: Acts, entry: CheckpointEntry) -> None:
    """Ask for a name, a machine and a secret's name, show the request, and send it once."""
    from engine.loops.deploying import DeployChoice

    row, run = entry.row, entry.run
    if run is None:
        return
    known = app.hosting.loops.remembered_choice(run)
    fields = [
        Field("model", "Name of the model", known.model_name, check=something),
        Field(
            "machine", "Instance type", known.instance_type, "its id, as Baseten lists it", check=something
        ),
        Field(
            "secret",
            "Name (not value) of the secret with the Hugging Face token",
            known.secret,
            check=something,
        ),
    ]

    def answered(values: dict[str, str] | None) -> None:
        if values is not None:
            choice = DeployChoice(values["model"], values["machine"], values["secret"])
            app.spawn(_show_request(app, acts, entry, choice))

    app.push_screen(
        Form(f"Deploy {row.name}", ["The request is shown before it is sent."], fields, "Show"), answered
    )


async def _show_request(app: LoopsApp, acts: Acts, entry: CheckpointEntry, choice: DeployChoice) -> None:
    row = entry.row
    try:
        plan = await asyncio.to_thread(app.hosting.loops.plan_deployment, row.run_id, row.name, choice)
    except ActFailed as error:
        app.push_screen(Tell("Nothing was deployed", str(error).splitlines()))
        return
    kinds = [kind.id for kind in plan.instance_types]
    lines = [f"POST {plan.url}", *json.dumps(plan.body, indent=1).splitlines()]
    if kinds and choice.instance_type not in kinds:
        lines += ["", f"Baseten does not list {choice.instance_type!r}; it has {', '.join(kinds[:6])}"]
    lines += ["", "It bills from when it is up. Sent once, never repeated by itself."]

    def work(told: Told) -> str:
        del told
        made = app.hosting.loops.deploy(row.run_id, row.name, choice)
        return f"Baseten makes deployment {made.deployment.deployment_id} of model {made.deployment.model_id}"

    def answered(answer: str | None) -> None:
        if answer == "yes":
            acts.begin(f"deploying {row.name}", work)

    choices = [Choice("cancel", "Cancel", "escape"), Choice("yes", "Send it", "y", grave=True)]
    app.push_screen(Ask(f"Deploy {row.name}?", lines, choices), answered)


def ask_to_start_from(app: LoopsApp, entry: CheckpointEntry) -> None:
    """Ask, then start a new run of the same config with these weights."""
    row, run = entry.row, entry.run
    if run is None:
        return

    def answered(answer: str | None) -> None:
        if answer == "yes":
            app.start_run(Path(run.config_path), (f'model.from_checkpoint="{row.run_id}@{row.name}"',))

    config = Path(run.config_path)
    shown = config.relative_to(app.project_dir) if config.is_relative_to(app.project_dir) else config
    lines = [
        f"  {shown}",
        "",
        f"Its first weights are those of {row.name}.",
        "Its optimizer starts anew.",
    ]
    if run.scope != "local":
        lines.append(f"Its Loops is {run.scope}: this bills.")
    choices = [Choice("cancel", "Cancel", "escape"), Choice("yes", "Start", "y")]
    app.push_screen(Ask("Start a new run from this checkpoint?", lines, choices), answered)


def ask_to_try(app: LoopsApp, entry: CheckpointEntry) -> None:
    """Ask which weights and how, then open the dialog in which they are tried."""
    from engine.hosting.trying import WeightsAsked
    from loops_tui.screens.trial import TrialScreen, opener_of

    row, run = entry.row, entry.run
    bills = run is not None and run.scope != "local"
    fields = [
        Field("weights", "Weights: this checkpoint, or base", row.name, check=something),
        Field("task", "Number of a task to attempt: empty to talk", "", check=_task_number),
        Field("system", "System message", "", "none"),
    ]

    def answered(values: dict[str, str] | None) -> None:
        if values is None:
            return
        base = values["weights"] == "base"
        asked = WeightsAsked(run=row.run_id, checkpoint=None if base else values["weights"])
        tasks = bool(values["task"])
        app.push_screen(
            TrialScreen(
                "the base model" if base else values["weights"],
                opener_of(app, asked, values["system"], tasks),
                tasks=tasks,
                first=values["task"],
            )
        )

    lines = [
        "A sampler is started for it and released when you close it" + (": this bills." if bills else ".")
    ]
    app.push_screen(Form(f"Try {row.name}", lines, fields, "Try it"), answered)


def _task_number(text: str) -> str | None:
    return None if not text.strip() or text.strip().isdecimal() else "must be a whole number, from 0 on"
