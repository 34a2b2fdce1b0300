"""Questions are asked once at a time."""

from __future__ import annotations

from typing import Any

from textual.await_complete import AwaitComplete

from loops_tui.why_not import TellingApp
from loops_tui.widgets.confirm import Tell
from loops_tui.widgets.dialog import Dialog
from loops_tui.widgets.sheet import Sheet


class AskingApp[ResultT](TellingApp[ResultT]):
    """An app in which no question stands over itself.

    Many a question needs a look at a file or at the store first; the key that asks it may be pressed again meanwhile.
    """

    def push_screen(self, screen: Any, *args: Any, **settings: Any) -> Any:
        """As Textual's; a dialog or a sheet that is open already is not opened again, nor is its callback called.

        What tells of a failure asks nothing: a second one under the same title has words of its own.
        """
        if (
            isinstance(screen, Dialog | Sheet)
            and not isinstance(screen, Tell)
            and any(
                type(other) is type(screen) and other.title_shown == screen.title_shown
                for other in self.screen_stack
                if isinstance(other, Dialog | Sheet)
            )
        ):
            return AwaitComplete.nothing()
        return super().push_screen(screen, *args, **settings)
