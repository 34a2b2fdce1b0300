"""A line to type into that shows whatever is pasted into it, and does nothing else with it."""

from __future__ import annotations

from rich.text import Text
from textual.events import Paste
from textual.reactive import var
from textual.widgets import Input

from loops_tui.widgets.safe_text import safe_cells

LONGEST = 8000
"""Characters of a line beyond which nothing more is pasted: each key draws it anew, all of it."""


class TextLine(Input):
    """Textual sends an input's characters to the terminal as they are; here those that could do harm are marks, one
    for one. The value stays what was typed."""

    cursor_blink = var(False, init=False)  # a blinking cursor costs 3 KiB/s over ssh

    def on_paste(self, event: Paste) -> None:
        room = max(0, LONGEST - len(self.value))
        if len(event.text) > room and len(event.text.splitlines()[0]) > room:
            self.app.notify(
                f"A line here takes {LONGEST:,} characters: not all of it was pasted", severity="warning"
            )
        event.text = event.text[:room]

    @property
    def _value(self) -> Text:
        shown = safe_cells(self.value).replace("\t", " ")
        return Text(shown, no_wrap=True, overflow="ignore", end="")
