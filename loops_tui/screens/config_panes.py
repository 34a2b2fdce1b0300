"""The panes of the Config screen that are no lists: a setting's meaning, and what stands where no config is open."""

from __future__ import annotations

from typing import TYPE_CHECKING

from loops_tui.readonly import may_act
from loops_tui.screens.config_text import hint_lines, setting_lines, welcome
from loops_tui.widgets.spans import Line, SpanPane

if TYPE_CHECKING:
    from engine.config.catalog import Setting, Table


class SettingPane(SpanPane):
    """The setting under the cursor."""

    def __init__(self, *, id: str, classes: str | None = None, brief: bool = False) -> None:
        """``brief``: in three lines, below the editor of a small window."""
        super().__init__(id=id, classes=classes)
        self._brief = brief
        self._found: Setting | Table | None = None
        self._here: str | None = None
        self.can_focus = False

    def write(self, found: Setting | Table | None, here: str | None) -> None:
        """``here`` is the value that the text gives it."""
        if found != self._found or here != self._here:
            self._found, self._here = found, here
            self.recompose_lines()

    def compose_lines(self, width: int, height: int) -> list[Line] | None:
        if width <= 0:
            return None
        return (
            hint_lines(self._found, width) if self._brief else setting_lines(self._found, self._here, width)
        )


class Welcome(SpanPane):
    """Nothing is open."""

    def __init__(self) -> None:
        super().__init__(id="welcome")
        self.can_focus = False

    def compose_lines(self, width: int, height: int) -> list[Line]:
        return welcome(width, acts=may_act(self))
