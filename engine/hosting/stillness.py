"""Notices a loop that stands still, and says which code holds it."""

from __future__ import annotations

import asyncio
import sys
import sysconfig
import threading
import time
from collections.abc import Callable
from pathlib import Path
from types import FrameType

STILL_SECONDS = 10.0

_ENGINE = Path(__file__).resolve().parents[1]
_STDLIB = tuple(str(Path(sysconfig.get_path(name)).resolve()) for name in ("stdlib", "platstdlib"))


class Stillness:
    """Watches the loop of the thread that makes this, from another thread that calls ``look`` now and then."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._loop = asyncio.get_running_loop()
        self._thread = threading.get_ident()
        self._clock = clock
        self._asked: float | None = None
        self._told = False

    def look(self) -> str | None:
        """A sentence, once for each time that the loop stands still."""
        asked = self._asked
        if asked is None:
            self._asked, self._told = self._clock(), False
            try:
                self._loop.call_soon_threadsafe(self._answer)
            except RuntimeError:  # closed; a loop that is gone holds up nobody
                self._asked = None
            return None
        still = self._clock() - asked
        if self._told or still < STILL_SECONDS:
            return None
        self._told = True
        where = blocking_place(sys._current_frames().get(self._thread))
        if self._asked is None:  # it went on meanwhile: the place is not the one
            return None
        return f"the engine has stood still for {still:.0f} s: {where} blocks it; use await or a thread there"

    def _answer(self) -> None:
        self._asked = None


def blocking_place(innermost: FrameType | None) -> str:
    """``<file name> line <n> in <function>``, of the user's own code where any of the frames is of that."""
    frame = innermost
    while frame is not None and not _is_users(frame):
        frame = frame.f_back
    frame = frame or innermost
    if frame is None:
        return "something"
    code = frame.f_code
    return f"{Path(code.co_filename).name} line {frame.f_lineno} in {code.co_qualname}"


def _is_users(frame: FrameType) -> bool:
    name = frame.f_code.co_filename
    if name.startswith("<"):  # frozen modules; code without a file
        return False
    path = Path(name)
    if {"site-packages", "dist-packages"} & set(path.parts):
        return False
    return not path.is_relative_to(_ENGINE) and not any(path.is_relative_to(root) for root in _STDLIB)
