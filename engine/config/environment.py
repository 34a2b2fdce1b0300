""".env files: they set only what the process does not set, and an earlier file beats a later one."""

from __future__ import annotations

import os
import threading
from collections.abc import Mapping
from pathlib import Path

from dotenv import dotenv_values

from engine.config.problems import ConfigError, Problem

# What earlier loads set from .env files. An application that loads a second project (or a .env that was edited) must
# be able to replace those values, which a plain "is it set already" would take for the process's own.
_from_files: dict[str, str] = {}
_lock = threading.Lock()


def read_env_files(files: list[Path]) -> tuple[dict[str, str], list[Path]]:
    """The values of the files that exist, the earlier file winning, and those files."""
    values: dict[str, str] = {}
    used: list[Path] = []
    for file in files:
        if file in used or not file.is_file():
            continue
        try:
            # Interpolation would pull parts of the environment into other values; a .env file is taken as it stands.
            parsed = dotenv_values(file, interpolate=False, encoding="utf-8-sig")
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigError([Problem(f"cannot read this .env file: {error}", file=file)]) from error
        used.append(file)
        for name, value in parsed.items():
            if value is not None:
                values.setdefault(name, value)
    return values, used


def apply_to_process(values: Mapping[str, str]) -> None:
    """Set ``values`` in this process where it has no value of its own."""
    with _lock:
        for name, value in values.items():
            current = os.environ.get(name)
            if current is None or (name in _from_files and _from_files[name] == current):
                os.environ[name] = value
                _from_files[name] = value
