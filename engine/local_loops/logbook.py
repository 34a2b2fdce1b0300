"""The log lines of each deployment, for the logs endpoint: the last few thousand, in memory."""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from dataclasses import dataclass
from typing import Any

log = logging.getLogger(__name__)

KEPT_LINES = 2000
LEVELS = {"DEBUG": 10, "INFO": 20, "WARNING": 30, "ERROR": 40}


@dataclass(frozen=True, slots=True)
class LogLine:
    epoch_ns: int
    level: str
    message: str
    request_id: str | None

    def to_wire(self) -> dict[str, Any]:
        return {
            "timestamp": str(self.epoch_ns),
            "message": self.message,
            "replica": None,
            "request_id": self.request_id,
            "level": self.level,
        }


class Logbook:
    """Per-deployment lines; written by the loop and by the training thread."""

    def __init__(self) -> None:
        self._lines: dict[str, deque[LogLine]] = {}
        self._lock = threading.Lock()

    def write(
        self, deployment: str, message: str, *, level: str = "INFO", request_id: str | None = None
    ) -> None:
        line = LogLine(time.time_ns(), level, message, request_id)
        with self._lock:
            self._lines.setdefault(deployment, deque(maxlen=KEPT_LINES)).append(line)
        log.log(LEVELS[level], "%s: %s", deployment, message)

    def read(
        self,
        deployment: str,
        *,
        start_ms: int | None,
        end_ms: int | None,
        newest_first: bool,
        limit: int,
        min_level: str,
    ) -> list[dict[str, Any]]:
        """Lines of a deployment within a time range, of at least a level."""
        with self._lock:
            lines = list(self._lines.get(deployment, ()))
        floor = LEVELS[min_level]
        chosen = [
            line
            for line in lines
            if LEVELS[line.level] >= floor
            and (start_ms is None or line.epoch_ns >= start_ms * 1_000_000)
            and (end_ms is None or line.epoch_ns <= end_ms * 1_000_000)
        ]
        if newest_first:
            chosen.reverse()
        return [line.to_wire() for line in chosen[:limit]]
