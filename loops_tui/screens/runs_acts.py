"""What the Runs screen asks for of a run that has ended: deleting its record, releasing its sandboxes."""

from __future__ import annotations

import asyncio
import contextlib
import time
from pathlib import Path
from typing import TYPE_CHECKING

from engine.store.errors import StoreError
from engine.store.rows import RunState
from loops_tui.lease_words import counted
from loops_tui.screens.runs_read import RunEntry
from loops_tui.widgets.confirm import Ask, Choice, confirm

if TYPE_CHECKING:
    from engine.store.history_queries import RecordSize
    from engine.store.store import Store
    from loops_tui.app import LoopsApp


def why_not(action: str, entry: RunEntry | None, *, cleaning: bool) -> str | None:
    """Why an action makes no sense for a run as it is; None where it does, or where there is nothing to say."""
    if entry is None:
        return "there is no run to do this with" if action in _ABOUT_A_RUN else None
    if action in ("stop", "abort"):
        return "this run has ended already"
    if action == "resume_run":
        if entry.live:
            return "this run is live: r goes on with one that has ended"
        return "this run cannot go on: it is done and left no checkpoint"
    if action == "delete_record":
        if entry.live:
            return "this run is live: s or A ends it before its record can be deleted"
        if entry.sandboxes:
            return "this run may have left sandboxes: c releases them before its record can be deleted"
        return "this run's Loops run still bills: 5, then D ends that before its record can be deleted"
    if action == "clean_up":
        return "sandboxes are being released already" if cleaning else "this run left no sandboxes behind"
    return None


_ABOUT_A_RUN = ("open", "mark", "stop", "abort", "resume_run", "delete_record", "clean_up", "compare")


def can_resume(entry: RunEntry) -> bool:
    """Whether there is something to go on with: a checkpoint, or steps that were never finished."""
    return not entry.live and (entry.checkpoint is not None or entry.run.state is not RunState.DONE)


def can_delete(entry: RunEntry) -> bool:
    """Whether nothing of the run is alive; the store looks again when it comes to it."""
    return not entry.live and not entry.sandboxes and not entry.bills


def ask_to_delete(app: LoopsApp, entry: RunEntry) -> None:
    """Ask, naming what goes and what stays, then delete the record of a run."""
    run = entry.run

    async def work() -> None:
        try:
            size = await app.feed.call(lambda store: _size_of(store, run.run_id))
        except StoreError as error:
            app.notify(str(error), title="Not deleted", severity="error", markup=False)
            return
        lines = [f"  {run.name}  {run.run_id}", "", *_what_goes(app, entry, size)]
        choices = [Choice("cancel", "Cancel", "escape"), Choice("yes", "Delete", "y", grave=True)]
        app.push_screen(Ask("Delete the record of this run?", lines, choices), answered)

    def answered(answer: str | None) -> None:
        if answer == "yes":
            app.spawn(_delete(app, run.run_id))

    app.spawn(work())


def _size_of(store: Store, run_id: str) -> RecordSize:
    with contextlib.closing(store.reader()) as reader:
        return reader.record_size(run_id)


def _what_goes(app: LoopsApp, entry: RunEntry, size: RecordSize) -> list[str]:
    """What is deleted and what stays, a line each."""
    nouns = {
        "step": size.steps,
        "group": size.groups,
        "attempt": size.attempts,
        "transcript": size.transcripts,
    }
    parts = [counted(number, noun) for noun, number in nouns.items() if number]
    gone = f"{', '.join(parts)} and the log" if parts else "its row and its log"
    directory = Path(entry.run.run_dir)
    if directory.is_relative_to(app.project_dir):
        directory = directory.relative_to(app.project_dir)
    stays = [str(directory)]
    if size.checkpoints:
        stays.append(
            f"{counted(size.checkpoints, 'checkpoint')} on Loops, which this project no longer knows then"
        )
    lines = [f"Goes, from the store: {gone}.", f"Stays: {', and '.join(stays)}."]
    if entry.run.state is not RunState.DONE:
        lines.append("A run without its record cannot be resumed.")
    return lines


async def _delete(app: LoopsApp, run_id: str) -> None:
    try:
        store = await app.feed.call(lambda store: store)
        await asyncio.to_thread(store.delete_run, run_id)  # seconds for a long run: not in the reading thread
    except StoreError as error:
        app.notify(str(error), title="Not deleted", severity="error", markup=False)
        return
    if app.run_in_hand == run_id:
        app.run_in_hand = None
    app.notify(f"the record of {run_id} is deleted", markup=False)
    app.poke()


async def ask_to_clean_up(app: LoopsApp, entry: RunEntry) -> None:
    """Ask, then release the sandboxes of a run that has ended."""
    run = entry.run
    try:
        names = await app.feed.call(lambda store: _left_by(store, run.run_id))
    except StoreError as error:
        app.notify(str(error), title="Not cleaned up", severity="error", markup=False)
        return
    if not names:
        app.poke()
        return

    def answered(answer: str | None) -> None:
        if answer == "yes":
            app.clean_up(names)

    app.push_screen(confirm("Release", "sandbox" if len(names) == 1 else "sandboxes", names), answered)


def _left_by(store: Store, run_id: str) -> list[str]:
    """The sandboxes of a run that nobody alive holds."""
    from engine.store.leases import OPEN_STATES

    with contextlib.closing(store.reader()) as reader:
        rows = reader.leases(run_id, states=OPEN_STATES)
        return [view.lease.name for view in reader.lease_views(rows, time.time()) if view.left_behind]
