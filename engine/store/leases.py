"""The journal of leases: which sandboxes this project has, has had, or may have left behind.

Every change is durable (synchronous=FULL) before the caller goes on; changes that meet become one transaction.
"""

from __future__ import annotations

import asyncio
import contextlib
import sqlite3
import time
from collections.abc import Callable, Collection, Iterable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any, Protocol

from engine.store import pace
from engine.store.codec import encode_field, encode_row, upsert_sql
from engine.store.errors import StoreError
from engine.store.hosts import marks
from engine.store.pace import Admission, PaceLimits
from engine.store.redact import Redactor
from engine.store.rows import FINAL_STATES, HostRow, LeaseRow, LeaseState, PaceRow, RunState

OPEN_STATES = (LeaseState.INTENDED, LeaseState.ACTIVE, LeaseState.RELEASING, LeaseState.LOST)
"""The states of a sandbox that may exist."""

_LET_GO = FINAL_STATES - {RunState.INTERRUPTED}
"""A run that ended so holds nothing any more, even where its process lives on (an app that hosted it). An interrupted
one may only have slept."""

type _Act = Callable[[sqlite3.Connection], Any]


@dataclass(frozen=True, slots=True)
class LeaseCounts:
    """Sandboxes of a run that may exist: ``live`` as far as is known, ``lost`` where releasing one has failed."""

    live: int = 0
    lost: int = 0


@dataclass(frozen=True, slots=True)
class LeaseView:
    """A lease, its run's name, and the living host that holds the sandbox right now."""

    lease: LeaseRow
    run_name: str | None
    holder: HostRow | None

    @property
    def open(self) -> bool:
        """Whether the sandbox may exist."""
        return self.lease.state is not LeaseState.RELEASED

    @property
    def left_behind(self) -> bool:
        """Whether it may exist although nobody alive holds it."""
        return self.open and self.holder is None


class _Reading(Protocol):
    def _rows[RowT](self, row_type: type[RowT], sql: str, values: Sequence[object]) -> list[RowT]: ...
    def live_hosts(self, now: float) -> dict[str, HostRow]: ...
    def leases(
        self, run_id: str | None = None, states: Collection[LeaseState] | None = None
    ) -> list[LeaseRow]: ...
    def lease_holders(self, leases: Iterable[LeaseRow], now: float) -> dict[str, HostRow]: ...
    def _reading(self) -> contextlib.AbstractContextManager[sqlite3.Connection]: ...


class LeaseQueries:
    """What readers ask of the journal (part of StoreReader)."""

    def leases(
        self: _Reading, run_id: str | None = None, states: Collection[LeaseState] | None = None
    ) -> list[LeaseRow]:
        """Leases, oldest first, of one run or of all, in any or in certain states."""
        wheres: list[str] = []
        values: list[object] = []
        if run_id is not None:
            wheres.append("run_id = ?")
            values.append(run_id)
        if states is not None:
            names = tuple(str(state) for state in states)
            wheres.append(f"state IN ({marks(names)})")
            values.extend(names)
            if LeaseState.RELEASED not in states:
                wheres.append(
                    "state != 'released'"
                )  # so SQLite knows that the index of open leases has them all
        where = f"WHERE {' AND '.join(wheres)}" if wheres else ""
        return self._rows(LeaseRow, f"SELECT * FROM leases {where} ORDER BY created_at, name", values)

    def lease(self: _Reading, name: str) -> LeaseRow | None:
        """The lease of one sandbox."""
        found = self._rows(LeaseRow, "SELECT * FROM leases WHERE name = ?", [name])
        return found[0] if found else None

    def paces(self: _Reading) -> list[PaceRow]:
        """The limits that hold now, of each provider that has any."""
        return self._rows(PaceRow, "SELECT * FROM pace ORDER BY provider", [])

    def live_lease_counts(self: _Reading) -> dict[str | None, int]:
        """How many sandboxes each run may have right now: leases that are not released, by run."""
        with self._reading() as connection:
            rows = connection.execute(
                "SELECT run_id, count(*) FROM leases WHERE state != 'released' GROUP BY run_id"
            ).fetchall()
            return {row[0]: row[1] for row in rows}

    def lease_counts(self: _Reading) -> dict[str | None, LeaseCounts]:
        """The sandboxes that each run may have right now; runs without any are not in it."""
        with self._reading() as connection:
            rows = connection.execute(
                "SELECT run_id, sum(state != 'lost'), sum(state = 'lost') FROM leases WHERE state != 'released' "
                "GROUP BY run_id"
            ).fetchall()
            return {row[0]: LeaseCounts(row[1], row[2]) for row in rows}

    def released_leases(self: _Reading, limit: int, run_id: str | None = None) -> list[LeaseRow]:
        """The leases that were released last, newest first."""
        where, values = ("", []) if run_id is None else ("AND run_id = ?", [run_id])
        sql = f"SELECT * FROM leases WHERE state = 'released' {where} ORDER BY released_at DESC, name LIMIT ?"
        return self._rows(LeaseRow, sql, [*values, limit])

    def lease_holders(self: _Reading, leases: Iterable[LeaseRow], now: float) -> dict[str, HostRow]:
        """The living host that holds each of these sandboxes, by the sandbox's name; nobody where there is none.

        A host holds what it leased until its run has ended or another host has taken the run over. What it could
        not release (LOST) it has given up.
        """
        rows, live = list(leases), self.live_hosts(now)
        runs = _runs_of(self, rows, "run_id, host_id, state")
        held: dict[str, HostRow] = {}
        for lease in rows:
            host = live.get(lease.host_id or "")
            if host is None or lease.state in (LeaseState.LOST, LeaseState.RELEASED):
                continue
            run = runs.get(lease.run_id or "")
            if run is None or (run[1] == lease.host_id and RunState(run[2]) not in _LET_GO):
                held[lease.name] = host
        return held

    def lease_views(self: _Reading, leases: Iterable[LeaseRow], now: float) -> list[LeaseView]:
        """These leases with what a person wants to know beside them (``now`` in Unix seconds)."""
        rows = list(leases)
        holders = self.lease_holders(rows, now)
        names = _runs_of(self, rows, "run_id, name")
        return [
            LeaseView(row, names[row.run_id][1] if row.run_id in names else None, holders.get(row.name))
            for row in rows
        ]


