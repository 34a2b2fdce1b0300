"""Two attempts of one group: side by side where there is room, one at a time where there is not."""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar, cast

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal, Vertical

from loops_tui.feed import ReadPlan
from loops_tui.screens.attempt_facts import nothing_lines, transcript_header
from loops_tui.screens.attempt_pair_read import Difference, PairView, PairWatch
from loops_tui.screens.base import Banner, FedScreen, TopLine
from loops_tui.screens.transcript_read import TranscriptView, Want
from loops_tui.screens.transcript_text import MODES, ROLES
from loops_tui.theme import Tone
from loops_tui.widgets.key_bar import KeyBar
from loops_tui.widgets.safe_text import safe
from loops_tui.widgets.search_view import SearchView
from loops_tui.widgets.spans import Line, SpanPane, entitle, plain

SIDES = ("left", "right")


class SideHeading(SpanPane):
    """How one of the two attempts went."""

    DEFAULT_CSS = "SideHeading { height: 1; }"

    def __init__(self, side: str) -> None:
        super().__init__(id=f"{side}-heading")
        self.view: TranscriptView | None = None

    def compose_lines(self, width: int, height: int) -> list[Line] | None:
        return None if self.view is None else [transcript_header(self.view, width)]


class DifferenceLine(SpanPane):
    """Where the two part."""

    DEFAULT_CSS = "DifferenceLine { height: 1; }"

    def __init__(self) -> None:
        super().__init__(id="difference")
        self.view: PairView | None = None

    def compose_lines(self, width: int, height: int) -> list[Line] | None:
        return None if self.view is None else [difference_line(self.view)]


def difference_line(view: PairView) -> Line:
    """The first difference in words."""
    if view.left.transcript is None or view.right.transcript is None:
        attempts = (view.left.attempt, view.right.attempt)
        if any(attempt is not None and attempt.ended_at is None for attempt in attempts):
            return plain(" nothing to compare yet: they are not both at their end", Tone.DIM)
        return plain(" no transcript of one of the two was kept", Tone.WARN)
    found = view.difference
    if found is None:
        return plain(" both say the same, from beginning to end", Tone.DIM)
    role = ROLES.get(found.role, (safe(found.role, 20), Tone.PLAIN))[0]
    where = f"turn {found.turn + 1} ({role})"
    words = f"the {found.ended} one ends before {where}" if found.ended else f"they part in {where}"
    return ((" ≠ ", Tone.WARN), (words, Tone.PLAIN), ("   d shows the place", Tone.DIM))


