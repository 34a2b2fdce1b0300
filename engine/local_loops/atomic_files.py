"""Writing files and directories so that a kill at any moment leaves the old or the new, never a half."""

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
    """Replace ``target`` with ``value`` as JSON."""
    temporary = temporary_beside(target)
    with temporary.open("w", encoding="utf-8") as handle:
        json.dump(value, handle, indent=1)
        handle.flush()
        os.fsync(handle.fileno())
    temporary.replace(target)
    sync_path(target.parent)


def read_json(path: Path) -> Any:
    return json.loads(path.read_text(encoding="utf-8"))


def create_directory(target: Path, fill: Callable[[Path], None]) -> int:
    """Make ``target`` with the content that ``fill`` writes; returns its size in bytes."""
    temporary = temporary_beside(target)
    temporary.mkdir(parents=True)
    try:
        fill(temporary)
        size = 0
        for file in sorted(temporary.iterdir()):
            sync_path(file)
            size += file.stat().st_size
        sync_path(temporary)
        temporary.rename(target)
    except BaseException:
        shutil.rmtree(temporary, ignore_errors=True)
        raise
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
