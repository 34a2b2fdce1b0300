"""Drafts: what was typed and not saved, kept in ``.loops/drafts`` so that no crash and no ``kill -9`` loses it.

A draft belongs to the process that types it. One whose process is gone is anybody's to restore; one of a living
process is somebody else's, in another window on the same project.
"""

from __future__ import annotations

import hashlib
import json
import os
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from loops_tui.screens.config_buffers import write_atomically

DIRECTORY = Path(".loops") / "drafts"


@dataclass(frozen=True, slots=True)
class Draft:
    """A text that is not saved. ``base`` is the digest of the file that it was made from."""

    path: Path  # the config
    text: str
    base: str
    at: float  # Unix seconds of its last change
    pid: int
    started: float  # of that process, Unix seconds
    file: Path  # where the draft itself lies


def digest(data: bytes | None) -> str:
    """A name for a file's content; "" where there is no file."""
    return "" if data is None else hashlib.sha256(data).hexdigest()


class Drafts:
    """The drafts of one project. Calls read and write files; a failure to write is told once, by an OSError."""

    def __init__(self, project_dir: Path) -> None:
        self._directory = project_dir / DIRECTORY
        self._pid = os.getpid()
        self._started = 0.0

    def write(self, path: Path, text: str, base: str) -> None:
        """Keep a text; replaces the draft that this process has of the same config. Raises OSError."""
        self._directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        value = {
            "path": str(path),
            "text": text,
            "base": base,
            "at": time.time(),
            "pid": self._pid,
            "started": self._own_start(),
        }
        write_atomically(self._file(path), json.dumps(value).encode(), 0o600)

    def drop(self, path: Path) -> None:
        """Forget this process's draft of a config, because it was saved or thrown away."""
        self._file(path).unlink(missing_ok=True)

    def left(self) -> list[Draft]:
        """Drafts whose process is gone, the newest of each config; what cannot be read is left alone."""
        from engine.store.processes import same_process

        newest: dict[Path, Draft] = {}
        for draft in self._all():
            if same_process(draft.pid, draft.started):
                continue
            known = newest.get(draft.path)
            if known is None or draft.at > known.at:
                newest[draft.path] = draft
        return list(newest.values())

    def others(self) -> dict[Path, int]:
        """Configs that another living process is editing, with its pid."""
        from engine.store.processes import same_process

        return {
            draft.path: draft.pid
            for draft in self._all()
            if draft.pid != self._pid and same_process(draft.pid, draft.started)
        }

    def adopt(self, draft: Draft) -> None:
        """Make a dead process's draft this one's own. Raises OSError."""
        self.write(draft.path, draft.text, draft.base)
        self.forget(draft.path)

    def forget(self, path: Path) -> None:
        """Remove what dead processes left of a config."""
        from engine.store.processes import same_process

        for draft in self._all():
            if draft.path == path and draft.pid != self._pid and not same_process(draft.pid, draft.started):
                draft.file.unlink(missing_ok=True)

    def _file(self, path: Path) -> Path:
        name = hashlib.sha256(os.fsencode(path)).hexdigest()[:16]
        return self._directory / f"{name}-{self._pid}.json"

    def _own_start(self) -> float:
        if not self._started:
            from engine.store.processes import process_started

            self._started = process_started(self._pid) or time.time()
        return self._started

    def _all(self) -> list[Draft]:
        drafts: list[Draft] = []
        for file in sorted(self._directory.glob("*.json")):
            try:
                value: Any = json.loads(file.read_bytes())
                drafts.append(
                    Draft(
                        Path(value["path"]),
                        str(value["text"]),
                        str(value["base"]),
                        float(value["at"]),
                        int(value["pid"]),
                        float(value["started"]),
                        file,
                    )
                )
            except (OSError, ValueError, KeyError, TypeError):
                continue  # half a disk, or not ours
        return drafts
