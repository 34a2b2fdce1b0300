"""What the Runs screen reads: of thousands of runs only the rows that may have changed since it last looked."""

from __future__ import annotations

import time
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from engine.store.history_queries import still_bills
from engine.store.leases import LeaseCounts
from engine.store.rows import HostRow, RunRow

if TYPE_CHECKING:
    from engine.store.history_queries import LastCheckpoint
    from engine.store.queries import StoreReader

FIRST = 100  # rows of the first read: more than fit any terminal, and painted before the others are read
LIMIT = 10_000
SPARKS = 300  # newest runs whose course is read
SETTLING_SECONDS = 600.0  # a run that ended so lately may still get a last word (spend, errors)
NOTHING_HELD = LeaseCounts()


@dataclass(frozen=True, slots=True)
class RunEntry:
    """A run as the list shows it."""

    run: RunRow
    rewards: tuple[float, ...]
    host: HostRow | None
    now: float
    leases: LeaseCounts = NOTHING_HELD  # sandboxes that may exist right now
    checkpoint: LastCheckpoint | None = None
    budget: Mapping[str, Any] = field(default_factory=dict)  # [budget] of its config
    currency: str = ""

    @property
    def live(self) -> bool:
        return not self.run.state.final

    @property
    def sandboxes(self) -> int:
        return self.leases.live + self.leases.lost

    @property
    def left_behind(self) -> int:
        """Sandboxes of a run that has ended."""
        return 0 if self.live else self.sandboxes

    @property
    def bills(self) -> bool:
        """Whether something of it is up on Loops at the account's cost, as far as is known."""
        return still_bills(self.run)

    @property
    def bills_for(self) -> float | None:
        """Seconds for which it has billed, where that is known."""
        since = self.run.loops_since
        return self.now - since if self.bills and since is not None else None


@dataclass(frozen=True, slots=True)
class RunsView:
    """The list; ``whole`` is False where the older runs have still to be read."""

    entries: list[RunEntry]
    whole: bool


class RunsWatch:
    """Reads the list. All calls come from the reading thread."""

    def __init__(self) -> None:
        self._runs: dict[str, RunRow] = {}
        self._rewards: dict[str, tuple[float, ...]] = {}
        self._limits: dict[str, tuple[Mapping[str, Any], str]] = {}

    def read(self, reader: StoreReader) -> RunsView:
        now = time.time()
        first = not self._runs
        order = reader.run_states(FIRST + 1 if first else LIMIT)
        whole = not first or len(order) <= FIRST
        order = order if whole else order[:FIRST]
        stale = [run_id for run_id, state in order if self._may_have_changed(run_id, state, now)]
        fresh = reader.runs_by_id(stale)
        # Rows that are gone from the store go from here as well.
        self._runs = {
            run_id: row for run_id, _ in order if (row := fresh.get(run_id) or self._runs.get(run_id))
        }
        self._read_courses(reader, set(stale))
        hosts, held, saved = reader.live_hosts(now), reader.lease_counts(), reader.last_checkpoints()
        entries = [
            RunEntry(
                run,
                self._rewards.get(run_id, ()),
                hosts.get(run.host_id or ""),
                now,
                held.get(run_id, NOTHING_HELD),
                saved.get(run_id),
                *self._limits_of(run),
            )
            for run_id, run in self._runs.items()
        ]
        return RunsView(entries, whole)

    def _may_have_changed(self, run_id: str, state: str, now: float) -> bool:
        known = self._runs.get(run_id)
        if known is None or known.state != state or not known.state.final:
            return True
        if still_bills(known):
            return True  # it may have been deactivated
        return known.ended_at is None or now - known.ended_at < SETTLING_SECONDS

    def _read_courses(self, reader: StoreReader, stale: set[str]) -> None:
        newest = list(self._runs)[:SPARKS]
        wanted = [run_id for run_id in newest if run_id in stale or run_id not in self._rewards]
        read = reader.rewards(wanted)
        self._rewards.update({run_id: tuple(read.get(run_id, ())) for run_id in wanted})

    def _limits_of(self, run: RunRow) -> tuple[Mapping[str, Any], str]:
        """The budget and the currency of a run's config."""
        known = self._limits.get(run.run_id)
        if known is None:
            known = self._limits[run.run_id] = limits(run.config_toml)
        return known


def limits(config_toml: str) -> tuple[Mapping[str, Any], str]:
    """``[budget]`` and the currency of ``[prices]`` in a config as it was run; nothing where there is none."""
    if "budget" not in config_toml and "prices" not in config_toml:
        return {}, ""
    try:
        config = tomllib.loads(config_toml)
    except tomllib.TOMLDecodeError:
        return {}, ""  # a store from elsewhere; the run's screen shows the text as it is
    budget, prices = config.get("budget"), config.get("prices")
    currency = prices.get("currency", "USD") if isinstance(prices, dict) else ""
    return (budget if isinstance(budget, dict) else {}), str(currency)
