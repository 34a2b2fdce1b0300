"""Writing files and directories so that a kill at any moment leaves the old or the new, never a half.

A rename is enough for that when the process dies. When the machine does, data that was not flushed may be lost, so
what must outlive that as well is flushed first, at some ten milliseconds a file.
"""

from __future__ import annotations

import json
import os
import secrets
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

#: Leftovers of an interrupted write start with this and are removed when the state is next opened.
TEMPORARY_PREFIX = ".tmp-"


def temporary_beside(target: Path) -> Path:
    return target.parent / f"{TEMPORARY_PREFIX}{secrets.token_hex(6)}"


def sync_path(path: Path) -> None:
    """Flush a file or directory to the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def write_json(target: Path, value: Any) -> None:
    """Replace ``target`` with ``value`` as JSON, flushed."""
    temporary = temporary_beside(target)
    with temporary.open("w", encoding="utf-8") as handle:
        json.dump(value, handle, indent=1)
        handle.flush()
        os.fsync(handle.fileno())
    temporary.replace(target)


def read_json(path: Path) -> Any:
    return json.loads(path.read_text(encoding="utf-8"))


def create_directory(target: Path, fill: Callable[[Path], None], *, flush: bool) -> int:
    """Make ``target`` with the files that ``fill`` writes; returns its size in bytes."""
    temporary = temporary_beside(target)
    temporary.mkdir(parents=True)
    try:
        fill(temporary)
        files = sorted(temporary.iterdir())
        if flush:
            for path in (*files, temporary):
                sync_path(path)
        size = sum(file.stat().st_size for file in files)
        temporary.rename(target)
    except BaseException:
        shutil.rmtree(temporary, ignore_errors=True)
        raise
    if flush:
        sync_path(target.parent)
    return size


def remove_leftovers(directory: Path) -> None:
    """Delete what interrupted writes left in ``directory``."""
    if not directory.is_dir():
        return
    for entry in directory.iterdir():
        if not entry.name.startswith(TEMPORARY_PREFIX):
            continue
        if entry.is_dir():
            shutil.rmtree(entry, ignore_errors=True)
        else:
            entry.unlink(missing_ok=True)
