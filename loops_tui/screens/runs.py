"""Every run of the project, live ones first."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from dataclasses import replace
from typing import ClassVar, cast

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical

from loops_tui.feed import ReadPlan
from loops_tui.lease_words import counted
from loops_tui.readonly import may_act
from loops_tui.screens.base import Banner, TopLine
from loops_tui.screens.filtered import FilteredScreen
from loops_tui.screens.resume_asks import ask_to_resume
from loops_tui.screens.run_asks import ask
from loops_tui.screens.runs_acts import (
    ask_to_clean_up,
    ask_to_delete,
    can_delete,
    can_resume,
    why_not,
)
from loops_tui.screens.runs_order import ORDERS, arranged, matches
from loops_tui.screens.runs_read import RunEntry, RunsView, RunsWatch
from loops_tui.screens.runs_text import COLUMNS, EMPTY, columns_for, details, nothing_matches, run_cells
from loops_tui.theme import Tone
from loops_tui.widgets.filter_line import FilterLine
from loops_tui.widgets.key_bar import KeyBar
from loops_tui.widgets.spans import Line, Span, SpanPane, entitle
from loops_tui.widgets.virtual_table import Cells, VirtualTable

CLOCK_SECONDS = 1.0
AGES_SECONDS = 60.0
TO_COMPARE = 2


class RunDetails(SpanPane):
    """The run under the cursor."""

    def __init__(self) -> None:
        super().__init__(id="details", classes="pane")
        self.entry: RunEntry | None = None
        self.can_focus = False

    def compose_lines(self, width: int, height: int) -> list[Line]:
        return details(self.entry, os.getpid(), width, height, acts=may_act(self))


class RunsScreen(FilteredScreen):
    """The first screen."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("enter", "open", "Open", id="runs.open", tooltip="Watch this run, or look back at it"),
        Binding(
            "slash", "filter", "Filter", key_display="/", id="runs.filter", tooltip="Show only matching runs"
        ),
        Binding("o", "order(1)", "Sort", id="runs.order", tooltip="Sort by the next column"),
        Binding("O", "turn", "Turn", show=False, id="runs.turn", tooltip="Turn the order around"),
        Binding("space", "mark", "Mark", id="runs.mark", tooltip="Mark this run for comparing, or not"),
        Binding("v", "compare", "Compare", id="runs.compare",
                tooltip="Compare two runs: the two marked ones, or the marked one and this one"),
        Binding("r", "resume_run", "Resume", id="runs.resume", tooltip="Go on from its last checkpoint; asks first"),
        Binding("c", "clean_up", "Clean up", id="runs.clean_up",
                tooltip="Release the sandboxes that this run left behind; asks first"),
        Binding("s", "stop", "Stop", id="runs.stop", tooltip="End this run after the step in hand; asks first"),
        Binding("A", "abort", "Abort", id="runs.abort", tooltip="End this run now; asks first"),
        Binding("d", "delete_record", "Delete", id="runs.delete",
                tooltip="Delete what the store holds of this run; its directory stays; asks first"),
        Binding("escape", "clear", "Clear", id="runs.clear", tooltip="Show every run again; then drop the marks"),
    ]  # fmt: skip

    def __init__(self) -> None:
        super().__init__()
        self._entries: list[RunEntry] = []
        self._watch = RunsWatch()
        self._order = 0
        self._turned = False
        self._columns = COLUMNS
        self._marked: list[str] = []
        self._loaded = False
        self._pid = os.getpid()

    def compose(self) -> ComposeResult:
        yield TopLine()
        yield Banner()
        with Vertical(id="body"):
            yield VirtualTable[RunEntry](
                COLUMNS, lambda entry: entry.run.run_id, self._cells, id="runs", classes="pane"
            )
            yield RunDetails()
        yield FilterLine("part of a name, id, state, recipe or model")
        yield KeyBar()

    @property
    def table(self) -> VirtualTable[RunEntry]:
        return cast("VirtualTable[RunEntry]", self.query_one("#runs", VirtualTable))

    def on_mount(self) -> None:
        self.table.border_title = "Runs"
        self.query_one(RunDetails).border_title = "Details"
        self.table.focus()
        self.set_interval(CLOCK_SECONDS, self._tick)
        self._write_top()

    # -- rows --------------------------------------------------------------------------------------------------

    def read_plan(self) -> ReadPlan:
        return self._watch.read

    def take(self, data: object) -> None:
        view = cast("RunsView", data)
        self._entries = view.entries
        self._loaded = True
        self.app.newest_run = view.entries[0].run.run_id if view.entries else None
        self._show()
        if not view.whole:
            self.app.poke()  # the newest are painted; now the others

    def _tick(self) -> None:
        """Clocks of live runs; how long ago others began, which is told in minutes and more, once a minute."""
        if not self.in_view or not self._entries:
            return
        now = time.time()
        aged = now - min(entry.now for entry in self._entries) >= AGES_SECONDS
        if aged or any(entry.live for entry in self._entries):
            self._entries = [
                replace(entry, now=now) if aged or entry.live else entry for entry in self._entries
            ]
            self._show()

    def _show(self) -> None:
        order = ORDERS[self._order]
        shown = [entry for entry in self._entries if matches(entry, self._needle)]
        if order is not None or self._turned:
            shown = arranged(shown, order, self._turned)
        self._columns = columns_for(self._entries, order, self._turned)
        table = self.table
        if self._loaded:
            table.set_empty(self._empty_words())
        table.set_columns(self._columns)
        table.show(shown)
        entitle(table, self._title(len(shown)))
        self._show_details()
        self._write_top()
        self.refresh_bindings()

    def _title(self, shown: int) -> str:
        order = ORDERS[self._order]
        title = f"Runs ({shown} of {len(self._entries)})" if self._needle else "Runs"
        if order is None:
            return f"{title}, oldest first" if self._turned else title
        end = "largest" if order.falling != self._turned else "smallest"
        if order.column == "name":
            end = "z to a" if self._turned else "a to z"
        return f"{title} by {order.word}, {end}{'' if order.column == 'name' else ' first'}"

    def _empty_words(self) -> Sequence[Line]:
        if self._needle and self._entries:
            return nothing_matches(self._needle)
        # While the first run is being started, how to start one is the wrong thing to say.
        return EMPTY if self.app.notice is None else ()

    def update_banner(self) -> None:
        super().update_banner()
        if self._loaded:
            self.table.set_empty(self._empty_words())

    def _show_details(self) -> None:
        pane = self.query_one(RunDetails)
        pane.entry = self.table.cursor_item
        pane.recompose_lines()

    def _cells(self, entry: RunEntry) -> Cells:
        return run_cells(entry, self._pid, self._columns, marked=entry.run.run_id in self._marked)

    def _write_top(self) -> None:
        live = sum(entry.live for entry in self._entries)
        right: list[Span] = []
        if self._needle:
            right.extend(((f"filter “{self._needle}”", Tone.ACCENT), ("   ", Tone.PLAIN)))
        if self._marked:
            right.extend(((f"{len(self._marked)} marked", Tone.ACCENT), (" · ", Tone.FAINT)))
        narrow = self.has_class("-narrow")
        billing = sum(entry.bills and not entry.live for entry in self._entries)
        if billing:
            ended = "" if narrow else "ended run " if billing == 1 else "ended runs "
            words = f"{ended}still {'bills' if billing == 1 else 'bill'}"
            right.extend(((f"! {billing} {words} (5)", Tone.WARN), (" · ", Tone.FAINT)))
        left = sum(entry.left_behind for entry in self._entries)
        if left:
            words = f"{left} left" if narrow else f"{counted(left, 'sandbox')} left behind"
            right.extend(((f"! {words} (4)", Tone.BAD), (" · ", Tone.FAINT)))
        if live:
            right.extend(((f"● {live} live", Tone.GOOD), (" · ", Tone.FAINT)))
        if self._loaded:
            right.append((f"{len(self._entries)} run{'' if len(self._entries) == 1 else 's'}", Tone.DIM))
        self.query_one(TopLine).write([self.app.project_dir.name or "/", "Runs"], tuple(right))

    # -- keys --------------------------------------------------------------------------------------------------

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        entry = self.table.cursor_item if self.is_mounted and self._loaded else None
        if action in ("stop", "abort"):
            return entry is not None and entry.live
        if action == "resume_run":
            return entry is not None and can_resume(entry)
        if action == "delete_record":
            return entry is not None and can_delete(entry)
        if action == "clean_up":
            return entry is not None and bool(entry.left_behind) and not self.app.cleaning
        if action == "compare":
            return self._pair() is not None
        if action in ("filter", "order", "turn"):
            return bool(self._entries)
        if action == "clear":
            return bool(self._needle or self._marked)
        return entry is not None if action in ("open", "mark") else super().check_action(action, parameters)

    def why_not(self, action: str) -> str | None:
        entry = self.table.cursor_item if self._loaded else None
        if action == "compare" and entry is not None:
            return "space marks a run; v compares two marked ones, or the marked one and the one under the cursor"
        return why_not(action, entry, cleaning=self.app.cleaning)

    def on_virtual_table_moved(self, event: VirtualTable.Moved) -> None:
        self._show_details()
        self.refresh_bindings()

    def on_virtual_table_opened(self, event: VirtualTable.Opened) -> None:
        self.app.open_run(event.key)

    def action_open(self) -> None:
        self.table.action_open()

    def action_clear(self) -> None:
        if self._needle:
            self.query_one(FilterLine).action_drop()
            return
        self._marked.clear()
        self._show()

    def action_order(self, by: int) -> None:
        self._order = (self._order + by) % len(ORDERS)
        self._turned = False
        self._show()

    def action_turn(self) -> None:
        self._turned = not self._turned
        self._show()

    def action_mark(self) -> None:
        entry = self.table.cursor_item
        if entry is None:
            return
        if entry.run.run_id in self._marked:
            self._marked.remove(entry.run.run_id)
        else:
            self._marked.append(entry.run.run_id)
        self.table.action_move(1)
        self._show()

    def _pair(self) -> tuple[str, str] | None:
        """The two runs to compare, the older one first: the marked ones, or the marked one and the one in hand."""
        known = [entry.run for entry in self._entries if entry.run.run_id in self._marked]
        entry = self.table.cursor_item if self.is_mounted else None
        if len(known) == 1 and entry is not None and entry.run is not known[0]:
            known.append(entry.run)
        if len(known) != TO_COMPARE:
            return None
        first, second = sorted(known, key=lambda run: run.created_at)
        return first.run_id, second.run_id

    def action_compare(self) -> None:
        from loops_tui.screens.compare import CompareScreen

        pair = self._pair()
        if pair is not None:
            self.app.push_screen(CompareScreen(*pair))

    def action_resume_run(self) -> None:
        entry = self.table.cursor_item
        if entry is not None and can_resume(entry):
            ask_to_resume(self.app, entry.run, entry.checkpoint)

    def action_delete_record(self) -> None:
        entry = self.table.cursor_item
        if entry is not None and can_delete(entry):
            ask_to_delete(self.app, entry)

    def action_clean_up(self) -> None:
        """Release what nobody alive holds of this run."""
        entry = self.table.cursor_item
        if entry is not None and entry.left_behind:
            self.app.spawn(ask_to_clean_up(self.app, entry))

    def action_stop(self) -> None:
        self._ask("stop")

    def action_abort(self) -> None:
        self._ask("abort")

    def _ask(self, kind: str) -> None:
        entry = self.table.cursor_item
        if entry is not None:
            ask(self.app, entry.run, kind)
