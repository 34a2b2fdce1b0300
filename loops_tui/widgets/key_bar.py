"""The line of keys at the bottom: what can be pressed here, now. One line, whole entries only."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from textual import events
from textual.screen import Screen

from loops_tui.theme import Tone
from loops_tui.widgets.spans import Line, Span, SpanPane, width_of

if TYPE_CHECKING:
    from textual.binding import ActiveBinding

    from loops_tui.app import LoopsApp

_NAMES = {
    "space": "space",
    "enter": "↵",
    "escape": "esc",
    "question_mark": "?",
    "slash": "/",
    "left_square_bracket": "[",
    "right_square_bracket": "]",
    "left_curly_bracket": "{",
    "right_curly_bracket": "}",
    "full_stop": ".",
    "comma": ",",
}


def key_name(key: str) -> str:
    """A key as it is written on a keyboard."""
    first = key.split(",", maxsplit=1)[0]
    return _NAMES.get(first, first.replace("ctrl+", "^"))


def in_ascii(name: str) -> str:
    """A key's name where its sign cannot be shown; an arrow's stand-in tells as much as the arrow."""
    return name.replace("↵", "enter")


class KeyBar(SpanPane):
    """Follows the screen's active bindings."""

    DEFAULT_CSS = "KeyBar { dock: bottom; height: 1; background: $surface; }"

    def __init__(self) -> None:
        super().__init__(id="keys")
        self._spots: list[tuple[int, int, str]] = []

    def on_mount(self) -> None:
        self.screen.bindings_updated_signal.subscribe(self, self._changed)
        self.recompose_lines()

    def _changed(self, screen: Screen) -> None:
        if screen.is_attached:
            self.recompose_lines()

    def entries(self) -> list[ActiveBinding]:
        """The bindings to show: each once, the screen's own first."""
        seen: set[str] = set()
        shown: list[ActiveBinding] = []
        for active in self.screen.active_bindings.values():
            binding = active.binding
            if binding.show and active.enabled and binding.action not in seen:
                seen.add(binding.action)
                shown.append(active)
        return shown

    def compose_lines(self, width: int, height: int) -> list[Line]:
        spans: list[Span] = []
        self._spots = []
        used = 1
        active = self.entries()
        # Help is always there: it is how one finds the keys for which there was no room.
        last = [item for item in active if item.binding.action.endswith("help")]
        rest = [item for item in active if item not in last]
        tail_width = sum(width_of(self._entry(item)) + 2 for item in last)
        for item in [*rest, *last]:
            entry = self._entry(item)
            cells = width_of(entry)
            reserve = 0 if item in last else tail_width
            if used + cells + reserve > width:
                continue
            self._spots.append((used, used + cells, item.binding.key))
            spans.extend((("  " if spans else " ", Tone.PLAIN), *entry))
            used += cells + 2
        return [tuple(spans)]

    def _entry(self, active: ActiveBinding) -> Line:
        name = active.binding.key_display or key_name(active.binding.key)
        if cast("LoopsApp", self.app).options.ascii:
            name = in_ascii(name)
        return ((name, Tone.ACCENT), (f" {active.binding.description}", Tone.DIM))

    def on_click(self, event: events.Click) -> None:
        for start, end, key in self._spots:
            if start <= event.x < end:
                self.app.simulate_key(key.split(",")[0])
                return