class AttemptPairScreen(FedScreen):
    """Both conversations scroll together."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("n", "other(1)", "Next right", id="pair.next", tooltip="The next attempt on the right"),
        Binding("p", "other(-1)", "Prev. right", id="pair.previous", tooltip="The attempt before on the right"),
        Binding("d", "difference", "First difference", id="pair.difference", tooltip="Where the two part"),
        Binding("x", "swap", "Swap", id="pair.swap",
                tooltip="Left becomes right; where there is room for one, show the other one"),
        Binding("right_curly_bracket,J", "turn(1)", "Turn", key_display="{ }", id="pair.turn_after",
                tooltip="The next turn of both"),
        Binding("left_curly_bracket,K", "turn(-1)", "Turn", show=False, id="pair.turn_before",
                tooltip="The turn before of both"),
        Binding("t", "tokens", "Tokens", id="pair.tokens", tooltip="Text; tokens shaded by logprob; one a line"),
        Binding("enter", "open", "Open", show=False, id="pair.open", tooltip="This attempt alone"),
        Binding("escape", "back", "Back", id="pair.back", tooltip="Back to the attempt"),
    ]  # fmt: skip

    def __init__(self, run_id: str, run_name: str, group_id: int, left: int, right: int) -> None:
        super().__init__()
        self._run_id = run_id
        self._run_name = run_name
        self._group_id = group_id
        self._attempts = [left, right]
        self._mode = MODES[0]
        self._watch = PairWatch(run_id)
        self._shown: tuple[int, int, str] | None = None
        self._scrolling = False
        self._turn = 0
        self.view: PairView | None = None

    def compose(self) -> ComposeResult:
        yield TopLine()
        yield Banner()
        yield DifferenceLine()
        with Horizontal(id="body"):
            for side in SIDES:
                with Vertical(id=f"{side}-side", classes="side"):
                    yield SideHeading(side)
                    yield SearchView(id=side, classes="pane")
        yield KeyBar()

    def _pane(self, side: str) -> SearchView:
        return self.query_one(f"#{side}", SearchView)

    def on_mount(self) -> None:
        for side, other in (SIDES, SIDES[::-1]):
            self.watch(self._pane(side), "scroll_y", self._follower(side, other), init=False)
        self._pane("left").focus()
        self._write_top()

    def _follower(self, side: str, other: str) -> Callable[[float, float], None]:
        """What keeps the other side in step while this one is scrolled by hand."""

        def scrolled(old: float, new: float) -> None:
            if self._scrolling or not self._pane(side).has_focus:
                return
            pane = self._pane(other)
            self._scrolling = True
            pane.scroll_to(y=pane.scroll_offset.y + round(new) - round(old), animate=False, immediate=True)
            self._scrolling = False

        return scrolled

    def _write_top(self) -> None:
        left, right = self._attempts
        path = [
            self.app.project_dir.name or "/",
            self._run_name,
            f"group {self._group_id}",
            f"#{left} and #{right}",
        ]
        mode = (("tokens", Tone.ACCENT),) if self._mode != "text" else ()
        self.query_one(TopLine).write(path, mode)

    # -- rows --------------------------------------------------------------------------------------------------

    def read_plan(self) -> ReadPlan | None:
        widths = [self._pane(side).scrollable_content_region.width for side in SIDES]
        width = max(widths)  # where only one is shown, the other is as wide
        if width < 1:
            return None
        wants = [Want(self._group_id, attempt, width - 1, self._mode) for attempt in self._attempts]
        watch = self._watch
        return lambda reader: watch.read(reader, *wants)

    def take(self, data: object) -> None:
        view = cast("PairView", data)
        wanted = (*self._attempts, self._mode)
        if (view.left.want.attempt, view.right.want.attempt, view.left.want.mode) != wanted:
            return
        fresh = self._shown != wanted
        before, self.view = self.view, view
        for side, one in zip(SIDES, (view.left, view.right), strict=True):
            old = None if before is None else getattr(before, side)
            changed = old is None or one.layout is None or old.layout is not one.layout or fresh
            self._show_side(side, one, changed=changed, fresh=fresh)
        line = self.query_one(DifferenceLine)
        line.view = view
        line.recompose_lines()
        if fresh:
            self._shown = (self._attempts[0], self._attempts[1], self._mode)
            self._turn = 0
            self.call_after_refresh(self.action_difference)
        else:
            self._mark_turn()
        self.refresh_bindings()

    def _show_side(self, side: str, view: TranscriptView, *, changed: bool, fresh: bool) -> None:
        pane = self._pane(side)
        heading = self.query_one(f"#{side}-heading", SideHeading)
        heading.view = view
        heading.recompose_lines()
        entitle(pane, f"#{view.want.attempt}")
        if changed:
            pane.show(nothing_lines(view) if view.layout is None else view.layout.lines, keep=not fresh)

    def on_resize(self) -> None:
        self.call_after_refresh(self.app.poke)

    # -- keys --------------------------------------------------------------------------------------------------

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        view = self.view if self.is_mounted else None
        if action == "other":
            return view is not None and len(view.left.attempts) > len(SIDES)
        if action == "difference":
            return view is not None and view.difference is not None
        if action == "turn":
            return view is not None and view.left.layout is not None and view.right.layout is not None
        return super().check_action(action, parameters)

    def action_other(self, by: int) -> None:
        if self.view is None:
            return
        numbers = [row.attempt for row in self.view.left.attempts if row.attempt != self._attempts[0]]
        if self._attempts[1] in numbers:
            self._attempts[1] = numbers[(numbers.index(self._attempts[1]) + by) % len(numbers)]
            self._write_top()
            self.app.poke()

    def action_swap(self) -> None:
        if self.has_class("-narrow"):
            self.toggle_class("-right")
            self._pane("right" if self.has_class("-right") else "left").focus()
            return
        self._attempts.reverse()
        self._write_top()
        self.app.poke()

    def action_tokens(self) -> None:
        self._mode = MODES[(MODES.index(self._mode) + 1) % len(MODES)]
        self._write_top()
        self.app.poke()

    def action_difference(self) -> None:
        found: Difference | None = None if self.view is None else self.view.difference
        if found is None:
            return
        self._turn = found.turn
        for side, line in zip(SIDES, found.lines, strict=True):
            pane = self._pane(side)
            self._place(side, line - pane.size.height // 3)
        self._mark_turn()

    def action_turn(self, by: int) -> None:
        view = self.view
        if view is None or view.left.layout is None or view.right.layout is None:
            return
        layouts = view.left.layout, view.right.layout
        self._turn = max(0, min(max(len(layout.starts) for layout in layouts) - 1, self._turn + by))
        for side, layout in zip(SIDES, layouts, strict=True):
            self._place(side, layout.starts[min(self._turn, len(layout.starts) - 1)])
        self._mark_turn()

    def _mark_turn(self) -> None:
        view = self.view
        if view is None:
            return
        for side, one in zip(SIDES, (view.left, view.right), strict=True):
            layout = one.layout
            known = layout is not None and self._turn < len(layout.starts)
            self._pane(side).point_at(layout.starts[self._turn] if known and layout is not None else None)

    def _place(self, side: str, line: int) -> None:
        self._scrolling = True
        self._pane(side).scroll_to(y=max(0, line), animate=False, immediate=True)
        self._scrolling = False

    def action_open(self) -> None:
        from loops_tui.screens.transcript import TranscriptScreen

        attempt = self._attempts[1] if self._pane("right").has_focus else self._attempts[0]
        self.app.push_screen(TranscriptScreen(self._run_id, self._run_name, self._group_id, attempt))

    def action_back(self) -> None:
        self.dismiss(None)
