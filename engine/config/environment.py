""".env files: they set only what the process does not set, and an earlier file beats a later one."""

from __future__ import annotations

import io
import os
import threading
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from dotenv.parser import Binding, parse_stream

from engine.config.problems import ConfigError, Problem

# What earlier loads set from .env files. An application that loads a second project (or a .env that was edited) must
# be able to replace those values, which a plain "is it set already" would take for the process's own.
_from_files: dict[str, str] = {}
_lock = threading.Lock()


def read_env_files(files: list[Path]) -> tuple[dict[str, str], list[Path]]:
    """The values of the files that exist, the earlier file winning, and those files. Raises ConfigError."""
    values: dict[str, str] = {}
    used: list[Path] = []
    for file in files:
        if file in used or not os.path.isfile(file):
            continue
        # Values are taken as they stand: interpolation would pull parts of the environment into others.
        parsed = {
            line.key: line.value for line in _parsed(file) if line.key is not None and _is_setting(line)
        }
        used.append(file)
        for name, value in parsed.items():
            if value is not None:
                values.setdefault(name, value)
    return values, used


def env_file_doubts(files: Iterable[Path]) -> Iterator[Problem]:
    """What of the files that are there is not read: lines that are not NAME=value, and files that are no files. Raises
    ConfigError."""
    for file in dict.fromkeys(files):
        if not os.path.lexists(file) or os.path.isdir(file):  # a virtual environment may have that name
            continue
        if not os.path.isfile(file):
            what = "a pipe or a device" if os.path.exists(file) else "a link that leads nowhere"
            yield Problem(f"this .env file is {what}, so nothing of it is read", file, remedy=_PLAIN)
            continue
        for line in _parsed(file):
            if line.error or (line.key is not None and not _is_setting(line)):
                number = line.original.line + _blank_lines(line)
                yield Problem("this is not NAME=value, so nothing is set", file, number, None, _MEND)


def _is_setting(line: Binding) -> bool:
    """Whether a line sets a variable that a process can have."""
    return bool(line.key) and "=" not in line.key


def _blank_lines(line: Binding) -> int:
    """Lines before the text of a binding, which begins where the one before it ended."""
    text = line.original.string
    return text.count("\n", 0, len(text) - len(text.lstrip()))


def _parsed(file: Path) -> list[Binding]:
    try:
        text = file.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as error:
        raise ConfigError([Problem("this .env file is not UTF-8 text", file, None, None, _UTF8)]) from error
    except OSError as error:
        said = f"this .env file cannot be read: {error.strerror or type(error).__name__}"
        raise ConfigError([Problem(said, file, remedy="Check who may read it")]) from error
    if "\x00" in text:
        line = text.count("\n", 0, text.index("\x00")) + 1
        raise ConfigError([Problem("this .env file holds a NUL character", file, line, None, _UTF8)])
    return list(parse_stream(io.StringIO(text)))


_UTF8 = "Save it as UTF-8"
_MEND = "Mend the line; a quote that opens must close"
_PLAIN = "Write a plain file, or set the variables in the environment"


def apply_to_process(values: Mapping[str, str]) -> None:
    """Set ``values`` in this process where it has no value of its own."""
    with _lock:
        for name, value in values.items():
            current = os.environ.get(name)
            if current is None or (name in _from_files and _from_files[name] == current):
                os.environ[name] = value
                _from_files[name] = value
