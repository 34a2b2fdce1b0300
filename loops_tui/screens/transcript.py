"""One attempt's conversation, turn by turn."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, cast

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal

from loops_tui.clipboard import Copied, copy_text, save_text
from loops_tui.feed import ReadPlan
from loops_tui.screens.attempt_facts import fact_lines, nothing_lines, transcript_header
from loops_tui.screens.base import Banner, FedScreen, TopLine
from loops_tui.screens.transcript_read import TranscriptView, TranscriptWatch, Want, extremes
from loops_tui.screens.transcript_source import turn_source, whole_source
from loops_tui.screens.transcript_text import MODES
from loops_tui.theme import Tone
from loops_tui.widgets.filter_line import FilterLine
from loops_tui.widgets.key_bar import KeyBar
from loops_tui.widgets.safe_text import safe, safe_block
from loops_tui.widgets.search_view import SearchView
from loops_tui.widgets.spans import Line, SpanPane

MODE_WORDS = {"text": "text", "shaded": "tokens, shaded by logprob", "tokens": "tokens, one a line"}


class Heading(SpanPane):
    """Whose conversation this is, and how it went."""

    DEFAULT_CSS = "Heading { height: 1; }"

    def __init__(self) -> None:
        super().__init__(id="heading")
        self.view: TranscriptView | None = None

    def compose_lines(self, width: int, height: int) -> list[Line] | None:
        return None if self.view is None else [transcript_header(self.view, width)]


class Facts(SpanPane):
    """The attempt in numbers, beside the conversation where there is room."""

    def __init__(self) -> None:
        super().__init__(id="facts", classes="pane")
        self.view: TranscriptView | None = None
        self.border_title = "Attempt"

    def compose_lines(self, width: int, height: int) -> list[Line] | None:
        return None if self.view is None else fact_lines(self.view, width, height)


class TranscriptScreen(FedScreen):
    """A conversation that may still be growing."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("n", "attempt(1)", "Next", id="transcript.next",
                tooltip="The next attempt; behind the last one those of the step's next group"),
        Binding("p", "attempt(-1)", "Prev.", id="transcript.previous", tooltip="The attempt before"),
        Binding("right_curly_bracket,J", "turn(1)", "Turn", key_display="{ }", id="transcript.turn_after",
                tooltip="The next turn"),
        Binding("left_curly_bracket,K", "turn(-1)", "Turn", show=False, id="transcript.turn_before",
                tooltip="The turn before"),
        Binding("t", "tokens", "Tokens", id="transcript.tokens",
                tooltip="Text; tokens shaded by logprob; one token a line with logprob and policy version"),
        Binding("slash", "search", "Search", key_display="/", id="transcript.search", tooltip="Find a text in it"),
        Binding("full_stop", "match(1)", "Match", key_display=". ,", id="transcript.match_after",
                tooltip="The next match"),
        Binding("comma", "match(-1)", "Match", show=False, id="transcript.match_before", tooltip="The match before"),
        Binding("y", "copy", "Copy", id="transcript.copy", tooltip="Copy the marked turn, as it was written"),
        Binding("a", "copy_all", "Copy all", show=False, id="transcript.copy_all",
                tooltip="Copy the whole conversation, as it was written"),
        Binding("Y", "save_copy", "To a file", show=False, id="transcript.save_copy",
                tooltip="Write the whole conversation to a file"),
        Binding("v", "pair", "Compare", id="transcript.pair",
                tooltip="This attempt beside the group's best one, or the best one beside the worst"),
        Binding("B", "extreme('best')", "Best", id="transcript.best", tooltip="The group's best attempt"),
        Binding("W", "extreme('worst')", "Worst", id="transcript.worst", tooltip="The group's worst attempt"),
        Binding("escape", "back", "Back", id="transcript.back", tooltip="Back to the run; first ends a search"),
    ]  # fmt: skip

    def __init__(
        self, run_id: str, run_name: str, group_id: int, attempt: int, *, find: Sequence[str] = ()
    ) -> None:
        """``find``: texts to look for once it is laid out; the first of them that occurs is shown."""
        super().__init__()
        self.run_id = run_id
        self._run_name = run_name
        self._group_id = group_id
        self._attempt = attempt
        self._mode = MODES[0]
        self._watch = TranscriptWatch(run_id)
        self.view: TranscriptView | None = None
        self._shown: tuple[int, int] | None = None
        self._turn = 0  # the turn that was jumped to
        self._whole = False  # whether all of it is laid out, or only what is seen first
        self._find = tuple(find)

    def compose(self) -> ComposeResult:
        yield TopLine()
        yield Banner()
        yield Heading()
        with Horizontal(id="body"):
            yield SearchView(id="conversation", classes="pane")
            yield Facts()
        yield FilterLine("text to find; enter keeps the search, . and , go from match to match")
        yield KeyBar()

    @property
    def conversation(self) -> SearchView:
        return self.query_one("#conversation", SearchView)

    def on_mount(self) -> None:
        self.conversation.focus()
        self._write_top()

    def _write_top(self) -> None:
        mode = ((MODE_WORDS[self._mode], Tone.ACCENT),) if self._mode != "text" else ()
        path = [
            self.app.project_dir.name or "/",
            self._run_name,
            f"group {self._group_id}",
            f"#{self._attempt}",
        ]
        self.query_one(TopLine).write(path, mode)

    # -- rows --------------------------------------------------------------------------------------------------

    def read_plan(self) -> ReadPlan | None:
        width = self.conversation.scrollable_content_region.width
        if width < 1:
            return None  # not laid out yet; the resize asks again
        watch = self._watch
        want = Want(self._group_id, self._attempt, width - 1, self._mode, self._whole)
        return lambda reader: watch.read(reader, want)

    def take(self, data: object) -> None:
        view = cast("TranscriptView", data)
        if view.want.place != (self._group_id, self._attempt):
            return
        if view.want.mode != self._mode:
            return
        before = self.view
        self.view = view
        fresh = self._shown != view.want.place
        if fresh or before is None or before.layout is not view.layout or view.layout is None:
            lines = view.layout.lines if view.layout is not None else nothing_lines(view)
            search = None if view.layout is None else view.layout.search
            self.conversation.show(lines, keep=not fresh, search=search)
            self._shown = view.want.place
            if fresh:
                self._turn = 0
            turn = self.turn_in_view()
            self.conversation.point_at(
                None if turn is None or view.layout is None else view.layout.starts[turn]
            )
        for pane in (self.query_one(Heading), self.query_one(Facts)):
            pane.view = view
            pane.recompose_lines()
        if view.layout is not None and not view.layout.whole:
            self._whole = True
            self.app.poke()  # its beginning is painted; now the rest
        elif view.layout is not None:
            self._show_hit()
        self.refresh_bindings()

    def _show_hit(self) -> None:
        """Show what one came here for, once."""
        wanted, self._find = self._find, ()
        for text in wanted:
            self.conversation.find(text)
            if self.conversation.matches:
                break
        if wanted:
            self.query_one(FilterLine).value = self.conversation.needle
            self._say_matches()

    def on_resize(self) -> None:
        self.call_after_refresh(self.app.poke)

    # -- keys --------------------------------------------------------------------------------------------------

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        view = self.view if self.is_mounted else None
        if action == "attempt":
            return self._there(cast("int", parameters[0])) is not None
        if action in ("extreme", "pair"):
            found = None if view is None else extremes(view.attempts)
            if action == "extreme" or view is None:
                return found is not None
            return len(view.attempts) > 1
        if action in ("copy", "copy_all", "save_copy", "tokens", "turn", "search"):
            return view is not None and view.transcript is not None
        if action == "match":
            return bool(self.is_mounted and self.conversation.matches)
        return super().check_action(action, parameters)

    def why_not(self, action: str) -> str | None:
        if self.view is None:
            return None
        if action in ("copy", "copy_all", "save_copy", "tokens", "turn", "search"):
            ended = self.view.attempt is not None and self.view.attempt.ended_at is not None
            return (
                "no transcript of this attempt was kept" if ended else "nothing is said yet in this attempt"
            )
        return {
            "attempt": "there is no further attempt that way",
            "extreme": "this group has no best and worst attempt: its rewards do not differ, or there are none yet",
            "pair": "this group has one attempt",
            "match": "nothing is looked for: / finds a text",
        }.get(action)

    def _there(self, by: int) -> tuple[int, int] | None:
        """Group and number of the next or the previous attempt, in the neighbouring group where this one ends."""
        view = self.view
        if view is None:
            return None
        numbers = [row.attempt for row in view.attempts]
        if self._attempt in numbers:
            place = numbers.index(self._attempt) + by
            if 0 <= place < len(numbers):
                return self._group_id, numbers[place]
        beyond = view.after if by > 0 else view.before
        shown = view.want.place == (self._group_id, self._attempt)
        return None if beyond is None or not shown else (beyond.group.group_id, beyond.attempt)

    def action_attempt(self, by: int) -> None:
        there = self._there(by)
        if there is None or self.view is None:
            return
        beyond = self.view.after if by > 0 else self.view.before
        if there[0] != self._group_id and beyond is not None:
            step = "" if beyond.group.step is None else f" of step {beyond.group.step}"
            title = "The next group" if by > 0 else "The group before"
            self.notify(f"group {there[0]}{step}", title=title, timeout=2.5, markup=False)
        self._go(*there)

    def action_extreme(self, which: str) -> None:
        found = None if self.view is None else extremes(self.view.attempts)
        if found is None:
            return
        row = found[0] if which == "best" else found[1]
        if row.attempt == self._attempt:
            self.notify(f"this is the {which} attempt of its group", timeout=2.5, markup=False)
            return
        self._go(self._group_id, row.attempt)

    def _go(self, group_id: int, attempt: int) -> None:
        self._group_id, self._attempt, self._whole = group_id, attempt, False
        self._write_top()
        self.app.poke()

    def action_pair(self) -> None:
        from loops_tui.screens.attempt_pair import AttemptPairScreen

        view = self.view
        if view is None:
            return
        found = extremes(view.attempts)
        others = [row.attempt for row in view.attempts if row.attempt != self._attempt]
        if not others:
            return
        wanted = [] if found is None else [row.attempt for row in found if row.attempt != self._attempt]
        other = wanted[0] if wanted else others[0]
        self.app.push_screen(
            AttemptPairScreen(self.run_id, self._run_name, self._group_id, self._attempt, other)
        )

    def action_tokens(self) -> None:
        self._mode = MODES[(MODES.index(self._mode) + 1) % len(MODES)]
        self._shown, self._whole = None, False
        self._write_top()
        self.app.poke()

    def turn_in_view(self) -> int | None:
        """The turn that was jumped to while any of it is in view, otherwise the topmost one in view."""
        view = self.view
        if view is None or view.layout is None or view.transcript is None or not view.transcript.turns:
            return None
        starts, top = view.layout.starts, self.conversation.scroll_offset.y
        turn = min(self._turn, len(view.transcript.turns) - 1)
        if starts[turn] < top + self.conversation.size.height and starts[turn + 1] > top:
            return turn
        passed = [place for place, start in enumerate(starts) if start <= top + 1]
        return min(passed[-1] if passed else 0, len(view.transcript.turns) - 1)

    def action_turn(self, by: int) -> None:
        turn = self.turn_in_view()
        if turn is None or self.view is None or self.view.layout is None or self.view.transcript is None:
            return
        self._turn = max(0, min(len(self.view.transcript.turns) - 1, turn + by))
        start = self.view.layout.starts[self._turn]
        self.conversation.point_at(start)
        self.conversation.scroll_to(y=start, animate=False)

    def action_search(self) -> None:
        self.query_one(FilterLine).open()

    def on_filter_line_typed(self, event: FilterLine.Typed) -> None:
        self.conversation.find(event.text)
        self._say_matches()

    def on_filter_line_left(self, event: FilterLine.Left) -> None:
        if not event.kept:
            self.conversation.find("")
        self.conversation.focus()
        self._say_matches()

    def action_match(self, by: int) -> None:
        self.conversation.step_match(by)
        self._say_matches()

    def _say_matches(self) -> None:
        self.conversation.border_subtitle = self.conversation.match_words() or None
        self.refresh_bindings()

    def action_back(self) -> None:
        if self.conversation.needle:
            self.query_one(FilterLine).action_drop()
            return
        self.dismiss(None)

    def action_copy(self) -> None:
        turn = self.turn_in_view()
        if turn is not None and self.view is not None and self.view.transcript is not None:
            self._copy(turn_source(self.view.transcript.turns[turn]), f"Turn {turn + 1}")

    def action_copy_all(self) -> None:
        if self.view is not None and self.view.transcript is not None:
            self._copy(whole_source(self.view.transcript), "Conversation")

    def action_save_copy(self) -> None:
        view = self.view
        if view is None or view.transcript is None:
            return
        name = f"{self.run_id}-group{self._group_id}-attempt{self._attempt}.txt"
        file = self.app.copies_dir / "saved" / name
        text = _writable(whole_source(view.transcript))

        async def save() -> None:
            self._tell(await save_text(text, file), "Conversation", "")

        self.app.spawn(save())

    def _copy(self, text: str, what: str) -> None:
        file = self.app.copies_dir / "copied.txt"
        text = _writable(text)
        # The source is copied as it is, and a shell obeys what is pasted into it.
        risk = "; it holds control characters, paste with care" if text != safe_block(text) else ""

        async def copy() -> None:
            self._tell(await copy_text(text, file, self.app.copy_to_clipboard), what, risk)

        self.app.spawn(copy())

    def _tell(self, result: Copied, what: str, risk: str) -> None:
        """Say what became of a text."""
        severity = "information" if result.ok else "error"
        said = result.said + (risk if result.ok else "")
        self.app.notify(safe(said, 600), title=what, severity=severity, markup=False)


def _writable(text: str) -> str:
    """Half a surrogate pair fits no clipboard and no file; it is written as the store writes it elsewhere."""
    return text.encode("utf-8", "backslashreplace").decode("utf-8")
