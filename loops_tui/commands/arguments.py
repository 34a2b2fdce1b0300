"""Arguments that several commands take, and how each of them ends."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any, NoReturn

import typer

from loops_tui.commands.output import Output, carry_out

Config = Annotated[
    str,
    typer.Argument(
        metavar="CONFIG", help="A TOML or JSON config; a bundled example's path works from anywhere."
    ),
]
Run = Annotated[
    str,
    typer.Argument(
        metavar="RUN", help="Run id, run directory, a unique beginning of either, or Loops run id."
    ),
]
Set = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="KEY=VALUE", help="Override a key of the config (repeatable)."),
]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON value on standard output.")]


def end(
    out: Output, work: Callable[[], int], failure: Callable[[str], Any] = lambda text: {"error": text}
) -> NoReturn:
    """Do a command's work and leave with its exit status."""
    raise typer.Exit(carry_out(out, work, failure=failure))
