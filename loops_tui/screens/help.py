"""Every key of the screen it was asked from, made from the bindings themselves."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar, cast

from rich.cells import cell_len
from textual.binding import Binding, BindingType
from textual.screen import Screen

from loops_tui.theme import Tone
from loops_tui.widgets.key_bar import in_ascii, key_name
from loops_tui.widgets.safe_text import safe
from loops_tui.widgets.sheet import Sheet
from loops_tui.widgets.spans import Line, plain
from loops_tui.widgets.wrapping import wrap

if TYPE_CHECKING:
    from loops_tui.app import LoopsApp

SECTIONS = {
    "table": "In a table",
    "list": "In a list",
    "view": "In a text",
    "pane": "Panes",
    "filter": "While typing a filter",
    "app": "Everywhere",
}
"""Parts that screens share; a screen's own come before them, under its own name."""

KEYS_WIDTH = 18
SHEET_WIDTH = 90
FRAME_WIDTH = 6  # border, padding, scroll bar


@dataclass(slots=True)
class ActionKeys:
    """What one action is told with; ``binding_id`` is its first binding's."""

    binding_id: str
    text: str
    enabled: bool
    keys: list[str] = field(default_factory=list)


def help_lines(
    screen: Screen[object],
    keymap: Mapping[str, Sequence[str]] | None = None,
    room: int = 200,
    *,
    ascii: bool = False,
) -> list[Line]:
    """The keys by section, the screen's own first; words wrapped to ``room`` cells. Keys that do nothing right now, and
    those that the user's keymap has moved, are marked so."""
    sections = _entries(screen, ascii=ascii)
    of_screen = {(binding.id or "").split(".")[0] for _, binding in screen._bindings}
    own = sorted((name for name in sections if name not in SECTIONS), key=lambda name: name not in of_screen)
    lines: list[Line] = []
    for section in [*own, *(name for name in SECTIONS if name in sections)]:
        if lines:
            lines.append(())
        lines.append(plain(SECTIONS.get(section, section.capitalize()), Tone.TITLE))
        for entry in sections[section]:
            lines += _lines_of(entry, room, moved=entry.binding_id in (keymap or {}))
    return lines


def _entries(screen: Screen[object], *, ascii: bool) -> dict[str, list[ActionKeys]]:
    """The screen's actions by section, in the order of their bindings."""
    sections: dict[str, dict[str, ActionKeys]] = {}
    for active in screen.active_bindings.values():
        binding = active.binding
        if not binding.id:
            continue
        section = sections.setdefault(binding.id.split(".")[0], {})
        text = binding.tooltip or binding.description
        entry = section.setdefault(binding.action, ActionKeys(binding.id, text, active.enabled))
        # Not key_display: the line of keys names a pair with it ("[ ]"), here each key stands for itself.
        name = in_ascii(key_name(binding.key)) if ascii else key_name(binding.key)
        if name not in entry.keys:
            entry.keys.append(name)
    return {name: list(section.values()) for name, section in sections.items()}


def _lines_of(entry: ActionKeys, room: int, *, moved: bool) -> list[Line]:
    shown = " ".join(entry.keys)
    gap = " " * max(1, KEYS_WIDTH - 2 - cell_len(shown))
    tone = Tone.PLAIN if entry.enabled else Tone.DIM
    note = ("" if entry.enabled else "  (not now)") + ("  (your keymap)" if moved else "")
    first, *rest = list(wrap(safe(entry.text, 200) + note, max(20, room))) or [""]
    return [
        ((f"  {shown}{gap}", Tone.ACCENT), (first, tone)),
        *(((" " * KEYS_WIDTH, Tone.PLAIN), (piece, tone)) for piece in rest),
    ]


class HelpScreen(Sheet):
    """A sheet of keys."""

    DEFAULT_CSS = f"HelpScreen Vertical {{ width: {SHEET_WIDTH}; }}"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,question_mark,q", "close", "Close", id="help.close", tooltip="Back to the screen"),
    ]

    def __init__(self, about: Screen[object], keymap: Mapping[str, Sequence[str]] | None = None) -> None:
        width = min(SHEET_WIDTH, about.size.width * 96 // 100)
        ascii = cast("LoopsApp", about.app).options.ascii
        super().__init__("Keys", help_lines(about, keymap, width - FRAME_WIDTH - KEYS_WIDTH, ascii=ascii))