def _runs_of(reader: _Reading, leases: Iterable[LeaseRow], columns: str) -> dict[str | None, tuple[Any, ...]]:
    """Columns of these leases' runs, by the run's id."""
    ids = tuple({lease.run_id for lease in leases if lease.run_id is not None})
    with reader._reading() as connection:
        rows = connection.execute(f"SELECT {columns} FROM runs WHERE run_id IN ({marks(ids)})", ids)
        return {row[0]: tuple(row) for row in rows}


class _Writing(Protocol):
    """What the journal needs of the store."""

    redactor: Redactor

    def submit[T](self, act: Callable[[sqlite3.Connection], T]) -> Future[T]: ...


class LeaseJournal:
    """Writes leases, from one event loop. Methods raise StoreError."""

    def __init__(self, store: _Writing) -> None:
        self._store = store
        self._redactor: Redactor = store.redactor
        self._waiting: list[tuple[_Act, asyncio.Future[Any]]] = []
        self._writing: asyncio.Task[None] | None = None

    async def add(self, row: LeaseRow) -> None:
        """Commit the intent. Raises StoreError where the name is taken."""
        columns = encode_row(row, self._redactor)

        def insert(connection: sqlite3.Connection) -> None:
            if connection.execute("SELECT 1 FROM leases WHERE name = ?", (row.name,)).fetchone():
                raise StoreError(f"there is a sandbox {row.name} in the journal already")
            connection.execute(upsert_sql(LeaseRow), columns)

        await self._write(insert)

    async def admit(self, row: LeaseRow, limits: PaceLimits, *, leave_room: bool = False) -> Admission:
        """As ``add``, if the provider's limits have room for one more now; nothing is written otherwise.

        ``leave_room``: see ``pace.admit``.
        """
        columns = encode_row(row, self._redactor)

        def insert(connection: sqlite3.Connection) -> Admission:
            if connection.execute("SELECT 1 FROM leases WHERE name = ?", (row.name,)).fetchone():
                raise StoreError(f"there is a sandbox {row.name} in the journal already")
            admission = pace.admit(connection, row.provider, limits, row.created_at, leave_room=leave_room)
            if admission.admitted:
                connection.execute(upsert_sql(LeaseRow), columns)
            return admission

        return await self._write(insert)

    async def slow_down(
        self, provider: str, limits: PaceLimits, kind: pace.Refusal, why: str, retry_after: float | None
    ) -> None:
        """The provider has refused one more; every process of the project heeds that from now on."""
        said, now = self._redactor.text(why), time.time()
        await self._write(
            lambda connection: pace.slow_down(
                connection, provider, limits, kind, why=said, retry_after=retry_after, now=now
            )
        )

    async def change(
        self, name: str, state: LeaseState, *, only_from: Collection[LeaseState] = OPEN_STATES, **fields: Any
    ) -> bool:
        """Give a lease a new state, and other columns; False where it is in none of the states ``only_from``."""
        columns = {"state": str(state)}
        columns |= {key: encode_field(LeaseRow, key, value, self._redactor) for key, value in fields.items()}
        sets = ", ".join(f"{key} = ?" for key in columns)
        froms = tuple(str(state) for state in only_from)
        sql = f"UPDATE leases SET {sets} WHERE name = ? AND state IN ({marks(froms)})"

        def update(connection: sqlite3.Connection) -> bool:
            return connection.execute(sql, (*columns.values(), name, *froms)).rowcount > 0

        return await self._write(update)

    async def _write(self, act: _Act) -> Any:
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._waiting.append((act, future))
        if self._writing is None or self._writing.done():
            self._writing = asyncio.create_task(self._write_all(), name="lease-journal")
        return await future

    async def _write_all(self) -> None:
        """One durable transaction for everything that waits, until nothing waits."""
        while self._waiting:
            batch, self._waiting = self._waiting, []
            try:
                results = await asyncio.wrap_future(self._store.submit(lambda c, b=batch: _apply(b, c)))
            except Exception as error:  # noqa: BLE001 - it belongs to those who wait for the batch
                results = [error] * len(batch)
            for (_, future), result in zip(batch, results, strict=True):
                if future.done():
                    continue  # its caller was cancelled
                if isinstance(result, Exception):
                    future.set_exception(result)
                else:
                    future.set_result(result)


def _apply(batch: list[tuple[_Act, Any]], connection: sqlite3.Connection) -> list[Any]:
    """Carry out each; one that is refused does not spoil the others."""
    results: list[Any] = []
    for act, _ in batch:
        try:
            results.append(act(connection))
        except StoreError as error:
            results.append(error)
    return results
