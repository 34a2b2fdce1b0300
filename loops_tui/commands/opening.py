"""``loops-tui [DIR]``: the application on a project directory."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from loops_tui.commands.output import UsageError

if TYPE_CHECKING:
    from loops_tui.options import Options


def open_directory(directory: Path, options: Options) -> int:
    """Open the application and return its exit status. Raises UsageError."""
    project_dir = Path(os.path.expanduser(directory)).resolve()
    if not project_dir.is_dir():
        raise UsageError(f"{directory} is no directory")
    from engine.importing import uncollected

    with uncollected():
        from loops_tui.session import open_app

    return open_app(project_dir, options=options)


def chosen_options(
    *, readonly: bool = False, ascii: bool = False, mouse: bool = True, on_hangup: str | None = None
) -> Options:
    """What the command line says, completed by the environment. Raises UsageError."""
    from loops_tui.options import BadOption, options_from

    try:
        return options_from(os.environ, readonly=readonly, ascii=ascii, mouse=mouse, on_hangup=on_hangup)
    except BadOption as error:
        raise UsageError(str(error)) from error
