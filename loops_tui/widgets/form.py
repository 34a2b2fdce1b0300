"""A dialog with a few lines to fill in. What does not fit is said below its line, and the answer waits for it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal, Vertical
from textual.widgets import Button, Input, Static

from loops_tui.widgets.dialog import Dialog
from loops_tui.widgets.safe_text import safe_rich
from loops_tui.widgets.text_line import TextLine


def anything(text: str) -> str | None:
    """Every text fits."""
    del text
    return None


def something(text: str) -> str | None:
    """What is wrong with no text at all."""
    return None if text.strip() else "is needed"


def whole_number(text: str, *, above: int = 0) -> str | None:
    """What is wrong with this as a whole number above ``above``; None: nothing."""
    try:
        number = int(text)
    except ValueError:
        return "must be a whole number"
    return None if number > above else f"must be more than {above}"


@dataclass(frozen=True, slots=True)
class Field:
    """A line to fill in. ``check`` says what is wrong with a text, or None."""

    name: str
    label: str
    value: str = ""
    placeholder: str = ""
    check: Callable[[str], str | None] = anything


class Form(Dialog[dict[str, str]]):
    """The result is the texts by the fields' names. Enter goes to the next line, and on the last one answers."""

    DEFAULT_CSS = """
    Form > Vertical { width: 70; max-height: 94%; }
    Form .label { color: $foreground-muted; margin-top: 1; }
    Form .wrong { color: $error; display: none; }
    Form .wrong.-on { display: block; }
    Form Input { height: 1; border: none; padding: 0 1; background: $panel; }
    Form Input:focus { border: none; background-tint: $foreground 6%; }
    """

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "back", "Back", id="form.back", tooltip="Close this, nothing happens"),
        Binding("down", "app.focus_next", "Next", show=False, id="form.next", tooltip="The next line"),
        Binding(
            "up", "app.focus_previous", "Previous", show=False, id="form.previous", tooltip="The line before"
        ),
    ]

    def __init__(self, title: str, lines: Sequence[str], fields: Sequence[Field], verb: str) -> None:
        super().__init__(title, lines)
        self.fields = list(fields)
        self._verb = verb

    def compose(self) -> ComposeResult:
        with Vertical():
            yield from self.compose_said()
            for field in self.fields:
                yield Static(safe_rich(field.label), classes="label", markup=False)
                yield TextLine(
                    field.value, placeholder=field.placeholder, id=f"field-{field.name}", compact=True
                )
                yield Static("", id=f"wrong-{field.name}", classes="wrong", markup=False)
            with Horizontal():
                yield Button("Cancel", id="cancel", compact=True)
                yield Button(safe_rich(self._verb), id="answer", compact=True)

    def on_mount(self) -> None:
        if self.fields:
            self._input(self.fields[0]).focus()

    def _input(self, field: Field) -> Input:
        return self.query_one(f"#field-{field.name}", Input)

    def on_input_submitted(self, event: Input.Submitted) -> None:
        event.stop()
        if event.input is self._input(self.fields[-1]):
            self._answer()
        else:
            self.focus_next()

    def on_button_pressed(self, event: Button.Pressed) -> None:
        event.stop()
        if event.button.id == "answer":
            self._answer()
        else:
            self.dismiss(None)

    def _answer(self) -> None:
        """Close with the texts, or say what is wrong with them and stay."""
        wrong = {field.name: field.check(self._input(field).value) for field in self.fields}
        for field in self.fields:
            said = self.query_one(f"#wrong-{field.name}", Static)
            problem = wrong[field.name]
            said.update(safe_rich(f"{field.label.partition(':')[0]} {problem}" if problem else ""))
            said.set_class(problem is not None, "-on")
        first = next((field for field in self.fields if wrong[field.name] is not None), None)
        if first is not None:
            self._input(first).focus()
            return
        self.dismiss({field.name: self._input(field).value.strip() for field in self.fields})
