"""What every screen that shows rows has: a place in the feed, a top line, a banner, the line of keys."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Any, ClassVar

from textual.binding import Binding, BindingType
from textual.events import Idle, ScreenResume
from textual.geometry import Size

from loops_tui.feed import Fresh, ReadPlan, Unreadable
from loops_tui.theme import Tone
from loops_tui.widgets.left_once import LeftOnce
from loops_tui.widgets.safe_text import safe
from loops_tui.widgets.spans import Line, Span, SpanPane, spread
from loops_tui.widgets.wrapping import wrap

if TYPE_CHECKING:
    from textual.message_pump import Callback

    from loops_tui.app import LoopsApp


class TopLine(SpanPane):
    """Where one is, and the figures that matter most."""

    DEFAULT_CSS = "TopLine { height: 1; background: $surface; }"

    def __init__(self) -> None:
        super().__init__(id="top")
        self._left: Line = ()
        self._right: Line = ()

    def write(self, path: list[str], right: Line = ()) -> None:
        """``path`` is the way to this screen, its last part the screen itself."""
        spans: list[Span] = [(" loops-tui ", Tone.TITLE)]
        for place, part in enumerate(path):
            last = place == len(path) - 1
            spans.append(("› " if place else "", Tone.FAINT))
            spans.append((safe(part, 60) + " ", Tone.STRONG if last else Tone.DIM))
        self._left, self._right = tuple(spans), (*right, (" ", Tone.PLAIN))
        self.recompose_lines()

    def compose_lines(self, width: int, height: int) -> list[Line]:
        return [spread(self._left, self._right, width)]


class Banner(SpanPane):
    """What a person must know now, in a line or a few; gone when there is nothing."""

    DEFAULT_CSS = "Banner { height: auto; max-height: 4; display: none; background: $panel; } Banner.-on { display: block; }"

    def __init__(self) -> None:
        super().__init__(id="banner")
        self._said: tuple[str, Tone] | None = None

    def say(self, text: str | None, tone: Tone = Tone.WARN) -> None:
        said = None if text is None else (safe(text, 600), tone)
        if said == self._said:
            return
        self._said = said
        self.set_class(said is not None, "-on")
        self.recompose_lines()
        self.refresh(layout=True)

    def get_content_height(self, container: Size, viewport: Size, width: int) -> int:
        return max(1, len(self.compose_lines(width, 0)))

    def compose_lines(self, width: int, height: int) -> list[Line]:
        if self._said is None:
            return []
        text, tone = self._said
        pieces = list(wrap(text, max(10, width - 4)))
        glyph = " › " if tone is Tone.INFO else " ! "
        return [((glyph if place == 0 else "   ", tone), (piece, tone)) for place, piece in enumerate(pieces)]


WIDTHS = [(0, "-narrow"), (110, "-wide"), (170, "-huge")]
HEIGHTS = [(0, "-short"), (34, "-tall")]

ANSWER_SECONDS = 0.1
"""For how long after a key changes are taken for what it did, and painted at once. Textual paints 60 times a second, and
what a key does often takes two pictures: the cursor moves, then what is said of its row changes."""
TURNS = 10
"""How many turns of the loop a change takes at most, as messages, from the widget of the key to the one that shows it."""


class FedScreen(LeftOnce[None]):
    """A screen whose rows come from the feed."""

    app: LoopsApp  # the only app these screens live in

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding(
            "tab", "app.focus_next", "Next pane", show=False, id="pane.next", tooltip="Focus the next pane"
        ),
        Binding(
            "shift+tab",
            "app.focus_previous",
            "Previous pane",
            show=False,
            id="pane.previous",
            tooltip="… previous",
        ),
    ]

    def __init__(self) -> None:
        super().__init__()
        self.HORIZONTAL_BREAKPOINTS = WIDTHS
        self.VERTICAL_BREAKPOINTS = HEIGHTS
        self._unreadable: str | None = None
        self._paints_soon = False

    def on_idle(self, event: Idle) -> None:
        """Paint what a key has changed as soon as all of it is there, not with Textual's next frame."""
        if time.monotonic() - self.app.pressed_at < ANSWER_SECONDS:
            event.prevent_default()
            if not self._paints_soon:
                self._paints_soon = True
                self.app.spawn(self._paint_soon())

    async def _paint_soon(self) -> None:
        for _ in range(TURNS):
            await asyncio.sleep(0)
        self._paints_soon = False
        self._on_timer_update()

    def read_plan(self) -> ReadPlan | None:
        """What to read for this screen, as a function for the reading thread."""
        raise NotImplementedError

    def take(self, data: object) -> None:
        """Show what the plan has read."""
        raise NotImplementedError

    @property
    def is_compact(self) -> bool:
        """Whether panes share the space one at a time."""
        return self.has_class("-narrow") or self.has_class("-short")

    @property
    def in_view(self) -> bool:
        """Whether this screen is looked at. (Textual's ``is_current`` also holds for the one just behind.)"""
        return self.app.fed_screen() is self

    def call_after_refresh(self, callback: Callback, *args: Any, **kwargs: Any) -> bool:
        """As Textual's, unless the screen has gone by then: where it is left first, Textual calls what waits for its next
        picture after one of the screen behind."""

        def call() -> Any:
            return callback(*args, **kwargs) if self in self.app.screen_stack else None

        return super().call_after_refresh(call)

    def on_fresh(self, message: Fresh) -> None:
        with self.app.batch_update():
            self.take(message.data)

    def on_unreadable(self, message: Unreadable) -> None:
        self._unreadable = message.sentence
        self.update_banner()

    def on_screen_resume(self, _: ScreenResume) -> None:
        self.update_banner()
        self.app.poke()

    def update_banner(self) -> None:
        """The store's trouble first, then the app's notice (draining), then the screen's own."""
        banner = self.query_one(Banner)
        if self._unreadable is not None:
            banner.say(self._unreadable, Tone.BAD)
            return
        notice = self.app.notice
        banner.say(notice if notice is not None else self.own_notice(), Tone.INFO)

    def own_notice(self) -> str | None:
        """What this screen has to say in the banner."""
        return None
