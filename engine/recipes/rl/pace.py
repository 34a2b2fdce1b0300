"""How fast a run goes at the moment, and how promptly its event loop serves it, for whoever watches it."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

#: Rates are over the last so many seconds.
WINDOW_SECONDS = 60.0
#: How often the event loop is asked to be on time.
TICK_SECONDS = 0.05


@dataclass(frozen=True, slots=True)
class Totals:
    """What a run has done in this sitting."""

    attempts: int
    sampled_tokens: int
    slot_seconds: float


class Pace:
    """Rates from totals that are read now and then."""

    def __init__(
        self, totals: Callable[[], Totals], slots: int, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._totals, self._slots, self._clock = totals, slots, clock
        self._seen: deque[tuple[float, Totals]] = deque([(clock(), totals())])

    def read(self) -> dict[str, Any]:
        """``attempts_per_minute``, ``tokens_per_second`` and ``slots_busy``, the share of slot time in use."""
        now, totals = self._clock(), self._totals()
        self._seen.append((now, totals))
        while len(self._seen) > 2 and now - self._seen[0][0] > WINDOW_SECONDS:
            self._seen.popleft()
        since, before = self._seen[0]
        seconds = max(now - since, 1e-9)
        return {
            "attempts_per_minute": round((totals.attempts - before.attempts) * 60.0 / seconds, 2),
            "tokens_per_second": round((totals.sampled_tokens - before.sampled_tokens) / seconds, 1),
            "slots_busy": round((totals.slot_seconds - before.slot_seconds) / (self._slots * seconds), 3),
        }


class StepClock:
    """How long a step takes and how much of it its slots are in use: ``begin`` with each step. Pauses are left out.

    ``slot_seconds``: seconds that slots were held until now, summed over slots.
    """

    def __init__(self, slot_seconds: Callable[[], float], clock: Callable[[], float]) -> None:
        self._slot_seconds, self._clock = slot_seconds, clock
        self.begin()

    def begin(self) -> None:
        self._began, self._used = self._clock(), self._slot_seconds()
        self.paused = 0.0  # seconds of this step

    @contextmanager
    def pausing(self) -> Iterator[None]:
        """The run is paused as long as the block lasts; attempts in flight may go on."""
        began, used = self._clock(), self._slot_seconds()
        try:
            yield
        finally:
            self.paused += self._clock() - began
            self._used += self._slot_seconds() - used

    def busy(self, slots: int) -> float:
        """The share of the time of so many slots that was in use since ``begin``."""
        seconds = self._clock() - self._began - self.paused
        return (self._slot_seconds() - self._used) / (slots * max(seconds, 1e-9))


class LoopLag:
    """How late the event loop is, in seconds: how long a callback that is due waits for those before it.

    A loop that stands still for a second would have been late for every tick of it, so all of these are counted: the
    quantiles are over time, not over ticks that came.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._late: deque[tuple[float, float]] = deque()  # (when, how late)
        self._since = clock()

    async def watch(self) -> None:
        """Tick until cancelled, on the loop that is watched."""
        while True:
            due = self._clock() + TICK_SECONDS
            await asyncio.sleep(TICK_SECONDS)
            self.ticked(due)

    def ticked(self, due: float) -> None:
        """A tick that was due then has come now."""
        now = self._clock()
        late = min(max(now - due, 0.0), WINDOW_SECONDS)  # the process may have been stopped for a night
        while late >= 0.0:
            self._late.append((now, late))
            late -= TICK_SECONDS
        while self._late[0][0] < now - WINDOW_SECONDS:
            self._late.popleft()

    def read(self) -> dict[str, float]:
        """``loop_lag_p50``, ``loop_lag_p99`` and ``loop_lag_max`` of the last minute; nothing before the first tick."""
        late = sorted(seconds for _, seconds in self._late)
        if not late:
            return {}
        shares = {"loop_lag_p50": 0.5, "loop_lag_p99": 0.99, "loop_lag_max": 1.0}
        return {name: round(quantile(late, share), 4) for name, share in shares.items()}

    def of_step(self) -> float | None:
        """The 99th percentile since this was asked last, or over the last minute where that is shorter."""
        since, self._since = self._since, self._clock()
        late = sorted(seconds for when, seconds in self._late if when > since)
        return quantile(late, 0.99) if late else None


def quantile(ordered: Sequence[float], share: float) -> float:
    """The value that ``share`` of an ascending, non-empty list does not exceed."""
    return ordered[int(share * (len(ordered) - 1))]
