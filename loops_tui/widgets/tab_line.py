"""The line of tabs that a screen shows where its panes share the space."""

from __future__ import annotations

from textual import events
from textual.message import Message

from loops_tui.theme import Tone
from loops_tui.widgets.spans import Line, Span, SpanPane

SWITCH = "[ ] switch"


class TabLine(SpanPane):
    """Which panes are shown, where there is not room for all."""

    DEFAULT_CSS = "TabLine { height: 1; }"

    class Chosen(Message):
        """A tab was clicked on."""

        def __init__(self, tab: str) -> None:
            super().__init__()
            self.tab = tab

    def __init__(self, tabs: dict[str, str]) -> None:
        super().__init__(id="tabs")
        self._tabs = tabs
        self._current = next(iter(tabs))
        self._keys = SWITCH
        self._spots: list[tuple[int, int, str]] = []

    def offer(self, tabs: dict[str, str]) -> None:
        """Other tabs from now on."""
        self._tabs = tabs
        self.recompose_lines()

    def write(self, current: str, keys: str = SWITCH) -> None:
        """``keys`` is what leads to another tab from this one."""
        self._current, self._keys = current, keys
        self.recompose_lines()

    def compose_lines(self, width: int, height: int) -> list[Line]:
        spans: list[Span] = [(" ", Tone.PLAIN)]
        self._spots = []
        used = 1
        for name, title in self._tabs.items():
            here = name == self._current
            text = f"[{title}]" if here else f" {title} "
            self._spots.append((used, used + len(text), name))
            spans.append((text, Tone.TITLE if here else Tone.DIM))
            used += len(text)
        spans.append((f"   {self._keys}", Tone.FAINT))
        return [tuple(spans)]

    def on_click(self, event: events.Click) -> None:
        for start, end, name in self._spots:
            if start <= event.x < end:
                self.post_message(self.Chosen(name))
