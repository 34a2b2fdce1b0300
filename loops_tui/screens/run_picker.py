"""Choosing one of a run's metrics by typing a few letters of its name."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.screen import ModalScreen
from textual.widgets import Input

from loops_tui.theme import Tone
from loops_tui.widgets.left_once import LeftOnce
from loops_tui.widgets.safe_text import safe
from loops_tui.widgets.spans import plain
from loops_tui.widgets.text_line import TextLine
from loops_tui.widgets.virtual_table import Cells, Column, VirtualTable
from loops_tui.wording import number

COLUMNS = (Column("name", "metric", 20, flex=1), Column("value", "last", 9, right=True))


def matching(names: Sequence[str], typed: str) -> list[str]:
    """The names that hold the letters of every typed word in their order, the closest first."""
    parts = typed.casefold().split()
    ranked: list[tuple[int, str]] = []
    for name in names:
        spreads = [_spread(name.casefold(), part) for part in parts]
        if all(spread is not None for spread in spreads):
            ranked.append((sum(spread or 0 for spread in spreads), name))
    return [name for _, name in sorted(ranked)]


def _spread(name: str, letters: str) -> int | None:
    """How far apart the letters lie in the name, 0 where they stand together; None where they are not all there."""
    if letters in name:
        return 0
    gaps, place = 0, -1
    for letter in letters:
        found = name.find(letter, place + 1)
        if found < 0:
            return None
        gaps += found - place - 1 if place >= 0 else 0
        place = found
    return gaps + 1


class MetricPicker(ModalScreen[str | None], LeftOnce[str | None]):
    """A line to type into above the metrics that match. The result is a metric's name."""

    DEFAULT_CSS = """
    MetricPicker { align: center middle; }
    MetricPicker > Vertical { width: 70; max-width: 94%; height: 80%; max-height: 30; background: $surface;
                              border: round $border; padding: 0 1; }
    MetricPicker Input, MetricPicker Input:focus { height: 1; border: none; padding: 0; background: $panel; }
    MetricPicker #metrics { height: 1fr; background: $surface; }
    """

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "back", "Back", id="metrics.back", tooltip="Close, the plot stays as it is"),
        Binding(
            "up", "move(-1)", "Up", show=False, priority=True, id="metrics.up", tooltip="The metric above"
        ),
        Binding(
            "down", "move(1)", "Down", show=False, priority=True, id="metrics.down", tooltip="The metric below"
        ),
        Binding("enter", "take", "Plot it", priority=True, id="metrics.take", tooltip="Plot this metric"),
    ]  # fmt: skip

    def __init__(self, last: Mapping[str, float]) -> None:
        super().__init__()
        self._last = last
        self._names = sorted(last)

    def compose(self) -> ComposeResult:
        with Vertical():
            yield TextLine(placeholder="letters of a metric's name", compact=True, id="letters")
            yield VirtualTable[str](
                COLUMNS, str, self._cells, empty=[plain("No metric matches", Tone.DIM)], id="metrics"
            )

    def on_mount(self) -> None:
        table = self.query_one(VirtualTable)
        table.can_focus = False
        table.show(self._names)
        self.query_one(Input).focus()

    def _cells(self, name: str) -> Cells:
        return (plain(safe(name, 120)), plain(number(self._last.get(name)), Tone.DIM))

    def on_input_changed(self, event: Input.Changed) -> None:
        table = self.query_one(VirtualTable)
        table.touched = False
        table.show(matching(self._names, event.value))

    def on_virtual_table_opened(self, event: VirtualTable.Opened) -> None:
        event.stop()
        self.dismiss(event.key)

    def action_move(self, by: int) -> None:
        self.query_one(VirtualTable).action_move(by)

    def action_take(self) -> None:
        key = self.query_one(VirtualTable).cursor_key
        if key is not None:
            self.dismiss(key)

    def action_back(self) -> None:
        self.dismiss(None)
