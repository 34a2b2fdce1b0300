"""Try weights: talk to a checkpoint or the base model, or let it attempt tasks. Its sampler goes with this dialog."""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.screen import ModalScreen
from textual.widgets import Input

from loops_tui.loops_ports import ActFailed, OpenTrial
from loops_tui.screens.trial_text import (
    SAMPLING_FIELDS,
    about_reply,
    attempt_lines,
    call_lines,
    reply_lines,
    sampling_of,
    sampling_words,
)
from loops_tui.theme import Tone
from loops_tui.widgets.form import Field, Form
from loops_tui.widgets.left_once import LeftOnce
from loops_tui.widgets.safe_text import safe
from loops_tui.widgets.search_view import SearchView
from loops_tui.widgets.spans import Line, entitle, plain
from loops_tui.widgets.text_line import TextLine
from loops_tui.widgets.wrapping import wrap

if TYPE_CHECKING:
    from engine.hosting.trying import TrialSampling, WeightsAsked
    from loops_tui.app import LoopsApp

type Opener = Callable[[Callable[[str], None]], OpenTrial]


class TrialScreen(ModalScreen[None], LeftOnce[None]):
    """What was said, and a line to say more. ``tasks``: the line takes numbers of tasks to attempt instead."""

    app: LoopsApp  # the only app this screen lives in

    DEFAULT_CSS = """
    TrialScreen { align: center middle; }
    TrialScreen > Vertical { width: 100%; height: 100%; background: $surface; }
    TrialScreen #said { height: 1fr; }
    TrialScreen Input { height: 1; border: none; padding: 0 1; background: $panel; }
    TrialScreen Input:focus { border: none; background-tint: $foreground 6%; }
    """

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "back", "Close", id="trial.close", tooltip="Close this and release its sampler"),
        Binding("ctrl+t", "sampling", "Sampling", id="trial.sampling",
                tooltip="Temperature, top_p, tokens and seed of the next replies"),
        Binding("ctrl+n", "anew", "New conversation", id="trial.new", tooltip="Forget what was said"),
        Binding("pageup", "scroll(-1)", "Up", show=False, id="trial.up", tooltip="A page up"),
        Binding("pagedown", "scroll(1)", "Down", show=False, id="trial.down", tooltip="A page down"),
    ]  # fmt: skip

    def __init__(
        self,
        name: str,
        opener: Opener,
        *,
        tasks: bool = False,
        first: str = "",
    ) -> None:
        """``first``: the first thing to say, or the first task to attempt; empty: none."""
        super().__init__()
        self._name = name
        self._opener = opener
        self._sampling: dict[str, str] = {}
        self._tasks, self._first = tasks, first
        self._trial: OpenTrial | None = None
        self._left = False
        self._busy = "starting a sampler"
        self._lines: list[Line] = []

    def compose(self) -> ComposeResult:
        with Vertical():
            yield SearchView(id="said", classes="pane")
            yield TextLine(placeholder=self._placeholder(), id="entry", compact=True)

    def _placeholder(self) -> str:
        if self._tasks:
            return "number of a task to attempt, from 0   (^t sampling, esc closes)"
        return "say something   (^t sampling, ^n new conversation, esc closes)"

    @property
    def view(self) -> SearchView:
        return self.query_one("#said", SearchView)

    def on_mount(self) -> None:
        self.view.follow = True
        self.query_one(Input).focus()
        self._entitle()
        self.app.spawn(self._open())

    # -- what is shown -----------------------------------------------------------------------------------------

    def _entitle(self) -> None:
        if not self._left:
            entitle(self.view, f"Try {safe(self._name, 60)}", self._busy or sampling_words(self._sampling))

    def add(self, lines: Sequence[Line]) -> None:
        """Show more, wrapped already."""
        self._lines.extend(lines)
        if not self._left:
            self.view.show(list(self._lines))

    def _tell(self, text: str, tone: Tone = Tone.DIM) -> None:
        self.add([plain(piece, tone) for piece in wrap(safe(text, 600), self._width())])

    def _width(self) -> int:
        return max(20, self.view.scrollable_content_region.width) if not self._left else 70

    def _set_busy(self, what: str) -> None:
        self._busy = what
        self._entitle()

    # -- the weights -------------------------------------------------------------------------------------------

    async def _open(self) -> None:
        loop, context = asyncio.get_running_loop(), contextvars.copy_context()

        def told(sentence: str) -> None:  # by a thread of the engine, which knows of no app
            loop.call_soon_threadsafe(self._heard, sentence, context=context)

        try:
            trial = await asyncio.to_thread(self._opener, told)
        except ActFailed as error:
            self._set_busy("not started")
            self._tell(str(error), Tone.BAD)
            return
        if self._left:  # closed while it was being started
            await self._release(trial)
            return
        self._trial = trial
        self._set_busy("")
        if self._first:
            self._begin(self._first)

    def _heard(self, sentence: str) -> None:
        """Of the sampler; also of its release, when nobody looks here any more."""
        if not self._left:
            self._tell(sentence)
        else:
            self.app.notify(safe(sentence, 300), title=f"Try {safe(self._name, 60)}", markup=False)

    async def _release(self, trial: OpenTrial) -> None:
        try:
            await asyncio.to_thread(trial.close)
        except ActFailed as error:
            self.app.notify(safe(str(error), 300), title="Try", severity="error", markup=False)

    # -- keys --------------------------------------------------------------------------------------------------

    def on_input_submitted(self, event: Input.Submitted) -> None:
        event.stop()
        text = event.value.strip()
        if not text:
            return
        if self._busy or self._trial is None:
            self.app.notify(f"first this has to end: {self._busy}", severity="warning", markup=False)
            return
        if self._tasks and not text.isdecimal():
            self.app.notify("a task's number is wanted, from 0 on", severity="warning", markup=False)
            return
        event.input.value = ""
        self._begin(text)

    def _begin(self, text: str) -> None:
        assert self._trial is not None
        if self._tasks:
            self._set_busy(f"attempting task {text}")
            self.app.spawn(self._attempt(self._trial, int(text)))
        else:
            self.add([(), *reply_lines("you", text, self._width())])
            self._set_busy("waiting for the reply")
            self.app.spawn(self._say(self._trial, text))

    async def _say(self, trial: OpenTrial, text: str) -> None:
        try:
            said = await asyncio.to_thread(trial.say, text)
        except ActFailed as error:
            self._tell(str(error), Tone.BAD)
        else:
            if said.reasoning:
                self.add(reply_lines("thinking", said.reasoning, self._width()))
            words = said.text or ("" if said.tool_calls else "(nothing)")
            said_lines = reply_lines("model", words, self._width())
            self.add(
                [*(said_lines if words else said_lines[:1]), *call_lines(said.tool_calls, self._width())]
            )
            self._tell(about_reply(said))
        self._set_busy("")

    async def _attempt(self, trial: OpenTrial, task: int) -> None:
        loop = asyncio.get_running_loop()

        def told(what: str) -> None:
            loop.call_soon_threadsafe(self._set_busy, f"task {task}: {safe(what, 60)}")

        try:
            done = await asyncio.to_thread(trial.attempt, task, told)
        except ActFailed as error:
            self._tell(str(error), Tone.BAD)
        else:
            self.add([(), *attempt_lines(done, self._width())])
        self._set_busy("")

    def action_sampling(self) -> None:
        def answered(values: dict[str, str] | None) -> None:
            trial = self._trial
            if values is None or trial is None:
                return
            self._sampling = values
            self._entitle()
            self.app.spawn(self._use(trial, sampling_of(values)))

        fields = [
            Field(name, label, self._sampling.get(name, ""), "as the config says", check)
            for name, label, check in SAMPLING_FIELDS
        ]
        self.app.push_screen(Form("How replies are sampled", [], fields, "Use"), answered)

    async def _use(self, trial: OpenTrial, sampling: TrialSampling) -> None:
        try:
            await asyncio.to_thread(trial.use, sampling)
        except ActFailed as error:
            self._tell(str(error), Tone.BAD)

    def action_anew(self) -> None:
        trial = self._trial
        if trial is None or self._busy or self._tasks:
            return
        self._lines.clear()
        self.add([])
        self.app.spawn(asyncio.to_thread(trial.forget))

    def action_scroll(self, by: int) -> None:
        (self.view.action_page_down if by > 0 else self.view.action_page_up)()

    def action_back(self) -> None:
        trial, self._trial, self._left = self._trial, None, True
        if trial is not None:
            self.app.spawn(self._release(trial))
        self.dismiss(None)


def opener_of(app: LoopsApp, asked: WeightsAsked, system: str, tasks: bool) -> Opener:
    """How the dialog starts its sampler, in a thread."""

    def opened(told: Callable[[str], None]) -> OpenTrial:
        return app.hosting.loops.open_trial(asked, system=system or None, with_sandboxes=tasks, told=told)

    return opened
