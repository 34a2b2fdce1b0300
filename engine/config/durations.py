"""Durations as people write them: "90s", "45m", "1h", "1h30m", "2d"."""

from __future__ import annotations

import re

_UNITS = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_DURATION = re.compile(r"(?:\d+(?:\.\d+)?[smhd])+\Z")
_PART = re.compile(r"(\d+(?:\.\d+)?)([smhd])")
_YEAR = 366 * 86400.0


def parse_duration(text: str) -> float:
    """Seconds of a duration. Raises ValueError with a sentence that shows what would be right."""
    compact = text.replace(" ", "").lower()
    if not _DURATION.match(compact):
        raise ValueError(f'must be a duration such as "90s", "45m", "1h" or "1h30m", not {text!r}')
    seconds = sum(float(number) * _UNITS[unit] for number, unit in _PART.findall(compact))
    if not 0 < seconds < _YEAR:
        raise ValueError(f"must be longer than 0 and shorter than a year, not {text!r}")
    return seconds
