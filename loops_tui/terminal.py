"""The terminal around the app: what may write to it, and how it is given back.

Textual paints through ``sys.__stderr__``. Anything else that writes to the file descriptors 1 or 2 (a C library, a
logging handler made earlier, a child process) would land in the middle of the screen, so both are pointed at a log
file while the app runs.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TextIO

LOG_BYTES = 1_000_000  # a log larger than this is started anew
SIGNALS = (signal.SIGTERM, signal.SIGHUP, signal.SIGINT)

# Libraries that draw progress bars of their own do not, in a process that owns a screen.
QUIET = {
    "HF_HUB_DISABLE_PROGRESS_BARS": "1",
    "TOKENIZERS_PARALLELISM": "false",
    "TQDM_DISABLE": "1",
    "TRANSFORMERS_VERBOSITY": "error",
}


def is_terminal() -> bool:
    """Whether there is a terminal to paint on and to read keys from."""
    return all(stream is not None and stream.isatty() for stream in (sys.__stdin__, sys.__stderr__))


class NoLog(Exception):
    """The log cannot be opened; the message says why."""


def _open_log(path: Path) -> int:
    try:
        return _opened(path)
    except OSError as error:
        raise NoLog(f"{path} cannot be written: {error.strerror or error}") from error


def _opened(path: Path) -> int:
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND
    if path.exists() and path.stat().st_size > LOG_BYTES:
        flags |= os.O_TRUNC
    return os.open(path, flags, 0o600)


@contextmanager
def guarded_stdio(log_path: Path) -> Iterator[None]:
    """Keep the terminal for the app: what others write to stdout and stderr goes to ``log_path``. Raises NoLog."""
    for name, value in QUIET.items():
        os.environ.setdefault(name, value)
    log_fd = _open_log(log_path)
    sys.stdout.flush()
    sys.stderr.flush()
    before = (sys.__stdout__, sys.__stderr__)
    kept = (os.dup(1), os.dup(2))
    terminal = [os.fdopen(fd, "w", encoding="utf-8", errors="replace", closefd=False) for fd in kept]
    handler = logging.StreamHandler(os.fdopen(log_fd, "a", encoding="utf-8", errors="replace", closefd=False))
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s"))
    root = logging.getLogger()
    root.addHandler(handler)
    try:
        sys.__stdout__, sys.__stderr__ = terminal  # Textual reads them here
        os.dup2(log_fd, 1)
        os.dup2(log_fd, 2)
        yield
    finally:
        for stream in terminal:
            _flush(stream)
        sys.stdout.flush()
        sys.stderr.flush()
        os.dup2(kept[0], 1)
        os.dup2(kept[1], 2)
        sys.__stdout__, sys.__stderr__ = before
        root.removeHandler(handler)
        handler.flush()
        for fd in (*kept, log_fd):
            os.close(fd)


def _flush(stream: TextIO) -> None:
    try:
        stream.flush()
    except OSError as error:
        logging.getLogger(__name__).debug("the terminal is gone: %s", error)


@contextmanager
def signal_handlers(loop: asyncio.AbstractEventLoop, on_signal: Callable[[int], None]) -> Iterator[None]:
    """Call ``on_signal(number)`` on the loop for the signals that end a program. Textual itself handles none."""
    for number in SIGNALS:
        loop.add_signal_handler(number, on_signal, number)
    try:
        yield
    finally:
        for number in SIGNALS:
            loop.remove_signal_handler(number)


def say(text: str) -> None:
    """A line for the person who is back at the shell; nothing where the terminal is gone.

    ``sys.__stderr__`` is the terminal both while stdio is guarded and afterwards.
    """
    try:
        print(text, file=sys.__stderr__, flush=True)
    except OSError as error:
        logging.getLogger(__name__).debug("nobody to tell: %s", error)
