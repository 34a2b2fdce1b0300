"""A sheet of text over the screen, to read and close."""

from __future__ import annotations

from collections.abc import Sequence

from textual.app import ComposeResult
from textual.containers import Vertical
from textual.screen import ModalScreen

from loops_tui.widgets.left_once import LeftOnce
from loops_tui.widgets.spans import Line, SpanView


class Sheet(ModalScreen[None], LeftOnce[None]):
    """Lines under a title. A kind of sheet binds the keys of ``close``, and may have another width."""

    DEFAULT_CSS = """
    Sheet { align: center middle; }
    Sheet Vertical {
        width: 100; max-width: 96%; height: auto; max-height: 92%;
        background: $surface; border: round $border; padding: 0 1;
        border-title-style: bold; border-title-color: $primary; border-subtitle-color: $foreground-muted;
    }
    Sheet SpanView { background: $surface; height: auto; max-height: 100%; }
    """

    def __init__(self, title: str, lines: Sequence[Line]) -> None:
        super().__init__()
        self.title_shown = title
        self._lines = lines

    def compose(self) -> ComposeResult:
        with Vertical() as sheet:
            sheet.border_title = self.title_shown
            sheet.border_subtitle = "esc closes"
            yield SpanView(id="sheet")

    def on_mount(self) -> None:
        view = self.query_one(SpanView)
        view.show(self._lines)
        view.focus()

    def action_close(self) -> None:
        self.dismiss(None)
