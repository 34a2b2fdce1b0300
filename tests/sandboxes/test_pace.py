"""A provider's limits: one row for all processes of a project, lowered on refusals, raised again, never overrun."""

from __future__ import annotations

import asyncio
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from engine.sandboxes import (
    PermanentError,
    ProviderReport,
    ProviderSandbox,
    QuotaError,
    RateLimited,
    Released,
    ReleaseOutcome,
    Sandbox,
    SandboxSettings,
    SandboxSpec,
)
from engine.sandboxes.leases import LeaseKeeper
from engine.sandboxes.local.sandbox import LocalSandbox
from engine.store import Store
from engine.store.leases import LeaseJournal
from engine.store.pace import GROW_SECONDS, LOWEST_RATE, PaceLimits, admit, slow_down
from engine.store.rows import LeaseRow, LeaseState
from engine.store.schema import open_database

PLENTY = PaceLimits(100, 1000.0)
NOW = 1_800_000_000.0


@pytest.fixture
def connection(tmp_path: Path) -> Iterator[sqlite3.Connection]:
    opened = open_database(tmp_path / "pace.db")
    yield opened
    opened.close()


def add(connection: sqlite3.Connection, number: int, state: str = "active", at: float = NOW) -> None:
    for one in range(number):
        connection.execute(
            "INSERT INTO leases (name, provider, isolation, state, created_at, ttl_seconds, tries) "
            "VALUES (?, 'far', '', ?, ?, 600, 0)",
            (f"ltui-{state}-{one}", state, at),
        )


def row(connection: sqlite3.Connection) -> sqlite3.Row:
    return connection.execute("SELECT * FROM pace WHERE provider = 'far'").fetchone()


def test_a_burst_and_then_the_rate(connection: sqlite3.Connection) -> None:
    limits = PaceLimits(1000, 10.0)
    admitted = sum(admit(connection, "far", limits, NOW).admitted for _ in range(100))
    assert admitted == 11
    wait = admit(connection, "far", limits, NOW).wait
    assert 0 < wait <= 0.1 + 1e-6
    assert admit(connection, "far", limits, NOW + wait + 1e-6).admitted


def test_no_more_than_may_live(connection: sqlite3.Connection) -> None:
    add(connection, 2)
    add(connection, 1, "intended")
    add(connection, 3, "released")
    add(connection, 1, "lost", at=NOW - 10_000)  # its ttl is long over
    answer = admit(connection, "far", PaceLimits(3, 1000.0), NOW)
    assert (answer.admitted, answer.full, answer.live, answer.limit) == (False, True, 3, 3)
    assert admit(connection, "far", PaceLimits(4, 1000.0), NOW).admitted


def test_a_quota_lowers_the_number_to_what_there_is_and_it_grows_again(
    connection: sqlite3.Connection,
) -> None:
    add(connection, 8)
    add(connection, 3, "intended")
    for refused in range(3):  # creations that meet the same wall
        slow_down(connection, "far", PLENTY, "quota", why="full", retry_after=None, now=NOW)
        connection.execute(
            "UPDATE leases SET state = 'released' WHERE name = ?", (f"ltui-intended-{refused}",)
        )
    assert (row(connection)["max_live"], row(connection)["why"]) == (8, "full")
    assert admit(connection, "far", PLENTY, NOW + 5).full
    seen: list[int] = []
    now = NOW
    for _ in range(30):
        now += GROW_SECONDS + 1
        admit(connection, "far", PLENTY, now)
        seen.append(row(connection)["max_live"])
    assert seen[:4] == [10, 12, 15, 18]
    assert (seen[-1], row(connection)["why"]) == (100, None)


def test_a_rate_limit_halves_the_rate_and_its_time_is_kept(connection: sqlite3.Connection) -> None:
    admit(connection, "far", PLENTY, NOW)
    slow_down(connection, "far", PLENTY, "rate", why="too many", retry_after=30.0, now=NOW)
    assert row(connection)["creates_per_second"] == 500.0
    assert admit(connection, "far", PLENTY, NOW + 10).wait == pytest.approx(20.0)
    assert admit(connection, "far", PLENTY, NOW + 30.01).admitted
    for later in range(20):
        slow_down(
            connection, "far", PLENTY, "rate", why="too many", retry_after=0.0, now=NOW + 31 + 2 * later
        )
    assert row(connection)["creates_per_second"] == LOWEST_RATE


def test_the_config_of_another_process_does_not_raise_what_was_lowered(
    connection: sqlite3.Connection,
) -> None:
    add(connection, 3)
    slow_down(connection, "far", PLENTY, "quota", why="full", retry_after=None, now=NOW)
    assert not admit(connection, "far", PaceLimits(1000, 1000.0), NOW + 3).admitted


