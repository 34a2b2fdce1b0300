"""A line to type into, shown at the bottom while it is used: filters and searches."""

from __future__ import annotations

from typing import ClassVar

from textual.binding import Binding, BindingType
from textual.message import Message
from textual.widgets import Input

from loops_tui.widgets.text_line import TextLine


class FilterLine(TextLine):
    """Typing changes what is shown at once; enter keeps it, escape drops it."""

    DEFAULT_CSS = """
    FilterLine { dock: bottom; height: 1; border: none; padding: 0 1; background: $panel; display: none;
                 margin-bottom: 1; }
    FilterLine.-on { display: block; }
    FilterLine:focus { border: none; background-tint: $foreground 0%; }
    """

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("enter", "keep", "Keep", id="filter.keep", tooltip="Keep this and go back to the rows"),
        Binding("escape", "drop", "Clear", id="filter.drop", tooltip="Clear this and go back to the rows"),
    ]

    class Typed(Message):
        """The text is now this."""

        def __init__(self, text: str) -> None:
            super().__init__()
            self.text = text

    class Left(Message):
        """The line is closed; ``kept`` says whether its text still counts."""

        def __init__(self, kept: bool) -> None:
            super().__init__()
            self.kept = kept

    def __init__(self, placeholder: str) -> None:
        super().__init__(placeholder=placeholder, id="filter", compact=True, select_on_focus=False)

    def open(self) -> None:
        self.add_class("-on")
        self.focus()

    def on_input_changed(self, event: Input.Changed) -> None:
        event.stop()
        self.post_message(self.Typed(event.value))

    def action_keep(self) -> None:
        self._close(kept=True)

    def action_drop(self) -> None:
        self.value = ""
        self._close(kept=False)

    def _close(self, kept: bool) -> None:
        if not self.value:
            kept = False
        self.remove_class("-on")
        self.post_message(self.Left(kept))
