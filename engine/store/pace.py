"""How many sandboxes of a provider a project may have, and how fast it makes them: one row that all processes share.

Each function runs inside a transaction of the writer, so that two processes never see the same room.
"""

from __future__ import annotations

import sqlite3
from dataclasses import dataclass
from typing import Literal

from engine.store.codec import decode_row, encode_row, upsert_sql
from engine.store.redact import Redactor
from engine.store.rows import PaceRow

BURST_SECONDS = 1.0
"""So much of the rate may be used at once after a rest."""
GROW_SECONDS = 20.0
"""A limit that was lowered is raised a little, this long after the last change."""
STEADY_SECONDS = 1.0
"""Rate limits that come this soon after a change lower nothing further: the requests were on their way."""
LOWEST_RATE = 0.1
_OVERDUE_SECONDS = 120.0  # after its ttl a sandbox is gone, whatever became of its lease

type Refusal = Literal["quota", "rate"]


@dataclass(frozen=True, slots=True)
class PaceLimits:
    """What the config allows."""

    max_live: int
    creates_per_second: float


@dataclass(frozen=True, slots=True)
class Admission:
    """Whether one more may be made now. ``wait``: seconds after which it is worth asking again; 0 when admitted.

    ``live``: sandboxes that may exist; ``limit``: how many may; ``why``: see ``PaceRow``.
    """

    wait: float
    live: int
    limit: int
    why: str | None

    @property
    def admitted(self) -> bool:
        return self.wait <= 0

    @property
    def full(self) -> bool:
        """It is room that is missing, not time."""
        return self.live >= self.limit


def admit(
    connection: sqlite3.Connection,
    provider: str,
    limits: PaceLimits,
    now: float,
    *,
    leave_room: bool = False,
) -> Admission:
    """Ask for one creation; where it is admitted, the time is taken and the caller adds the lease.

    ``leave_room``: whoever gets it will want another one before giving it back, so it must not be the last.
    """
    row = _grown(_load(connection, provider, limits, now), limits, now)
    live = _live(connection, provider, now)
    limit = _but_the_last(row) if leave_room else row.max_live
    if live >= limit:
        _save(connection, row)
        return Admission(1.0, live, limit, row.why)
    early = row.next_at - BURST_SECONDS - now
    if early > 0:
        _save(connection, row)
        return Admission(early, live, limit, row.why)
    row.next_at = max(row.next_at, now) + 1.0 / row.creates_per_second
    _save(connection, row)
    return Admission(0.0, live, limit, row.why)


def slow_down(
    connection: sqlite3.Connection,
    provider: str,
    limits: PaceLimits,
    kind: Refusal,
    *,
    why: str,
    retry_after: float | None,
    now: float,
) -> None:
    """The provider has refused: allow fewer (``quota``) or more slowly (``rate``), from when it said on."""
    row = _load(connection, provider, limits, now)
    pause = 1.0 if retry_after is None else retry_after
    row.next_at = max(row.next_at, now + pause + BURST_SECONDS)
    if kind == "quota":
        # The refused one is among them. When many are refused at once, each lowers the limit below what is left.
        row.max_live = max(1, min(row.max_live, _live(connection, provider, now) - 1))
        row.changed_at, row.why = now, why
    elif row.why is None or now - row.changed_at >= STEADY_SECONDS:
        row.creates_per_second = max(LOWEST_RATE, row.creates_per_second / 2)
        row.changed_at, row.why = now, why
    _save(connection, row)


def _load(connection: sqlite3.Connection, provider: str, limits: PaceLimits, now: float) -> PaceRow:
    """The row as it holds for these limits; processes may have different ones."""
    found = connection.execute("SELECT * FROM pace WHERE provider = ?", (provider,)).fetchone()
    row = (
        decode_row(PaceRow, found)
        if found
        else PaceRow(provider, limits.max_live, limits.creates_per_second, now, now)
    )
    if row.why is None:
        row.max_live, row.creates_per_second = limits.max_live, limits.creates_per_second
    else:
        row.max_live = min(row.max_live, limits.max_live)
        row.creates_per_second = min(row.creates_per_second, limits.creates_per_second)
    return row


def _grown(row: PaceRow, limits: PaceLimits, now: float) -> PaceRow:
    if row.why is None or now - row.changed_at < GROW_SECONDS:
        return row
    row.max_live = min(limits.max_live, row.max_live + _growth(row))
    row.creates_per_second = min(limits.creates_per_second, row.creates_per_second * 1.25)
    row.changed_at = now
    if (row.max_live, row.creates_per_second) == (limits.max_live, limits.creates_per_second):
        row.why = None
    return row


def _but_the_last(row: PaceRow) -> int:
    """How many may exist that others wait for. A limit that was lowered may have grown beyond what there is, by one step."""
    over = 0 if row.why is None else _growth(row)
    return max(1, row.max_live - over - 1)


def _growth(row: PaceRow) -> int:
    return max(1, row.max_live // 4)


def _live(connection: sqlite3.Connection, provider: str, now: float) -> int:
    """Sandboxes that may exist; a lease is written before its sandbox, so creations under way are among them."""
    return _count(
        connection,
        provider,
        "AND state != 'released' AND (ttl_seconds IS NULL OR created_at + ttl_seconds > ?)",
        (now - _OVERDUE_SECONDS,),
    )


def _count(connection: sqlite3.Connection, provider: str, condition: str, values: tuple[object, ...]) -> int:
    sql = f"SELECT count(*) FROM leases WHERE provider = ? {condition}"
    return int(connection.execute(sql, (provider, *values)).fetchone()[0])


def _save(connection: sqlite3.Connection, row: PaceRow) -> None:
    connection.execute(upsert_sql(PaceRow), encode_row(row, Redactor()))
