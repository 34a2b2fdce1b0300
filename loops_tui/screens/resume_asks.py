"""The question before a run that has ended goes on in this app."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from engine.store.history_queries import LastCheckpoint
from engine.store.rows import RunRow
from loops_tui.widgets.confirm import Ask, Choice
from loops_tui.widgets.form import Field, Form, whole_number

if TYPE_CHECKING:
    from loops_tui.app import LoopsApp


def ask_to_resume(app: LoopsApp, run: RunRow, checkpoint: LastCheckpoint | None) -> None:
    """Ask, then go on with a run from its last checkpoint, or from its beginning where it has none."""
    lines = [f"  {run.name}  {run.run_id}", ""]
    done = 0 if checkpoint is None else checkpoint.step
    if checkpoint is None:
        lines.append("It has no checkpoint: it is trained from the beginning.")
    else:
        lines.append(f"It goes on from {checkpoint.name}.")
        if run.step > done:
            again = f"Step {run.step} is" if run.step == done + 1 else f"Steps {done + 1} to {run.step} are"
            lines.append(f"{again} trained again.")
    if run.scope != "local":
        lines.append(f"Its Loops is {run.scope}: this bills.")
    if done >= run.max_steps > 0:
        _ask_for_more_steps(app, run, lines)
        return

    def answered(answer: str | None) -> None:
        if answer == "yes":
            app.resume_run(run.run_id)

    choices = [Choice("cancel", "Cancel", "escape"), Choice("yes", "Resume", "y")]
    app.push_screen(Ask("Resume this run?", lines, choices), answered)


def _ask_for_more_steps(app: LoopsApp, run: RunRow, lines: Sequence[str]) -> None:
    """A run that has done all its steps goes on only with more of them."""
    steps = Field(
        "steps",
        "Train up to step",
        str(run.max_steps * 2),
        check=lambda text: whole_number(text, above=run.max_steps),
    )

    def answered(values: dict[str, str] | None) -> None:
        if values is not None:
            app.resume_run(run.run_id, [f"training.max_steps={int(values['steps'])}"])

    note = f"It has done all of its {run.max_steps} steps."
    app.push_screen(Form("Resume this run?", [*lines, note], [steps], "Resume"), answered)
