"""What is up on the account and no run of this project tells of: since when it bills, and its end."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, ClassVar, cast

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.screen import ModalScreen

from loops_tui.lease_words import NOT_KNOWN, coarse
from loops_tui.loops_ports import ActFailed, Told
from loops_tui.theme import Tone
from loops_tui.widgets.confirm import Ask, Choice
from loops_tui.widgets.left_once import LeftOnce
from loops_tui.widgets.safe_text import safe
from loops_tui.widgets.spans import Line, SpanPane, plain
from loops_tui.widgets.virtual_table import Cells, Column, VirtualTable
from loops_tui.widgets.wrapping import wrap

if TYPE_CHECKING:
    from engine.hosting.account import Account, AccountRun, AccountSampler
    from loops_tui.app import LoopsApp

CLOCK_SECONDS = 1.0

COLUMNS = (
    Column("id", "Loops run", 16, flex=1, most=30),
    Column("name", "name", 24, flex=2, most=44),
    Column("since", "bills for", 9, right=True),
    Column("model", "model", 14, flex=1, most=30, drop=1),
    Column("where", "where", 10, most=24, flex=1, drop=2),
)


class Said(SpanPane):
    """How far the question is, and what could not be asked."""

    DEFAULT_CSS = "Said { height: auto; max-height: 6; background: $surface; }"

    def __init__(self) -> None:
        super().__init__(id="said")
        self._texts: list[tuple[str, Tone]] = []

    def say(self, *texts: tuple[str, Tone]) -> None:
        self._texts = list(texts)
        self.recompose_lines()
        self.refresh(layout=True)

    def get_content_height(self, container: object, viewport: object, width: int) -> int:
        return max(1, len(self.compose_lines(width, 0)))

    def compose_lines(self, width: int, height: int) -> list[Line]:
        return [
            plain(piece, tone)
            for text, tone in self._texts
            for piece in wrap(safe(text, 600), max(20, width))
        ]


class AccountScreen(ModalScreen[None], LeftOnce[None]):
    """Asks when it opens, on ``r``, and after each end."""

    app: LoopsApp  # the only app this screen lives in

    DEFAULT_CSS = """
    AccountScreen { align: center middle; }
    AccountScreen > Vertical {
        width: 110; max-width: 96%; height: 22; max-height: 94%; background: $surface; border: round $border;
        padding: 0 1; border-title-style: bold; border-title-color: $primary;
        border-subtitle-color: $foreground-muted;
    }
    AccountScreen VirtualTable { height: 1fr; background: $surface; }
    """

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "back", "Close", id="account.close", tooltip="Back to the checkpoints"),
        Binding("r", "again", "Ask again", id="account.again", tooltip="Ask Loops again"),
        Binding("D", "deactivate", "Deactivate", id="account.deactivate",
                tooltip="End it, and the billing with it; asks first"),
    ]  # fmt: skip

    def __init__(self) -> None:
        super().__init__()
        self._account: Account | None = None
        self._asking = False
        self._left = False

    def compose(self) -> ComposeResult:
        with Vertical() as sheet:
            sheet.border_title = "On the account, unknown here"
            sheet.border_subtitle = "D deactivates, r asks again, esc closes"
            yield Said()
            yield VirtualTable["AccountRun | AccountSampler"](COLUMNS, _key, self._cells, id="unseen")

    @property
    def table(self) -> VirtualTable[AccountRun | AccountSampler]:
        return cast("VirtualTable[AccountRun | AccountSampler]", self.query_one("#unseen", VirtualTable))

    def on_mount(self) -> None:
        self.table.focus()
        self.set_interval(CLOCK_SECONDS, self._tick)
        self.action_again()

    # -- asking ------------------------------------------------------------------------------------------------

    def action_again(self) -> None:
        """Ask, unless a question is under way."""
        if not self._asking and not self._left:
            self._asking = True
            self.query_one(Said).say(("Asking Loops what is up …", Tone.DIM))
            self.app.spawn(self._ask())

    async def _ask(self) -> None:
        try:
            account = await asyncio.to_thread(self.app.hosting.loops.account)
        except ActFailed as error:
            self._show(None, [str(error)])
        else:
            self._show(account, account.problems)

    def _show(self, account: Account | None, problems: list[str]) -> None:
        self._asking = False
        if self._left:
            return
        self._account = account
        texts = [(problem, Tone.BAD) for problem in problems]
        if account is not None:
            texts.append((_found(account), Tone.DIM))
            self.table.show(account.unseen)
        self.query_one(Said).say(*texts)
        self.refresh_bindings()

    def _tick(self) -> None:
        """The time goes on that they have billed for."""
        if self._account is not None:
            self.table.show(self._account.unseen)

    def _cells(self, one: AccountRun | AccountSampler) -> Cells:
        return cells(one, time.time())

    # -- ending ------------------------------------------------------------------------------------------------

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        if action == "deactivate":
            return self.is_mounted and self.table.cursor_item is not None
        return super().check_action(action, parameters)

    def action_deactivate(self) -> None:
        one = self.table.cursor_item
        if one is None:
            return
        loop, ref = asyncio.get_running_loop(), one.loops.id

        def work(told: Told) -> str:
            def tell(sentence: str) -> None:
                told(sentence)
                loop.call_soon_threadsafe(self._tell, sentence)

            ended = self.app.hosting.loops.deactivate(ref, tell)
            loop.call_soon_threadsafe(self.action_again)
            return f"{', '.join(ended)} is INACTIVE; nothing of it bills any more"

        def answered(answer: str | None) -> None:
            if answer == "yes":
                self.app.acts.begin(f"deactivating {ref}", work)

        choices = [Choice("cancel", "Cancel", "escape"), Choice("yes", "Deactivate", "y", grave=True)]
        self.app.push_screen(Ask("Deactivate this?", question(one), choices), answered)

    def _tell(self, sentence: str) -> None:
        if not self._left:
            self.query_one(Said).say((sentence, Tone.DIM))

    def action_back(self) -> None:
        self._left = True
        self.dismiss(None)


def _key(one: AccountRun | AccountSampler) -> str:
    return one.loops.id


def _found(account: Account) -> str:
    known = sum(run.loops.active and run.current for run in account.runs)
    if account.unseen:
        return f"{len(account.unseen)} up that no run here tells of; {known} of this project's own are up besides"
    return f"Nothing else is up on the account; {known} of this project's own {'is' if known == 1 else 'are'}"


def cells(one: AccountRun | AccountSampler, now: float) -> Cells:
    """A row; ``now`` in Unix seconds."""
    since = "no cost" if one.where == "local" else coarse(now - one.loops.created_at)
    return (
        plain(safe(one.loops.id, 60), Tone.STRONG),
        plain("a sampler", Tone.DIM) if one.name is None else plain(safe(one.name, 80) or NOT_KNOWN),
        plain(since, Tone.DIM if one.where == "local" else Tone.WARN),
        plain(safe(one.loops.base_model, 60), Tone.DIM),
        plain(safe(one.where, 40), Tone.DIM),
    )


def question(one: AccountRun | AccountSampler) -> list[str]:
    """What stops and what stays, before it is ended."""
    bills = "" if one.where == "local" else ", and with it the billing"
    if one.name is None:
        return [
            f"  {one.loops.id}  {one.loops.base_model}",
            "",
            "Somebody's evaluation or trial may be using it.",
            f"Stops: the sampler{bills}.",
            "Stays: the weights that it sampled from.",
        ]
    whose = (
        f"It was left up by run {one.run_id} of this project."
        if one.run_id is not None
        else "It is no run of this project: somebody else may be training with it."
    )
    return [
        f"  {one.name}  {one.loops.id}",
        "",
        whose,
        f"Stops: its trainer and its sampler{bills}.",
        "Stays: its checkpoints, as far as it has saved any.",
    ]
