"""What a person can ask of a run: which of it makes sense now, and the question before it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from engine.store.rows import RunRow, RunState
from loops_tui.widgets.confirm import confirm

if TYPE_CHECKING:  # the Runs screen imports this before the first paint
    from loops_tui.app import LoopsApp
    from loops_tui.screens.run_read import RunView

NOTES = {
    "pause": ("Pause", "Attempts in flight go on to their end; no new ones begin until it is told to go on."),
    "resume": ("Resume", "It goes on where it stands."),
    "stop": ("Stop", "The step in hand is finished and trained first."),
    "abort": ("Abort", "The step in hand is lost; what it holds is released."),
}


def makes_sense(action: str, view: RunView | None) -> bool:
    """Whether an action (the name after ``action_``) has a meaning for the run as it is."""
    if view is None:
        return False
    state = view.run.state
    if action == "resume_run":
        return state.final and bool(view.saved) and view.run.step < view.run.max_steps
    if state.final:
        return False
    if action == "pause":
        return state not in (RunState.PAUSED, RunState.STOPPING)
    if action == "resume":
        return state is RunState.PAUSED
    if action == "stop":
        return state is not RunState.STOPPING
    if action == "save_checkpoint":
        return view.run.step > 0
    return action == "abort"


def why_not(action: str, view: RunView) -> str | None:
    """Why an action makes no sense for the run as it is; None where it does."""
    run = view.run
    if makes_sense(action, view):
        return None
    if action == "resume_run":
        if not run.state.final:
            return "this run is live: R goes on with one that has ended"
        if not view.saved:
            return "it left no checkpoint to go on from: 1, then r trains it from the beginning"
        return "it has done all its steps: 1, then r asks for more of them"
    if run.state.final:
        return "this run has ended already"
    if action == "save_checkpoint":
        return "there is nothing to save before the first step is trained"
    if action == "resume":
        return None  # its key is the pause's as well, which says more
    return {
        RunState.PAUSED: "it is paused already",
        RunState.STOPPING: "it is ending already: after the step in hand",
    }.get(run.state)


def ask(app: LoopsApp, run: RunRow, kind: str) -> None:
    """Ask a person, then the run's host."""
    verb, note = NOTES[kind]

    def answered(answer: str | None) -> None:
        if answer == "yes":
            app.ask_of_run(run.run_id, kind)

    app.push_screen(confirm(verb, "runs", [f"{run.name}  {run.run_id}"], note), answered)