CHILD = """
import asyncio, sys, time
from pathlib import Path
from engine.store import Store
from engine.store.leases import LeaseJournal
from engine.store.pace import PaceLimits
from engine.store.rows import LeaseRow, LeaseState
async def main():
    with Store.open(Path(sys.argv[1])) as store:
        journal = LeaseJournal(store)
        print("ready", flush=True); sys.stdin.readline()
        rows = [LeaseRow(f"ltui-{sys.argv[2]}-{n}", "far", "", None, None, None, None, LeaseState.INTENDED, time.time())
                for n in range(20)]
        answers = await asyncio.gather(*(journal.admit(row, PaceLimits(13, 1000.0)) for row in rows))
        print(sum(answer.admitted for answer in answers))
asyncio.run(main())
"""


def test_processes_share_the_room(tmp_path: Path) -> None:
    children = [
        subprocess.Popen(
            [sys.executable, "-c", CHILD, str(tmp_path), name],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for name in ("one", "two")
    ]
    for child in children:
        assert child.stdout is not None
        assert child.stdout.readline() == "ready\n"
    answers = []
    for child in children:
        assert child.stdin is not None
        child.stdin.write("\n")
        child.stdin.flush()
    for child in children:
        answers.append(int(child.communicate(timeout=60)[0]))
    assert sum(answers) == 13
    with Store.open(tmp_path) as store:
        assert len(store.reader().leases()) == 13
        (pace,) = store.reader().paces()
        assert (pace.provider, pace.max_live, pace.why) == ("far", 13, None)


class FarProvider:
    """Creates nothing, up to a quota of its own; refuses as told."""

    name = "far"

    def __init__(self, quota: int = 1000) -> None:
        self.quota, self.live, self.peak, self.refusals = quota, set[str](), 0, 0
        self.refuse: list[Exception] = []

    async def probe(self) -> ProviderReport:
        return ProviderReport(self.name, "remote")

    async def create(self, spec: SandboxSpec) -> Sandbox:
        await asyncio.sleep(0)
        if self.refuse:
            self.refusals += 1
            raise self.refuse.pop()
        if len(self.live) >= self.quota:
            self.refusals += 1
            raise QuotaError("the account's quota is used up")
        self.live.add(spec.name)
        self.peak = max(self.peak, len(self.live))
        made = object.__new__(LocalSandbox)
        made.name, made.isolation = spec.name, "remote"
        return made

    async def release(self, name: str, *, settle_seconds: float = 0.0) -> Released:
        self.live.discard(name)
        return Released(name, ReleaseOutcome.RELEASED)

    async def list(self, labels: object = None) -> list[ProviderSandbox]:
        return []

    async def aclose(self) -> None:
        pass


def keeper_of(
    store: Store,
    provider: FarProvider,
    limits: PaceLimits,
    *,
    leave_room: bool = False,
    tell: Callable[[str], None] = lambda _: None,
) -> LeaseKeeper:
    settings = SandboxSettings(ttl_seconds=600, max_concurrent_creates=100)
    return LeaseKeeper(
        store, provider, settings, project="p", limits=limits, leave_room=leave_room, price=0.25, tell=tell
    )


async def graded_apart(keeper: LeaseKeeper, attempt: int, meet: asyncio.Barrier | None = None) -> bool:
    """An attempt that wants a second sandbox before it gives back its first; whether it got it."""
    own = await keeper.acquire(group_id=0, attempt=attempt)
    try:
        if meet is not None:
            await meet.wait()
        await keeper.release(await keeper.acquire(group_id=0, attempt=attempt))
    except PermanentError:
        return False
    finally:
        await keeper.release(own)
    return True


async def test_those_who_find_no_room_wait_for_it(tmp_path: Path) -> None:
    with Store.open(tmp_path) as store:
        provider = FarProvider()
        keeper = keeper_of(store, provider, PaceLimits(3, 1000.0))

        async def use() -> None:
            leased = await keeper.acquire(seconds=5.0)
            await asyncio.sleep(0)
            await keeper.release(leased)

        async with asyncio.timeout(60):
            await asyncio.gather(*(use() for _ in range(20)))
        assert provider.peak == 3
        assert {lease.state for lease in store.reader().leases()} == {LeaseState.RELEASED}
        assert {lease.price_per_gb_hour for lease in store.reader().leases()} == {0.25}


async def test_an_accounts_quota_is_found_and_heeded(tmp_path: Path) -> None:
    """More are wanted than the account may have: the limit comes down to what it allows, nobody fails."""
    with Store.open(tmp_path) as store:
        provider = FarProvider(quota=4)
        keeper = keeper_of(store, provider, PLENTY)

        async def use() -> None:
            leased = await keeper.acquire()
            await asyncio.sleep(0.01)
            await keeper.release(leased)

        async with asyncio.timeout(90):
            await asyncio.gather(*(use() for _ in range(16)))
        assert provider.peak == 4
        (pace,) = store.reader().paces()
        assert pace.max_live < 16
        assert pace.why == "the account's quota is used up"
        assert not provider.live


async def test_a_rate_limit_delays_the_next_one(tmp_path: Path) -> None:
    with Store.open(tmp_path) as store:
        provider = FarProvider()
        provider.refuse = [RateLimited("too many requests", retry_after=0.5)]
        keeper = keeper_of(store, provider, PLENTY)
        began = time.time()
        leased = await keeper.acquire()
        assert time.time() - began >= 0.5  # what was asked for, not how quick we are
        (pace,) = store.reader().paces()
        assert (pace.creates_per_second, pace.why) == (500.0, "too many requests")
        await keeper.release(leased)


async def test_waiting_for_room_can_be_cancelled(tmp_path: Path) -> None:
    with Store.open(tmp_path) as store:
        provider = FarProvider()
        keeper = keeper_of(store, provider, PaceLimits(1, 1000.0))
        leased = await keeper.acquire()
        waiting = asyncio.create_task(keeper.acquire())
        journal = LeaseJournal(store)
        probe = LeaseRow("ltui-probe", "far", "", None, None, None, None, LeaseState.INTENDED, time.time())
        assert not (await journal.admit(probe, PaceLimits(1, 1000.0))).admitted
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        await keeper.release(leased)
        assert await keeper.release_all() == 0
        assert provider.peak == 1


@pytest.mark.parametrize("limit", [2, 3, 7])
async def test_attempts_that_want_a_second_one_never_hold_all_the_room(tmp_path: Path, limit: int) -> None:
    with Store.open(tmp_path) as store:
        provider = FarProvider()
        keeper = keeper_of(store, provider, PaceLimits(limit, 1000.0), leave_room=True)
        async with asyncio.timeout(90):
            got = await asyncio.gather(*(graded_apart(keeper, number) for number in range(12)))
        assert got == [True] * 12
        assert provider.peak == limit
        assert not provider.live


async def test_where_all_hold_one_and_want_another_one_makes_room(tmp_path: Path) -> None:
    """Nobody knew that they would: one of them is refused, which makes room for the others, and nobody is later."""
    with Store.open(tmp_path) as store:
        provider = FarProvider()
        keeper, meet = keeper_of(store, provider, PaceLimits(3, 1000.0)), asyncio.Barrier(3)
        async with asyncio.timeout(90):
            got = await asyncio.gather(*(graded_apart(keeper, number, meet) for number in range(3)))
            assert sorted(got) == [False, True, True]
            assert all(await asyncio.gather(*(graded_apart(keeper, number) for number in range(3, 12))))
        assert not provider.live


async def test_an_account_with_room_for_one_refuses_the_second(tmp_path: Path) -> None:
    """The account allows less than the config: whoever wants a second one beside its own is told so, and ends."""
    with Store.open(tmp_path) as store:
        provider = FarProvider(quota=1)
        keeper = keeper_of(store, provider, PLENTY, leave_room=True)
        async with asyncio.timeout(90):
            assert not await graded_apart(keeper, 0)
        assert not provider.live


async def test_another_process_may_make_room(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its sandboxes are waited for, but not for ever."""
    with Store.open(tmp_path) as store, Store.open(tmp_path) as elsewhere:
        provider, limits, told = FarProvider(), PaceLimits(2, 1000.0), asyncio.Event()
        other = keeper_of(elsewhere, provider, limits)
        async with asyncio.timeout(90):
            theirs = await other.acquire(group_id=1, attempt=0)
            keeper = keeper_of(store, provider, limits, tell=lambda _: told.set())
            waiting = asyncio.create_task(graded_apart(keeper, 0))
            await told.wait()
            await other.release(theirs)
            assert await waiting
            theirs = await other.acquire(group_id=1, attempt=0)
            monkeypatch.setattr("engine.sandboxes.pace.STUCK_SECONDS", 0.0)
            assert not await graded_apart(keeper_of(store, provider, limits), 0)
            await other.release(theirs)
        assert not provider.live


def test_the_last_place_is_kept_and_more_where_the_limit_is_being_tried(
    connection: sqlite3.Connection,
) -> None:
    limits = PaceLimits(8, 1000.0)
    add(connection, 7)
    assert admit(connection, "far", limits, NOW, leave_room=True).full
    assert admit(connection, "far", limits, NOW).admitted
    connection.execute("DELETE FROM leases")
    add(connection, 9)
    slow_down(connection, "far", limits, "quota", why="full", retry_after=0.0, now=NOW)
    connection.execute("DELETE FROM leases")
    add(connection, 5)
    assert admit(connection, "far", limits, NOW + 2, leave_room=True).limit == 5
    assert admit(connection, "far", limits, NOW + 2).limit == 8
