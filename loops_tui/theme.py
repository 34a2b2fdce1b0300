"""Colours: the app's own themes, and the tones in which everything is written.

Code that builds text names a :class:`Tone` (good, bad, dim …); only here does a tone become a colour. So the same
text works in a truecolor theme, in the terminal's own sixteen colours and, because every tone that means something
comes with a word or a glyph, without any colour at all.
"""

from __future__ import annotations

from enum import StrEnum

from rich.style import Style
from textual.color import Color, ColorParseError
from textual.theme import Theme


class Tone(StrEnum):
    """How a piece of text is meant, not how it looks."""

    PLAIN = "plain"
    STRONG = "strong"
    DIM = "dim"
    FAINT = "faint"  # rules, axes, empty parts of bars
    TITLE = "title"
    ACCENT = "accent"
    GOOD = "good"
    WARN = "warn"
    BAD = "bad"
    INFO = "info"
    MATCH = "match"  # found by a search
    MATCH_HERE = "match_here"
    TOKEN = "token"  # token view: as likely as it gets
    TOKEN_MID = "token_mid"
    TOKEN_LOW = "token_low"


NIGHT = Theme(
    name="loops-night",
    primary="#7aa2f7",
    secondary="#56b6c2",
    accent="#e0af68",
    warning="#e5b567",
    error="#f7768e",
    success="#8fce7e",
    foreground="#d5daea",
    background="#10131c",
    surface="#151926",
    panel="#1c2131",
    dark=True,
    variables={
        "block-cursor-background": "#2b3658",
        "block-cursor-foreground": "#f2f5ff",
        "block-cursor-text-style": "none",
        "block-cursor-blurred-background": "#1d2438",
        "block-cursor-blurred-foreground": "#d5daea",
        "footer-key-foreground": "#e0af68",
        "border": "#7aa2f7",
        "border-blurred": "#323b56",
        "scrollbar": "#323b56",
        "scrollbar-background": "#10131c",
    },
)

DAY = Theme(
    name="loops-day",
    primary="#2456b8",
    secondary="#0f7b8a",
    accent="#955f00",
    warning="#955f00",
    error="#b3213f",
    success="#2c7a2f",
    foreground="#20242e",
    background="#f6f7fa",
    surface="#eef0f5",
    panel="#e4e8f0",
    dark=False,
    variables={
        "block-cursor-background": "#cfdcf7",
        "block-cursor-foreground": "#10131c",
        "block-cursor-text-style": "none",
        "block-cursor-blurred-background": "#e2e7f2",
        "block-cursor-blurred-foreground": "#20242e",
        "footer-key-foreground": "#955f00",
        "border": "#2456b8",
        "border-blurred": "#bcc4d6",
        "scrollbar": "#bcc4d6",
        "scrollbar-background": "#f6f7fa",
    },
)

THEMES = (NIGHT, DAY)


class Palette:
    """Tones as Rich styles, for one theme."""

    def __init__(self, theme: Theme, variables: dict[str, str], *, plain: bool = False) -> None:
        """``plain``: no colours reach the terminal (NO_COLOR); what matters must show by weight and by marks."""
        self._variables = variables
        self._ansi = theme.ansi or plain
        self._styles = self._ansi_styles() if self._ansi else self._blended_styles()
        cursor = self._cursor("block-cursor")
        self.cursor = cursor
        self.cursor_blurred = Style(bold=True) if self._ansi else self._cursor("block-cursor-blurred")

    def __getitem__(self, tone: Tone) -> Style:
        return self._styles[tone]

    def _colour(self, name: str, fallback: str) -> Color:
        try:
            return Color.parse(self._variables.get(name, fallback))
        except ColorParseError:
            return Color.parse(fallback)  # "auto 60%" and the like are no colour by themselves

    def _cursor(self, prefix: str) -> Style:
        if self._ansi:
            return Style(reverse=True)
        return Style(
            color=self._colour(f"{prefix}-foreground", "#ffffff").rich_color,
            bgcolor=self._colour(f"{prefix}-background", "#2b3658").rich_color,
        )

    def _blended_styles(self) -> dict[Tone, Style]:
        back = self._colour("background", "#000000")
        fore = self._colour("foreground", "#ffffff")
        named = {name: self._colour(name, "#ffffff") for name in ("primary", "secondary", "accent")}
        good, warn, bad = (self._colour(name, "#ffffff") for name in ("success", "warning", "error"))

        def towards(colour: Color, share: float) -> Style:
            return Style(color=back.blend(colour, share).rich_color)

        return {
            Tone.PLAIN: towards(fore, 1.0),
            Tone.STRONG: towards(fore, 1.0) + Style(bold=True),
            Tone.DIM: towards(fore, 0.62),
            Tone.FAINT: towards(fore, 0.26),
            Tone.TITLE: towards(named["primary"], 1.0) + Style(bold=True),
            Tone.ACCENT: towards(named["accent"], 1.0),
            Tone.GOOD: towards(good, 1.0),
            Tone.WARN: towards(warn, 1.0),
            Tone.BAD: towards(bad, 1.0),
            Tone.INFO: towards(named["secondary"], 1.0),
            Tone.MATCH: Style(color=fore.rich_color, bgcolor=back.blend(warn, 0.35).rich_color),
            Tone.MATCH_HERE: Style(color=back.rich_color, bgcolor=warn.rich_color, bold=True),
            Tone.TOKEN: towards(fore, 0.75),
            Tone.TOKEN_MID: towards(warn, 1.0),
            Tone.TOKEN_LOW: towards(bad, 1.0) + Style(underline=True),
        }

    def _ansi_styles(self) -> dict[Tone, Style]:
        return {
            Tone.PLAIN: Style(),
            Tone.STRONG: Style(bold=True),
            Tone.DIM: Style(dim=True),
            Tone.FAINT: Style(dim=True),
            Tone.TITLE: Style(color="blue", bold=True),
            Tone.ACCENT: Style(color="yellow"),
            Tone.GOOD: Style(color="green"),
            Tone.WARN: Style(color="yellow"),
            Tone.BAD: Style(color="red"),
            Tone.INFO: Style(color="cyan"),
            Tone.MATCH: Style(reverse=True),
            Tone.MATCH_HERE: Style(reverse=True, bold=True, underline=True),
            Tone.TOKEN: Style(),
            Tone.TOKEN_MID: Style(color="yellow"),
            Tone.TOKEN_LOW: Style(color="red", underline=True),
        }
