"""What people ask of a running recipe: pause, resume, save, evaluate, stop after this step, abort now.

Set from any thread (the host's command watch, a signal handler), awaited on the recipe's loop.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

type Ending = Literal["stop", "interrupt", "budget", "hand-over"]
"""What ends a run before its time, as its last checkpoint says it."""


@dataclass(frozen=True, slots=True)
class SaveRequest:
    """Somebody wants a checkpoint. ``answer(done, text)`` is called once, on the recipe's loop: a name or a reason."""

    answer: Callable[[bool, str], None]


@dataclass(frozen=True, slots=True)
class EvaluationRequest:
    """Somebody wants the weights evaluated. ``answer(done, text)`` is called once, on the recipe's loop."""

    answer: Callable[[bool, str], None]


class RunControl:
    """The wishes that hold now. Stop and abort are final; pause and resume alternate; saves and evaluations are taken
    one by one."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._paused = False
        self._stopping = False
        self._aborted = False
        self._lost = False
        self._why = ""
        self._ending: Ending = "stop"
        self._saves: list[SaveRequest] = []
        self._evaluations: list[EvaluationRequest] = []
        self._waiters: list[tuple[asyncio.AbstractEventLoop, asyncio.Event]] = []

    @property
    def paused(self) -> bool:
        """Whether new work should wait. A run that is stopping is never held by a pause."""
        return self._paused and not self._stopping and not self._aborted

    @property
    def stopping(self) -> bool:
        """Whether the run should end once the step in flight is done."""
        return self._stopping or self._aborted

    @property
    def aborted(self) -> bool:
        """Whether the run should end now, without training on what is in flight."""
        return self._aborted

    @property
    def lost(self) -> bool:
        """Whether the run is no longer this host's to write about: nothing of it may be saved."""
        return self._lost

    @property
    def why(self) -> str:
        """Who or what asked for the last change, for the log: "ctrl+c", "command", "SIGTERM"."""
        return self._why

    @property
    def ending(self) -> Ending:
        """What the checkpoint that a stop or an abort leaves is for."""
        return self._ending

    def pause(self, why: str = "") -> None:
        """Start nothing new; attempts in flight go on."""
        self._set(why, _paused=True)

    def resume(self, why: str = "") -> None:
        """End a pause."""
        self._set(why, _paused=False)

    def save(self, answer: Callable[[bool, str], None]) -> None:
        """Save a checkpoint when the step in flight ends, or at once where the run is paused between two."""
        with self._lock:
            self._saves.append(SaveRequest(answer))
        self._wake()

    def evaluate(self, answer: Callable[[bool, str], None]) -> None:
        """Evaluate the weights when the step in flight ends, or at once where the run is paused."""
        with self._lock:
            self._evaluations.append(EvaluationRequest(answer))
        self._wake()

    def stop_after_step(self, why: str = "", ending: Ending = "stop") -> None:
        """End the run after the step in flight, with a checkpoint."""
        self._set(why, _stopping=True, _ending=ending)

    def hand_over(self, why: str = "") -> None:
        """End this sitting after the step in flight, with a checkpoint that another process resumes from."""
        self.stop_after_step(why, "hand-over")

    def abort(self, why: str = "", ending: Ending = "stop", *, lost: bool = False) -> None:
        """End the run now. ``lost``: another host has it, or its store fails; it must not be saved either."""
        self._set(why, _aborted=True, _ending=ending, _lost=lost)

    @property
    def save_wanted(self) -> bool:
        """Whether somebody waits for a checkpoint."""
        return bool(self._saves)

    def take_saves(self) -> list[SaveRequest]:
        """The requests for a checkpoint since the last call; whoever takes them answers them."""
        with self._lock:
            saves, self._saves = self._saves, []
        return saves

    @property
    def evaluation_wanted(self) -> bool:
        """Whether somebody waits for an evaluation."""
        return bool(self._evaluations)

    def take_evaluations(self) -> list[EvaluationRequest]:
        """The requests for an evaluation since the last call; whoever takes them answers them."""
        with self._lock:
            evaluations, self._evaluations = self._evaluations, []
        return evaluations

    async def wait_if_paused(self) -> None:
        """Return at once, or when the pause ends, or when the run is to stop."""
        await self._until(lambda: not self.paused)

    async def wait_if_paused_or_asked(self) -> None:
        """As ``wait_if_paused``, but return also when a checkpoint or an evaluation is wanted."""
        await self._until(lambda: not self.paused or self.save_wanted or self.evaluation_wanted)

    async def wait_aborted(self) -> None:
        """Return when the run is to end now."""
        await self._until(lambda: self._aborted)

    async def wait_changed(self, seen: tuple[bool, bool, bool]) -> tuple[bool, bool, bool]:
        """Return (paused, stopping, aborted) as soon as it differs from ``seen``."""
        await self._until(lambda: self.wishes != seen)
        return self.wishes

    @property
    def wishes(self) -> tuple[bool, bool, bool]:
        """(paused, stopping, aborted)."""
        return self.paused, self.stopping, self.aborted

    def _set(self, why: str, **values: Any) -> None:
        with self._lock:
            for name, value in values.items():
                setattr(self, name, value)
            self._why = why
        self._wake()

    def _wake(self) -> None:
        with self._lock:
            waiters, self._waiters = self._waiters, []
        for loop, event in waiters:
            if not loop.is_closed():
                loop.call_soon_threadsafe(event.set)

    async def _until(self, true: Callable[[], bool]) -> None:
        while True:
            event = asyncio.Event()
            with self._lock:
                if true():
                    return
                self._waiters.append((asyncio.get_running_loop(), event))
            await event.wait()
