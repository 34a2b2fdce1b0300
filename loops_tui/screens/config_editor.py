"""The editor of one config: a text area with colours, marks at the lines that have problems, and safe pasting.

Imported when the Config screen is first opened: the text area brings tree-sitter along.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from rich.segment import Segment
from rich.style import Style
from rich.text import Text
from textual import events
from textual.binding import Binding, BindingType
from textual.message import Message
from textual.strip import Strip
from textual.widgets import TextArea
from textual.widgets.text_area import Selection, TextAreaTheme

from loops_tui.screens.config_buffers import LARGEST
from loops_tui.screens.config_insert import Insertion
from loops_tui.theme import Palette, Tone
from loops_tui.widgets.safe_text import safe_cells
from loops_tui.widgets.spans import palette_of

THEME = "loops"
_TONES = {
    "property": Tone.INFO,
    "table": Tone.TITLE,
    "string": Tone.GOOD,
    "number": Tone.ACCENT,
    "boolean": Tone.ACCENT,
    "datetime": Tone.ACCENT,
    "comment": Tone.DIM,
    "operator": Tone.DIM,
    "punctuation.bracket": Tone.DIM,
    "punctuation.delimiter": Tone.DIM,
}

HIGHLIGHTED = 40_000  # characters: the colours of a larger text would hold up every key

# Textual's own query paints a whole ``key = value  # comment`` as a key.
_QUERY = """
(table [(bare_key) (quoted_key)] @table)
(table (dotted_key) @table)
(table_array_element [(bare_key) (quoted_key)] @table)
(table_array_element (dotted_key) @table)
(pair [(bare_key) (quoted_key)] @property)
(pair (dotted_key) @property)
(boolean) @boolean
(string) @string
[(integer) (float)] @number
[(offset_date_time) (local_date_time) (local_date) (local_time)] @datetime
(comment) @comment
"=" @operator
["." ","] @punctuation.delimiter
["[" "]" "[[" "]]" "{" "}"] @punctuation.bracket
"""


def _has_toml() -> bool:
    """Whether TOML can be coloured here: the two packages are there and fit each other."""
    try:
        import tree_sitter
        import tree_sitter_toml

        tree_sitter.Language(tree_sitter_toml.language())
    except (ImportError, ValueError, OSError):
        return False
    return True


def syntax_theme(palette: Palette) -> TextAreaTheme:
    """The app's tones for the parts of a text."""
    return TextAreaTheme(THEME, syntax_styles={name: palette[tone] for name, tone in _TONES.items()})


