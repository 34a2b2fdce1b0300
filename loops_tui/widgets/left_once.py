"""Screens that may be told more than once to go."""

from __future__ import annotations

from textual.await_complete import AwaitComplete
from textual.screen import Screen


class LeftOnce[ResultT](Screen[ResultT]):
    """A screen that goes only while it is the one in front.

    Two clicks, or a click and a key, come before the first of them has taken it away; and for the second one Textual
    takes away whichever screen is in front then, or ends the app where that is the last one.
    """

    def dismiss(self, result: ResultT | None = None) -> AwaitComplete:
        return super().dismiss(result) if self.app.screen is self else AwaitComplete.nothing()
