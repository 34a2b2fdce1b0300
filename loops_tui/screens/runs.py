"""Every run of the project, live ones first."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, ClassVar, cast

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical

from loops_tui.feed import ReadPlan
from loops_tui.lease_words import counted
from loops_tui.screens.base import Banner, FedScreen, TopLine
from loops_tui.screens.runs_text import (
    COLUMNS,
    EMPTY,
    RunEntry,
    details,
    nothing_matches,
    run_cells,
)
from loops_tui.theme import Tone
from loops_tui.widgets.confirm import confirm
from loops_tui.widgets.filter_line import FilterLine
from loops_tui.widgets.key_bar import KeyBar
from loops_tui.widgets.spans import Line, Span, SpanPane, entitle
from loops_tui.widgets.virtual_table import Cells, VirtualTable

if TYPE_CHECKING:
    from engine.store.queries import StoreReader

SPARKS = 300  # runs whose course is read: more than fit any terminal
CLOCK_SECONDS = 1.0


class RunDetails(SpanPane):
    """The run under the cursor."""

    def __init__(self) -> None:
        super().__init__(id="details", classes="pane")
        self.entry: RunEntry | None = None
        self.can_focus = False

    def compose_lines(self, width: int, height: int) -> list[Line]:
        return details(self.entry, os.getpid(), width)


class RunsScreen(FedScreen):
    """The first screen."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("enter", "open", "Open", id="runs.open", tooltip="Watch this run, or look back at it"),
        Binding(
            "slash", "filter", "Filter", key_display="/", id="runs.filter", tooltip="Show only matching runs"
        ),
        Binding(
            "s", "stop", "Stop", id="runs.stop", tooltip="End this run after the step in hand; asks first"
        ),
        Binding("A", "abort", "Abort", id="runs.abort", tooltip="End this run now; asks first"),
        Binding("escape", "clear", "Clear filter", id="runs.clear", tooltip="Show every run again"),
    ]

    def __init__(self) -> None:
        super().__init__()
        self._entries: list[RunEntry] = []
        self._needle = ""
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
        def read(reader: StoreReader) -> list[RunEntry]:
            now = time.time()
            runs = reader.runs()
            hosts = reader.live_hosts(now)
            held = reader.live_lease_counts()
            rewards = reader.rewards([run.run_id for run in runs[:SPARKS]])
            return [
                RunEntry(
                    run,
                    tuple(rewards.get(run.run_id, ())),
                    hosts.get(run.host_id or ""),
                    now,
                    held.get(run.run_id, 0),
                )
                for run in runs
            ]

        return read

    def take(self, data: object) -> None:
        self._entries = cast("list[RunEntry]", data)
        self._loaded = True
        self._show()

    def _tick(self) -> None:
        """Clocks of live runs. Nothing moves where nothing runs."""
        if self.in_view and any(entry.live for entry in self._entries):
            now = time.time()
            self._entries = [replace(entry, now=now) if entry.live else entry for entry in self._entries]
            self._show()

    def _show(self) -> None:
        shown = (
            [entry for entry in self._entries if entry.matches(self._needle)]
            if self._needle
            else self._entries
        )
        table = self.table
        if self._loaded:
            table.set_empty(self._empty_words())
        table.show(shown)
        entitle(table, f"Runs ({len(shown)} of {len(self._entries)})" if self._needle else "Runs")
        self._show_details()
        self._write_top()
        self.refresh_bindings()

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
        return run_cells(entry, self._pid)

    def _write_top(self) -> None:
        live = sum(entry.live for entry in self._entries)
        right: list[Span] = []
        if self._needle:
            right.extend(((f"filter “{self._needle}”", Tone.ACCENT), ("   ", Tone.PLAIN)))
        left = sum(entry.left_behind for entry in self._entries)
        if left:
            right.extend(((f"! {counted(left, 'sandbox')} left behind (4)", Tone.BAD), (" · ", Tone.FAINT)))
        if live:
            right.extend(((f"● {live} live", Tone.GOOD), (" · ", Tone.FAINT)))
        if self._loaded:
            right.append((f"{len(self._entries)} run{'' if len(self._entries) == 1 else 's'}", Tone.DIM))
        self.query_one(TopLine).write([self.app.project_dir.name or "/", "Runs"], tuple(right))

    # -- keys --------------------------------------------------------------------------------------------------

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        entry = self.table.cursor_item if self.is_mounted and self._loaded else None
        if action == "open":
            return entry is not None
        if action in ("stop", "abort"):
            return entry is not None and entry.live
        if action == "filter":
            return bool(self._entries)
        if action == "clear":
            return bool(self._needle)
        return super().check_action(action, parameters)

    def on_virtual_table_moved(self, event: VirtualTable.Moved) -> None:
        self._show_details()
        self.refresh_bindings()

    def on_virtual_table_opened(self, event: VirtualTable.Opened) -> None:
        self.app.open_run(event.key)

    def action_open(self) -> None:
        self.table.action_open()

    def action_filter(self) -> None:
        self.query_one(FilterLine).open()

    def action_clear(self) -> None:
        self.query_one(FilterLine).action_drop()

    def on_filter_line_typed(self, event: FilterLine.Typed) -> None:
        self._needle = event.text.strip()
        self._show()

    def on_filter_line_left(self, event: FilterLine.Left) -> None:
        if not event.kept:
            self._needle = ""
            self._show()
        self.table.focus()

    def action_stop(self) -> None:
        self._ask("Stop", "stop", "The step in hand is finished and trained first.")

    def action_abort(self) -> None:
        self._ask("Abort", "abort", "The step in hand is lost; what it holds is released.")

    def _ask(self, verb: str, kind: str, note: str) -> None:
        entry = self.table.cursor_item
        if entry is None:
            return
        run = entry.run

        def answered(answer: str | None) -> None:
            if answer == "yes":
                self.app.ask_of_run(run.run_id, kind)

        self.app.push_screen(confirm(verb, "runs", [f"{run.name}  {run.run_id}"], note), answered)
