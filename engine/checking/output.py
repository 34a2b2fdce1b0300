"""Can a run write where the config says, and is there room?"""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from engine.config.problems import Problem
from engine.config.report import CheckReport, Severity
from engine.store.schema import store_path

if TYPE_CHECKING:
    from engine.project import Project

LEAST_FREE_BYTES = 50 * 1024 * 1024  # below this a run is refused
SCARCE_BYTES = 500 * 1024 * 1024  # below this it is warned about
_KEY = "output.output_dir"


def check_output(project: Project, report: CheckReport) -> None:
    """The run's directory and the store, or the first directories above them that exist, must take files."""
    store = store_path(project.working_dir)
    if store.is_dir():
        report.add(Severity.ERROR, _of_store(f"{store} is a directory, and the store is a file of that name"))
    elif (refusal := _refusal(store.parent)) is not None:
        report.add(Severity.ERROR, _of_store(f"the store cannot be written: {refusal}"))
    wanted = project.runs_dir
    if (refusal := _refusal(wanted)) is not None:
        text = f"the output directory {wanted} cannot be made: {refusal}"
        report.add(Severity.ERROR, project.loaded.problem(_KEY, text, "Name another output_dir"))
        return
    disks = {_disk(_existing(where)): where for where in (store.parent, wanted)}
    for where in disks.values():
        free = shutil.disk_usage(_existing(where)).free
        if free < SCARCE_BYTES:
            severity = Severity.ERROR if free < LEAST_FREE_BYTES else Severity.WARNING
            text = f"only {free // (1024 * 1024)} MiB are free on the disk of {where}"
            remedy = "Free some space, or set [output] trace = 'off'"
            report.add(severity, project.loaded.problem(_KEY, text, remedy))


def _disk(existing: Path) -> int:
    return existing.stat().st_dev


def _of_store(text: str) -> Problem:
    return Problem(text, remedy="Mend that, or start in another working directory")


def _refusal(wanted: Path) -> str | None:
    """Why no file can be made in a directory that is there, or is to be made."""
    try:
        os.stat(wanted)
    except FileNotFoundError:
        pass
    except OSError as error:  # a name that no file system takes, a file on the way
        if not isinstance(error, NotADirectoryError):
            return error.strerror or type(error).__name__
    existing = _existing(wanted)
    if not existing.is_dir():
        return f"{existing} is a {'link that leads nowhere' if existing.is_symlink() else 'file'}"
    try:
        with tempfile.TemporaryFile(dir=existing):
            return None
    except OSError as error:
        return f"nothing can be written in {existing}: {error.strerror or type(error).__name__}"


def _existing(path: Path) -> Path:
    while not os.path.lexists(path) and path != path.parent:
        path = path.parent
    return path
