"""Dialogs: a question with answers, each on a key of its own.

The harmless answer is in focus; ``enter`` takes the focused one and nothing else does, ``y`` confirms.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal, Vertical
from textual.widgets import Button

from loops_tui.widgets.dialog import Dialog
from loops_tui.widgets.safe_text import safe, safe_rich

LISTED = 6  # names shown before "and n more"


@dataclass(frozen=True, slots=True)
class Choice:
    """An answer: its value, its words, its key, and whether it destroys something."""

    value: str
    label: str
    key: str
    grave: bool = False


class Ask(Dialog[str]):
    """A question with a few answers. The result is the chosen value."""

    DEFAULT_CSS = """
    Ask > Vertical { width: 64; max-height: 90%; }
    Ask.-many Horizontal { layout: vertical; }
    Ask.-many Button { width: 100%; margin-left: 0; content-align: left middle; text-align: left; }
    """

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "back", "Back", id="ask.back", tooltip="Close the question, nothing happens"),
        Binding(
            "left,up",
            "app.focus_previous",
            "Previous",
            show=False,
            id="ask.previous",
            tooltip="Answer before",
        ),
        Binding("right,down", "app.focus_next", "Next", show=False, id="ask.next", tooltip="Answer after"),
    ]

    def __init__(self, title: str, lines: Sequence[str], choices: Sequence[Choice]) -> None:
        super().__init__(title, lines, classes="-many" if len(choices) > 2 else None)
        self.choices = list(choices)

    def compose(self) -> ComposeResult:
        with Vertical():
            yield from self.compose_said()
            with Horizontal():
                for choice in self.choices:
                    key = "" if choice.key == "escape" else f" ({choice.key})"
                    yield Button(
                        safe_rich(choice.label + key),
                        id=f"choice-{choice.value}",
                        variant="error" if choice.grave else "default",
                        compact=True,
                    )

    def on_mount(self) -> None:
        for choice in self.choices:
            if choice.key != "escape":
                self._bindings.bind(choice.key, f"choose('{choice.value}')", choice.label, show=False)
        # The first answer that destroys nothing is the focused one, wherever it stands.
        harmless = next((choice for choice in self.choices if choice.key == "escape"), self.choices[0])
        self.query_one(f"#choice-{harmless.value}", Button).focus()

    def on_button_pressed(self, event: Button.Pressed) -> None:
        event.stop()
        self.action_choose((event.button.id or "").removeprefix("choice-"))

    def action_choose(self, value: str) -> None:
        backed_out = any(choice.value == value and choice.key == "escape" for choice in self.choices)
        self.dismiss(None if backed_out else value)


def confirm(verb: str, what: str, names: Sequence[str], note: str = "") -> Ask:
    """Ask before something is ended or thrown away: how many, which ones, and Cancel in focus."""
    lines = [f"  {safe(name, 56)}" for name in names[:LISTED]]
    if len(names) > LISTED:
        lines.append(f"  and {len(names) - LISTED} more")
    if note:
        lines.extend(["", note])
    count = f"{len(names)} {what}" if len(names) != 1 else f"this {what.removesuffix('s')}"
    return Ask(
        f"{verb} {count}?",
        lines,
        [Choice("cancel", "Cancel", "escape"), Choice("yes", verb, "y", grave=True)],
    )


class Tell(Ask):
    """Something to read and close."""

    def __init__(self, title: str, lines: Sequence[str]) -> None:
        super().__init__(title, lines, [Choice("close", "Close", "escape")])
