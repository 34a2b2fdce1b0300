"""Screens whose rows a line at the bottom narrows down."""

from __future__ import annotations

from textual.widget import Widget

from loops_tui.screens.base import FedScreen
from loops_tui.widgets.filter_line import FilterLine


class FilteredScreen(FedScreen):
    """Shows the rows that match ``_needle``, which is what is typed into its :class:`FilterLine`."""

    def __init__(self) -> None:
        super().__init__()
        self._needle = ""

    @property
    def table(self) -> Widget:
        """The rows; they have the focus again when the line is closed."""
        raise NotImplementedError

    def _show(self) -> None:
        """Show what matches."""
        raise NotImplementedError

    def action_filter(self) -> None:
        self.query_one(FilterLine).open()

    def on_filter_line_typed(self, event: FilterLine.Typed) -> None:
        self._needle = event.text.strip()
        self._show()

    def on_filter_line_left(self, event: FilterLine.Left) -> None:
        if not event.kept:
            self._needle = ""
            self._show()
        self.table.focus()