class ConfigEditor(TextArea):
    """Edits one text. ``marks`` are the 0-based lines with something to say, and how bad it is."""

    DEFAULT_CSS = """
    ConfigEditor {
        border: none; padding: 0; background: $background; color: $foreground; height: 1fr; width: 1fr;
        scrollbar-size-horizontal: 1;
        & .text-area--gutter { color: $foreground 35%; background: $background; }
        & .text-area--cursor-gutter { color: $foreground 80%; background: $panel; }
        & .text-area--cursor-line { background: $panel; }
        &:focus { border: none; }
        &:ansi .text-area--cursor-line { background: transparent; }
        &:ansi .text-area--cursor-gutter { background: transparent; }
    }
    """

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("ctrl+z", "undo", "Undo", show=False, id="editor.undo", tooltip="Undo what was typed last"),
        Binding("ctrl+y", "redo", "Redo", show=False, id="editor.redo", tooltip="Do again what was undone"),
        Binding(
            "ctrl+x", "cut", "Cut", show=False, id="editor.cut", tooltip="Cut the selection, or the line"
        ),
        Binding(
            "ctrl+c", "copy", "Copy", show=False, id="editor.copy", tooltip="Copy the selection, or the line"
        ),
        Binding(
            "ctrl+v", "paste", "Paste", show=False, id="editor.paste", tooltip="Insert what was copied here"
        ),
        Binding(
            "ctrl+shift+k",
            "delete_line",
            "Delete line",
            show=False,
            id="editor.delete_line",
            tooltip="Delete the line",
        ),
        Binding("f7", "select_all", "Select all", show=False, id="editor.select_all", tooltip="Select all"),
    ]

    class Copying(Message):
        """A text is to be copied to the terminal's clipboard."""

        def __init__(self, text: str) -> None:
            super().__init__()
            self.text = text

    def __init__(self, text: str, *, toml: bool, read_only: bool) -> None:
        super().__init__(
            text, language="toml" if toml else None, soft_wrap=False, show_line_numbers=True, read_only=read_only,
            tab_behavior="focus",
        )  # fmt: skip
        if toml and len(text) <= HIGHLIGHTED and _has_toml():
            self.update_highlight_query("toml", _QUERY)
            self.language = "toml"
        self.cursor_blink = False  # a blinking cursor costs 3 KiB/s over ssh
        self._marks: dict[int, Tone] = {}

    def on_mount(self) -> None:
        self.use_palette()
        self.app.theme_changed_signal.subscribe(self, lambda _: self.call_after_refresh(self.use_palette))

    def use_palette(self) -> None:
        """Colour the text by the app's theme as it is now."""
        self.register_theme(syntax_theme(palette_of(self)))
        self._set_theme(THEME)
        self.notify_style_update()
        self.refresh()

    def on_resize(self) -> None:
        """The list of problems has come or gone, or the window has another size: the cursor stays in view."""
        self.call_after_refresh(self._keep_in_view)

    def _keep_in_view(self) -> None:
        self.scroll_to(x=0, animate=False, immediate=True)  # from a narrow window it may be far to the right
        self.scroll_cursor_visible()

    def mark(self, marks: Mapping[int, Tone]) -> None:
        """Mark these lines in the gutter."""
        if dict(marks) != self._marks:
            self._marks = dict(marks)
            self.refresh()

    @property
    def line_number(self) -> int:
        """The 1-based line of the cursor."""
        return self.cursor_location[0] + 1

    def go_to(self, line: int, column: int = 0) -> None:
        """Put the cursor on a 1-based line and show it with some lines around it."""
        row = max(0, min(line - 1, self.document.line_count - 1))
        self.move_cursor((row, min(column, len(self.document.get_line(row)))), center=True)

    def lines_of_text(self) -> list[str]:
        """The text's lines, without their ends; at least one."""
        return [self.document.get_line(row) for row in range(self.document.line_count)] or [""]

    def insert_at(self, insertion: Insertion | None) -> None:
        """Make an insertion's changes, and select what it says."""
        if insertion is None or self.read_only:
            return
        for change in insertion.changes:
            self.replace(change.text, change.start, change.end)
        self.selection = Selection(*insertion.select)
        self.scroll_cursor_visible()

    def get_line(self, line_index: int) -> Text:
        """The line as shown: characters that could do harm in a terminal are replaced, one by one."""
        return Text(safe_cells(self.document.get_line(line_index)), end="", no_wrap=True)

    def render_line(self, y: int) -> Strip:
        strip = super().render_line(y)
        row = self.scroll_offset.y + y
        tone = self._marks.get(row)
        if tone is None or not self.show_line_numbers or row >= self.document.line_count:
            return strip
        width = self.gutter_width
        style = palette_of(self)[tone]
        ground = Style(bgcolor=self.background_colors[1].rich_color)
        number = Segment(f"{row + 1:>{width - 2}}", ground + style)
        glyph = Segment("× " if tone is Tone.BAD else "! ", ground + style)
        return Strip.join([Strip([number, glyph], width), strip.crop(width)])

    async def _on_paste(self, event: events.Paste) -> None:
        event.prevent_default()
        event.stop()
        if self.read_only:
            return
        text = event.text.replace("\r\n", "\n").replace("\r", "\n")
        clean = "".join(char for char in text if char in "\n\t" or char.isprintable())
        if len(clean) + len(self.text) > LARGEST:
            self.notify("that is too much text for a config", severity="warning", markup=False)
            return
        if result := self._replace_via_keyboard(clean, *self.selection):
            self.move_cursor(result.end_location)

    def action_copy(self) -> None:
        self.post_message(self.Copying(self.selected_text or self.document.get_line(self.cursor_location[0])))

    def action_cut(self) -> None:
        if self.read_only:
            return
        self.action_copy()
        if self.selected_text:
            self.delete(*self.selection)
        else:
            self.action_delete_line()
