"""Can a run write where the config says, and is there room?"""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from engine.config.report import CheckReport, Severity

if TYPE_CHECKING:
    from engine.project import Project

LEAST_FREE_BYTES = 50 * 1024 * 1024  # below this a run is refused
SCARCE_BYTES = 500 * 1024 * 1024  # below this it is warned about
_KEY = "output.output_dir"


def check_output(project: Project, report: CheckReport) -> None:
    """The output directory, or the first directory above it that exists, must take files."""
    wanted = project.config.output.output_dir
    existing = _existing(wanted)
    if not existing.is_dir():
        text = f"the output directory {wanted} cannot be made: {existing} is a file"
        report.add(Severity.ERROR, project.loaded.problem(_KEY, text, "Name another output_dir"))
        return
    try:
        with tempfile.TemporaryFile(dir=existing):
            pass
    except OSError as error:
        reason = error.strerror or type(error).__name__
        text = f"nothing can be written in {existing}: {reason}"
        report.add(Severity.ERROR, project.loaded.problem(_KEY, text, "Name another output_dir"))
        return
    free = shutil.disk_usage(existing).free
    if free < SCARCE_BYTES:
        severity = Severity.ERROR if free < LEAST_FREE_BYTES else Severity.WARNING
        text = f"only {free // (1024 * 1024)} MiB are free on the disk of {wanted}"
        report.add(
            severity, project.loaded.problem(_KEY, text, "Free some space, or set [output] trace = 'off'")
        )


def _existing(path: Path) -> Path:
    while not os.path.lexists(path) and path != path.parent:
        path = path.parent
    return path
