"""What the Config screen reads from the store: the last check reports of a config, and the last run of it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from engine.store.queries import StoreReader
    from engine.store.rows import CheckRow, RunRow

REPORTS = 20
RUNS_LOOKED_AT = 50  # of those whose words hold the path; live ones come first


@dataclass(frozen=True, slots=True)
class ConfigView:
    """``path``: the config that this is about. Reports stand newest first."""

    path: str = ""
    checks: list[CheckRow] = field(default_factory=list)
    run: RunRow | None = None


def read_config_view(reader: StoreReader, path: str) -> ConfigView:
    """On the reading thread."""
    runs = [run for run in reader.runs(RUNS_LOOKED_AT, text=path) if run.config_path == path]
    return ConfigView(
        path, reader.checks(path, REPORTS), max(runs, key=lambda run: run.created_at, default=None)
    )
