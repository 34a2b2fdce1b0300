"""How the app is to be opened: from the command line first, from the environment otherwise."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from loops_tui.glyphs import wants_ascii

READONLY, ASCII, MOUSE, ON_HANGUP = (
    "LOOPS_TUI_READONLY",
    "LOOPS_TUI_ASCII",
    "LOOPS_TUI_MOUSE",
    "LOOPS_TUI_ON_HANGUP",
)
_NO = frozenset({"", "0", "no", "false", "off"})


class OnHangup(StrEnum):
    """What becomes of a run that lives in the app when its terminal closes."""

    HAND_OVER = "hand-over"  # it goes on in a process of its own; where that cannot be, it is drained
    DRAIN = "drain"  # it ends after the step in hand


@dataclass(frozen=True, slots=True)
class Options:
    """``readonly``: nothing is changed from the app; ``ascii``: only ASCII is sent to the terminal."""

    readonly: bool = False
    ascii: bool = False
    mouse: bool = True
    on_hangup: OnHangup = OnHangup.HAND_OVER


class BadOption(Exception):
    """A value that means nothing; the message is one sentence."""


def options_from(
    environ: Mapping[str, str],
    *,
    readonly: bool = False,
    ascii: bool = False,
    mouse: bool = True,
    on_hangup: str | None = None,
) -> Options:
    """The options of a command line, completed by the environment. Raises BadOption."""
    hangup = on_hangup or environ.get(ON_HANGUP) or OnHangup.HAND_OVER
    if hangup not in tuple(OnHangup):
        where = "--on-hangup" if on_hangup else ON_HANGUP
        raise BadOption(f"{where} is {hangup!r}; it can be {' or '.join(OnHangup)}")
    plain = environ.get(ASCII)
    return Options(
        readonly=readonly or is_on(environ.get(READONLY)),
        ascii=ascii or (wants_ascii(environ) if plain is None else is_on(plain)),
        mouse=mouse and is_on(environ.get(MOUSE, "1")),
        on_hangup=OnHangup(hangup),
    )


def is_on(value: str | None) -> bool:
    """Whether an environment variable says yes."""
    return value is not None and value.strip().lower() not in _NO
