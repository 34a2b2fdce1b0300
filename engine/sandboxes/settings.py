"""The keys of ``[runtime.config.sandbox]``, checked and with their defaults."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from difflib import get_close_matches
from typing import Any

from engine.config import durations
from engine.sandboxes.errors import InvalidRequest

PROVIDERS = ("local", "blaxel")
ISOLATIONS = ("auto", "bubblewrap", "landlock", "none")


def parse_duration(text: str | float) -> float:
    """Seconds of "90s", "45m", "1h", "1h30m", "2d" or a number of seconds. Raises InvalidRequest."""
    if isinstance(text, bool) or not isinstance(text, str | int | float):
        raise InvalidRequest(f'{text!r} is no duration; write for example "1h"')
    try:
        return durations.parse_duration(text if isinstance(text, str) else f"{text:f}s")
    except ValueError as error:
        raise InvalidRequest(f"a duration {error}") from error


@dataclass(frozen=True, slots=True)
class SandboxSettings:
    """One sandbox per attempt, as the config describes it. Sizes in MiB (2**20 bytes), times in seconds.

    ``isolation`` counts for the local provider: "auto" takes the strongest that works and never plain processes;
    "bubblewrap" and "landlock" insist; "none" means ordinary processes, for trusted code only.
    ``memory_mb`` bounds each local process by itself; elsewhere it is the sandbox's size.
    """

    provider: str = "local"
    memory_mb: int = 2048
    image: str | None = None
    region: str | None = None
    ttl_seconds: float | None = None
    isolation: str = "auto"
    disk_mb: int = 512  # /work; /tmp and /dev/shm have a share of their own
    max_processes: int = 256
    max_open_files: int = 1024
    cpu_seconds: int = 3600  # of one process
    max_concurrent_creates: int = 16
    env: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Raises InvalidRequest for a value that cannot be."""
        _one_of("provider", self.provider, PROVIDERS)
        _one_of("isolation", self.isolation, ISOLATIONS)
        bounds = {
            "memory_mb": (32, 1 << 20),
            "disk_mb": (1, 1 << 20),
            "max_processes": (8, 1 << 16),
            "max_open_files": (32, 1 << 16),
            "cpu_seconds": (1, 366 * 86400),
            "max_concurrent_creates": (1, 1024),
        }
        for key, (low, high) in bounds.items():
            value = getattr(self, key)
            if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
                raise InvalidRequest(
                    f"sandbox.{key} = {value!r}: a whole number from {low} to {high} is needed"
                )
        for key, value in self.env.items():
            if not key or "=" in key or "\0" in key + str(value) or not isinstance(value, str):
                raise InvalidRequest(f"sandbox.env: {key!r} cannot be a variable")

    @classmethod
    def from_table(cls, table: Mapping[str, Any]) -> SandboxSettings:
        """The settings of a config's table, with ``ttl`` as text ("1h"). Raises InvalidRequest for unknown keys."""
        names = [field.name for field in fields(cls) if field.name != "ttl_seconds"] + ["ttl"]
        for key in table:
            if key not in names:
                close = get_close_matches(key, names, 1)
                hint = f"; did you mean {close[0]}?" if close else ""
                raise InvalidRequest(f"sandbox.{key} is not a key of the sandbox table{hint}")
        values = {key: value for key, value in table.items() if key != "ttl"}
        if table.get("ttl") is not None:
            values["ttl_seconds"] = parse_duration(table["ttl"])
        return cls(**values)


def _one_of(key: str, value: str, allowed: tuple[str, ...]) -> None:
    if value not in allowed:
        close = get_close_matches(str(value), allowed, 1)
        hint = f"; did you mean {close[0]!r}?" if close else ""
        raise InvalidRequest(f"sandbox.{key} = {value!r}: one of {', '.join(allowed)} is needed{hint}")
