"""The list of settings, or of one setting's values, to choose from while editing."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, cast

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.screen import ModalScreen
from textual.widgets import Input

from loops_tui.screens.config_panes import SettingPane
from loops_tui.theme import Tone
from loops_tui.widgets.left_once import LeftOnce
from loops_tui.widgets.safe_text import safe
from loops_tui.widgets.spans import plain
from loops_tui.widgets.text_line import TextLine
from loops_tui.widgets.virtual_table import Cells, Column, VirtualTable

if TYPE_CHECKING:
    from engine.config.catalog import Setting

COLUMNS = (
    Column("name", "Setting", 30, flex=1),
    Column("table", "Table", 22, drop=1),
    Column("default", "Default", 14, flex=1, drop=2),
)


@dataclass(frozen=True, slots=True)
class Offer:
    """A setting to insert, or one of its values."""

    setting: Setting
    value: str | None = None
    here: bool = False  # it belongs to the table that the cursor is in

    @property
    def key(self) -> str:
        return f"{self.setting.key}={self.value}" if self.value is not None else self.setting.key


def offers(table: str, present: Sequence[str], key: Setting | None, recipe: str) -> list[Offer]:
    """What can stand at the cursor: values of the key there, then settings, those of its table first."""
    from engine.config import catalog

    found: list[Offer] = []
    if key is not None:
        found = [Offer(key, value, here=True) for value in key.values]
    left = [setting for setting in catalog.settings(recipe) if setting.key not in present]
    found += [Offer(setting, here=True) for setting in left if setting.table == table]
    return found + [Offer(setting) for setting in left if setting.table != table]


def matching(all_offers: Sequence[Offer], text: str) -> list[Offer]:
    """Offers whose key holds the words; those whose name begins with the text come first."""
    words = text.casefold().split()
    kept = [offer for offer in all_offers if all(word in offer.key.casefold() for word in words)]
    return sorted(kept, key=lambda offer: not (text and offer.setting.name.startswith(text.strip())))


class Picker(ModalScreen["Offer | None"], LeftOnce["Offer | None"]):
    """Typing narrows the list down; enter takes what is marked."""

    DEFAULT_CSS = """
    Picker { align: center middle; }
    Picker Vertical {
        width: 86; max-width: 96%; height: 26; max-height: 94%;
        background: $surface; border: round $border; padding: 0 1;
        border-title-style: bold; border-title-color: $primary; border-subtitle-color: $foreground-muted;
    }
    Picker Input { height: 1; border: none; padding: 0; background: $panel; }
    Picker Input:focus { border: none; background-tint: $foreground 0%; }
    Picker VirtualTable { height: 1fr; background: $surface; }
    Picker SettingPane { height: 8; background: $surface; margin-top: 1; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding(
            "escape", "close", "Close", id="picker.close", tooltip="Back to the text, nothing is inserted"
        ),
        Binding("enter", "take", "Insert", id="picker.take", tooltip="Insert what is marked", priority=True),
        Binding("up", "move(-1)", "Up", show=False, id="picker.up", tooltip="The one above", priority=True),
        Binding(
            "down", "move(1)", "Down", show=False, id="picker.down", tooltip="The one below", priority=True
        ),
    ]

    def __init__(self, all_offers: Sequence[Offer], text: str) -> None:
        super().__init__()
        self._offers = all_offers
        self._text = text

    def compose(self) -> ComposeResult:
        with Vertical() as sheet:
            sheet.border_title = "Settings"
            sheet.border_subtitle = "enter inserts, esc closes"
            yield TextLine(self._text, placeholder="type to search", compact=True, select_on_focus=False)
            yield VirtualTable[Offer](
                COLUMNS,
                lambda offer: offer.key,
                _cells,
                id="offers",
                empty=[plain("No such setting.", Tone.DIM)],
            )
            yield SettingPane(id="meaning")

    @property
    def table(self) -> VirtualTable[Offer]:
        return cast("VirtualTable[Offer]", self.query_one("#offers", VirtualTable))

    def on_mount(self) -> None:
        self.query_one(Input).focus()
        self._narrow(self._text)

    def on_input_changed(self, event: Input.Changed) -> None:
        event.stop()
        self._narrow(event.value)

    def _narrow(self, text: str) -> None:
        kept = matching(self._offers, text)
        self.table.show(kept)
        if kept:
            self.table.move_to(kept[0].key)
        self._explain()

    def on_virtual_table_moved(self) -> None:
        self._explain()

    def on_virtual_table_opened(self) -> None:
        self.action_take()

    def _explain(self) -> None:
        offer = self.table.cursor_item
        self.query_one(SettingPane).write(None if offer is None else offer.setting, None)

    def action_move(self, by: int) -> None:
        self.table.action_move(by)

    def action_take(self) -> None:
        if self.table.cursor_item is not None:
            self.dismiss(self.table.cursor_item)

    def action_close(self) -> None:
        self.dismiss(None)


def _cells(offer: Offer) -> Cells:
    setting = offer.setting
    if offer.value is not None:
        is_default = offer.value == setting.default
        return (
            ((f"{setting.name} = ", Tone.DIM), (safe(offer.value, 60), Tone.ACCENT)),
            plain(setting.table, Tone.FAINT),
            plain("the default" if is_default else "", Tone.DIM),
        )
    tone = Tone.STRONG if offer.here else Tone.PLAIN
    required = Tone.WARN if setting.required else Tone.DIM
    return (
        plain(setting.name, tone),
        plain(setting.table or "–", Tone.DIM),
        plain(setting.default_words, required),
    )
