"""Names, durations and the keys of the config's table."""

from __future__ import annotations

import os
import time

import pytest

from engine.sandboxes import InvalidRequest, SandboxSettings
from engine.sandboxes.local.inside import procs
from engine.sandboxes.naming import MAX_NAME, check_name, new_name
from engine.sandboxes.settings import parse_duration


def test_names() -> None:
    name = new_name("20261129-143501-k3f9", 12, 3, 1)
    assert name.startswith("ltui-k3f9-g12a3t1-")
    assert len({new_name("x") for _ in range(1000)}) == 1000
    for run in ("", "A B/ü", "x" * 200, "2026-"):
        assert len(check_name(new_name(run, 10**9, 10**9, 10**9))) <= MAX_NAME


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("1h", 3600), ("90s", 90), ("1h30m", 5400), ("1.5h", 5400), ("2d", 172800), (45, 45)],
)
def test_durations(text: str | int, seconds: float) -> None:
    assert parse_duration(text) == seconds


@pytest.mark.parametrize("text", ["", "1", "h", "1x", "-1h", "0s", True, None, 0, float("nan")])
def test_no_durations(text: object) -> None:
    with pytest.raises(InvalidRequest):
        parse_duration(text)  # type: ignore[arg-type]


def test_the_table_of_a_config() -> None:
    table = {"provider": "blaxel", "memory_mb": 2048, "ttl": "1h", "image": "base"}
    settings = SandboxSettings.from_table(table)
    assert (settings.provider, settings.memory_mb, settings.ttl_seconds, settings.image) == (
        "blaxel",
        2048,
        3600,
        "base",
    )
    for wrong, hint in {
        "memory": "memory_mb",
        "isolaton": "isolation",
    }.items():
        with pytest.raises(InvalidRequest, match=hint):
            SandboxSettings.from_table({wrong: 1})
    for table in (
        {"provider": "locl"},
        {"memory_mb": "2048"},
        {"memory_mb": 1},
        {"isolation": "docker"},
        {"ttl": "1"},
    ):
        with pytest.raises(InvalidRequest):
            SandboxSettings.from_table(table)


def test_the_machine_keeps_time() -> None:
    """Process times are Unix seconds."""
    entry = procs.read_entry(os.getpid())
    assert entry is not None
    assert 0 < time.time() - procs.started_at(entry, procs.boot_time()) < 3600 * 24
