"""What the app remembers of a person from one time to the next: the theme, and what screens choose to keep.

A small JSON file in the user's state directory. Losing it costs nothing, so nothing here ever fails: a file that
cannot be read counts as empty, one that cannot be written is told of in the log.
"""

from __future__ import annotations

import json
import logging
import os
from pathlib import Path

log = logging.getLogger(__name__)

type Value = str | int | float | bool


def state_dir() -> Path:
    """The user's own directory for what the app keeps outside any project."""
    import platformdirs

    return Path(platformdirs.user_state_dir("loops-tui", appauthor=False))


def preferences_path() -> Path:
    """Where they lie."""
    return state_dir() / "preferences.json"


class Preferences:
    """Named values. ``path`` None: they last as long as this process."""

    def __init__(self, path: Path | None = None) -> None:
        self._path = path
        self._values: dict[str, Value] = {} if path is None else _read(path)

    def get[V: Value](self, name: str, default: V) -> V:
        """A remembered value, or ``default`` where there is none of its kind."""
        value = self._values.get(name)
        return value if type(value) is type(default) else default

    def set(self, name: str, value: Value) -> None:
        """Remember a value; it is written at once, beside a file that is whole at any moment."""
        if self._values.get(name) == value:
            return
        self._values[name] = value
        if self._path is None:
            return
        beside = self._path.with_name(f".{self._path.name}.{os.getpid()}")
        try:
            self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            beside.write_text(json.dumps(self._values, indent=1), encoding="utf-8")
            beside.replace(self._path)
        except OSError as error:
            log.warning("%s could not be written: %s", self._path, error.strerror or error)


def _read(path: Path) -> dict[str, Value]:
    try:
        read = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    except (OSError, ValueError) as error:
        log.warning("%s could not be read: %s", path, error)
        return {}
    if not isinstance(read, dict):
        return {}
    return {str(name): value for name, value in read.items() if isinstance(value, str | int | float | bool)}
