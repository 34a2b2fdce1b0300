"""The arguments before a command's name, and ``LOOPS_TUI_READONLY`` for commands."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NoReturn

from loops_tui.commands.output import UsageError

WITH_VALUE = frozenset({"--on-hangup"})
LOOK_ON = frozenset({"open", "runs", "watch", "leases", "checkpoints", "keys"})
"""Commands that change nothing."""


def first_word(arguments: Sequence[str]) -> int | None:
    """Where the command's name or the directory stands: the first argument that is no option."""
    skip = False
    for place, argument in enumerate(arguments):
        if skip:
            skip = False
        elif argument.startswith("-"):
            skip = argument in WITH_VALUE
        else:
            return place
    return None


def refused_to_look_on(command: str, environ: Mapping[str, str]) -> str | None:
    """Why this command is not carried out where the environment says to look on only; None: it is."""
    from loops_tui.options import READONLY, is_on

    if command in LOOK_ON or not is_on(environ.get(READONLY)):
        return None
    return f"{READONLY} is set, and `{command}` may change something; unset it to go on"


def refuse(sentence: str) -> NoReturn:
    raise UsageError(sentence)
