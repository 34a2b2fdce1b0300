"""Every checkpoint of the project's runs, how it did on held-out tasks, and which runs still bill."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import ClassVar, cast

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical

from engine.store.history_queries import LastCheckpoint
from engine.store.rows import RunRow
from loops_tui.feed import ReadPlan
from loops_tui.screens.account import AccountScreen
from loops_tui.screens.base import Banner, TopLine
from loops_tui.screens.checkpoints_acts import (
    OF_A_CHECKPOINT,
    ask_to_deactivate,
    ask_to_deploy,
    ask_to_download,
    ask_to_evaluate,
    ask_to_start_from,
    ask_to_try,
    ask_which_are_left,
    can_do,
    why_not,
)
from loops_tui.screens.checkpoints_read import CheckpointEntry, CheckpointsView, CheckpointsWatch
from loops_tui.screens.checkpoints_text import (
    BILLING_COLUMNS,
    COLUMNS,
    EMPTY,
    billing_cells,
    checkpoint_cells,
    details,
)
from loops_tui.screens.filtered import FilteredScreen
from loops_tui.screens.resume_asks import ask_to_resume
from loops_tui.screens.runs_text import nothing_matches
from loops_tui.theme import Tone
from loops_tui.widgets.filter_line import FilterLine
from loops_tui.widgets.key_bar import KeyBar
from loops_tui.widgets.spans import Line, Span, SpanPane, entitle
from loops_tui.widgets.virtual_table import Cells, VirtualTable

CLOCK_SECONDS = 1.0
AGES_SECONDS = 60.0
TABLE_FRAME = 3  # lines of a table around its rows
MOST_BILLING = 6


class CheckpointDetails(SpanPane):
    """The checkpoint under the cursor."""

    def __init__(self) -> None:
        super().__init__(id="details", classes="pane")
        self.entry: CheckpointEntry | None = None

    def compose_lines(self, width: int, height: int) -> list[Line]:
        return details(self.entry, width, height)


class CheckpointsScreen(FilteredScreen):
    """What still bills on top, the checkpoints below it."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("enter", "open", "Open run", id="checkpoints.open", tooltip="Open the run of this row"),
        Binding("slash", "filter", "Filter", key_display="/", id="checkpoints.filter", tooltip="Only matching ones"),
        Binding("ctrl+s", "save_now", "Save", id="checkpoints.save",
                tooltip="Ask the live run to save a checkpoint after its step"),
        Binding("r", "resume_run", "Resume", id="checkpoints.resume",
                tooltip="Go on with its run from here; asks first"),
        Binding("N", "start", "New run", id="checkpoints.start",
                tooltip="Start a new run from these weights; asks first"),
        Binding("e", "evaluate", "Evaluate", id="checkpoints.evaluate",
                tooltip="Attempt the held-out tasks with these weights, or with the base model"),
        Binding("t", "try_it", "Try it", id="checkpoints.try",
                tooltip="Talk to these weights or to the base model, or let them attempt a task"),
        Binding("w", "download", "Download", id="checkpoints.download", tooltip="Bring its files into a directory"),
        Binding("P", "deploy", "Deploy", id="checkpoints.deploy",
                tooltip="Have it served by Baseten; shows the request first"),
        Binding("D", "deactivate", "Deactivate", id="checkpoints.deactivate",
                tooltip="End the run's trainer and sampler, and the billing with them; asks first"),
        Binding("A", "account", "Account", id="checkpoints.account",
                tooltip="What is up on the account and no run here tells of, since when it bills; its end"),
        Binding("R", "refresh_list", "Still there?", show=False, id="checkpoints.refresh",
                tooltip="Ask Loops which of the run's checkpoints there still are"),
        Binding("escape", "back", "Back", id="checkpoints.back", tooltip="Back to where you came from"),
    ]  # fmt: skip

    def __init__(self) -> None:
        super().__init__()
        self._watch = CheckpointsWatch()
        self._room = -1
        self.view: CheckpointsView | None = None

    def compose(self) -> ComposeResult:
        yield TopLine()
        yield Banner()
        with Vertical(id="body"):
            yield VirtualTable[RunRow](
                BILLING_COLUMNS, lambda run: run.run_id, self._billing_cells, id="billing", classes="pane"
            )
            yield VirtualTable[CheckpointEntry](
                COLUMNS, lambda entry: entry.key, checkpoint_cells, id="checkpoints", classes="pane"
            )
            yield CheckpointDetails()
        yield FilterLine("part of a run's name or id, a checkpoint's name or state")
        yield KeyBar()

    @property
    def billing(self) -> VirtualTable[RunRow]:
        return cast("VirtualTable[RunRow]", self.query_one("#billing", VirtualTable))

    @property
    def table(self) -> VirtualTable[CheckpointEntry]:
        return cast("VirtualTable[CheckpointEntry]", self.query_one("#checkpoints", VirtualTable))

    def on_mount(self) -> None:
        self.query_one(CheckpointDetails).border_title = "Details"
        self.table.border_title = "Checkpoints"
        self.table.focus()
        self.set_interval(CLOCK_SECONDS, self._tick)
        self._write_top()

    # -- rows --------------------------------------------------------------------------------------------------

    def read_plan(self) -> ReadPlan:
        return self._watch.read

    def take(self, data: object) -> None:
        self.view = cast("CheckpointsView", data)
        self._show()

    def _tick(self) -> None:
        """Clocks of what bills; ages, which are told in minutes and more, once a minute."""
        view, now = self.view, time.time()
        if self.in_view and view is not None and (view.billing or now - view.now >= AGES_SECONDS):
            self.view = replace(view, now=now, entries=[replace(entry, now=now) for entry in view.entries])
            self._show()

    def _show(self) -> None:
        view = self.view
        if view is None:
            return
        shown = [entry for entry in view.entries if entry.matches(self._needle)]
        self.table.set_empty(nothing_matches(self._needle) if self._needle and view.entries else EMPTY)
        self._make_room(len(view.billing))
        self.billing.show(view.billing)
        self.table.show(shown)
        entitle(self.billing, f"Still billing ({len(view.billing)})")
        entitle(
            self.table,
            f"Checkpoints ({len(shown)} of {len(view.entries)})" if self._needle else "Checkpoints",
        )
        if not view.billing and self.billing.has_focus:
            self.table.focus()
        self._show_details()
        self._write_top()
        self.refresh_bindings()

    def _billing_cells(self, run: RunRow) -> Cells:
        return billing_cells(run, time.time() if self.view is None else self.view.now)

    def _make_room(self, rows: int) -> None:
        """As many lines for what bills as it needs; none where nothing does."""
        if rows != self._room:
            self._room = rows
            self.billing.display = rows > 0
            self.billing.styles.height = min(rows, MOST_BILLING) + TABLE_FRAME

    def _show_details(self) -> None:
        pane = self.query_one(CheckpointDetails)
        pane.entry = self.table.cursor_item
        pane.recompose_lines()

    def _write_top(self) -> None:
        view = self.view
        right: list[Span] = []
        if view is not None:
            if view.billing:
                words = "still bills" if len(view.billing) == 1 else "still bill"
                right.extend(((f"! {len(view.billing)} {words}", Tone.WARN), (" · ", Tone.FAINT)))
            count = len(view.entries)
            right.append((f"{count} checkpoint{'' if count == 1 else 's'}", Tone.DIM))
        self.query_one(TopLine).write([self.app.project_dir.name or "/", "Checkpoints"], tuple(right))

    # -- what is chosen ----------------------------------------------------------------------------------------

    def _entry(self) -> CheckpointEntry | None:
        """The checkpoint that a key is about; none while the cursor is on what bills."""
        if not self.is_mounted or self.view is None or self.billing.has_focus:
            return None
        return self.table.cursor_item

    def _run(self) -> RunRow | None:
        """The run that a key is about."""
        if self.is_mounted and self.view is not None and self.billing.has_focus:
            return self.billing.cursor_item
        entry = self._entry()
        return None if entry is None else entry.run

    def _to_save(self) -> RunRow | None:
        """The live run to ask for a checkpoint: the one in hand, or the only one."""
        run = self._run()
        if run is not None and not run.state.final:
            return run
        live = [] if self.view is None else self.view.live
        return live[0] if len(live) == 1 else None

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        run = self._run()
        if action in OF_A_CHECKPOINT:
            return can_do(action, self._entry())
        if action == "save_now":
            return self._to_save() is not None
        if action == "deactivate":
            # The local server ends with the last program that uses it: nothing of an ended run is up there.
            return (
                run is not None
                and run.loops_run_id is not None
                and run.loops_state != "INACTIVE"
                and (run.scope != "local" or not run.state.final)
            )
        if action in ("open", "refresh_list"):
            return run is not None
        if action == "filter":
            return self.view is not None and bool(self.view.entries)
        return super().check_action(action, parameters)

    def why_not(self, action: str) -> str | None:
        return why_not(action, self._entry(), self._run())

    # -- keys --------------------------------------------------------------------------------------------------

    def on_virtual_table_moved(self, event: VirtualTable.Moved) -> None:
        self._show_details()
        self.refresh_bindings()

    def on_descendant_focus(self) -> None:
        if self.view is not None:
            self.refresh_bindings()

    def on_virtual_table_opened(self, event: VirtualTable.Opened) -> None:
        self.action_open()

    def action_open(self) -> None:
        run = self._run()
        if run is not None:
            self.app.open_run(run.run_id)

    def action_back(self) -> None:
        if self._needle:
            self.query_one(FilterLine).action_drop()
            return
        self.dismiss(None)

    def action_save_now(self) -> None:
        run = self._to_save()
        if run is not None:
            self.app.ask_of_run(run.run_id, "save")
            self.notify(f"{run.name} saves after its step in hand", title="Asked", markup=False)

    def action_resume_run(self) -> None:
        entry = self._entry()
        if entry is not None and entry.run is not None:
            ask_to_resume(self.app, entry.run, LastCheckpoint(entry.row.name, entry.row.step))

    def action_start(self) -> None:
        entry = self._entry()
        if entry is not None:
            ask_to_start_from(self.app, entry)

    def action_evaluate(self) -> None:
        entry = self._entry()
        if entry is not None:
            ask_to_evaluate(self.app, self.app.acts, entry)

    def action_try_it(self) -> None:
        entry = self._entry()
        if entry is not None:
            ask_to_try(self.app, entry)

    def action_download(self) -> None:
        entry = self._entry()
        if entry is not None:
            ask_to_download(self.app, self.app.acts, entry)

    def action_deploy(self) -> None:
        entry = self._entry()
        if entry is not None:
            ask_to_deploy(self.app, self.app.acts, entry)

    def action_account(self) -> None:
        self.app.push_screen(AccountScreen())

    def action_refresh_list(self) -> None:
        run = self._run()
        if run is not None:
            ask_which_are_left(self.app, self.app.acts, run)

    def action_deactivate(self) -> None:
        run, view = self._run(), self.view
        if run is not None and view is not None:
            kept = sum(entry.saved and entry.row.run_id == run.run_id for entry in view.entries)
            ask_to_deactivate(self.app, self.app.acts, run, kept)
