"""What dialogs have in common: a title, what is said below it, and a row of buttons."""

from __future__ import annotations

from collections.abc import Sequence

from textual.app import ComposeResult
from textual.screen import ModalScreen
from textual.widgets import Static

from loops_tui.widgets.left_once import LeftOnce
from loops_tui.widgets.safe_text import safe_rich


class Dialog[ResultT](ModalScreen[ResultT | None], LeftOnce[ResultT | None]):
    """The result is None where the person backed out."""

    DEFAULT_CSS = """
    Dialog { align: center middle; }
    Dialog > Vertical {
        max-width: 94%; height: auto; padding: 1 2; background: $surface; border: round $border;
    }
    Dialog Static { width: 100%; height: auto; }
    Dialog #title { text-style: bold; margin-bottom: 1; }
    Dialog Horizontal { width: 100%; height: auto; margin-top: 1; align-horizontal: right; }
    Dialog Button { min-width: 8; height: 1; border: none; margin-left: 2; padding: 0 1; background: $panel; }
    Dialog Button:focus { background: $primary; color: $background; text-style: bold underline; }
    """

    def __init__(self, title: str, lines: Sequence[str], classes: str | None = None) -> None:
        super().__init__(classes=classes)
        self.title_shown = title
        self._said = list(lines)

    def compose_said(self) -> ComposeResult:
        """The title and the lines, wrapped."""
        yield Static(safe_rich(self.title_shown, limit=200), id="title", markup=False)
        for line in self._said:
            text = safe_rich(line, limit=600)
            text.no_wrap = False
            yield Static(text, markup=False)

    def action_back(self) -> None:
        self.dismiss(None)
