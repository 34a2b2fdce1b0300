"""How fast a run goes at the moment, for whoever watches it."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

#: Rates are over the last so many seconds.
WINDOW_SECONDS = 60.0


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
