"""The script ``loops-tui``. Opening the application, which is what it is for, does not wait for the command line's
own machinery: that is loaded for everything else."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path

_SWITCHES = ("--readonly", "--ascii", "--no-mouse")


def main() -> None:
    arguments = sys.argv[1:]
    opening = _opening(arguments)
    if opening is None:
        from loops_tui.cli import main as command_line

        command_line()
        return
    from loops_tui.commands.opening import chosen_options, open_directory
    from loops_tui.commands.output import Output, carry_out

    directory, switches = opening
    readonly, ascii, no_mouse = (name in switches for name in _SWITCHES)
    sys.exit(
        carry_out(
            Output(),
            lambda: open_directory(
                directory, chosen_options(readonly=readonly, ascii=ascii, mouse=not no_mouse)
            ),
        )
    )


def _opening(arguments: Sequence[str]) -> tuple[Path, set[str]] | None:
    """(directory, switches) where the arguments plainly open the application, None where somebody else is to tell."""
    switches = {argument for argument in arguments if argument in _SWITCHES}
    rest = [argument for argument in arguments if argument not in _SWITCHES]
    if not rest:
        return Path(), switches
    plain = len(rest) == 1 and "/" in rest[0] and os.path.isdir(os.path.expanduser(rest[0]))
    return (Path(rest[0]), switches) if plain else None
