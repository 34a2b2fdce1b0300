"""Leases in words, for the command line and the screen alike: plain text, no colours."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from engine.store.rows import HostRow, LeaseRow, LeaseState, PaceRow

if TYPE_CHECKING:
    from engine.store.leases import LeaseView  # with the store's codec, which the first paint can do without

NOT_KNOWN = "–"


def counted(number: int, noun: str) -> str:
    """``1 sandbox``, ``3 sandboxes``."""
    if number == 1:
        return f"1 {noun}"
    return f"{number} {noun}{'es' if noun.endswith('x') else 's'}"


def left_words(number: int) -> str:
    """What a run that has ended left, and where one lets go of it."""
    return f"it left {counted(number, 'sandbox')} behind: 4 shows {'it' if number == 1 else 'them'}"


def coarse(seconds: float | None) -> str:
    """A time that need not be exact, so that a list of them stands still: 12s, 3m, 2h 07m, 3d 04h."""
    if seconds is None:
        return NOT_KNOWN
    whole = max(0, int(seconds))
    if whole < 60:
        return f"{whole}s"
    minutes = whole // 60
    if minutes < 60:
        return f"{minutes}m"
    hours, minutes = divmod(minutes, 60)
    if hours < 48:
        return f"{hours}h {minutes:02d}m"
    days, hours = divmod(hours, 24)
    return f"{days}d {hours:02d}h"


def ttl_left(row: LeaseRow, now: float) -> float | None:
    """Seconds until the provider ends it by itself, 0 where that is past; None where it is not known, or is over."""
    if row.ttl_seconds is None or row.state is LeaseState.RELEASED:
        return None
    return max(0.0, (row.active_at or row.created_at) + row.ttl_seconds - now)


def ttl_words(row: LeaseRow, now: float) -> str:
    left = ttl_left(row, now)
    return "over" if left == 0 else coarse(left)


def cost(row: LeaseRow, now: float) -> float | None:
    """What it has cost by now, in the currency of [prices]; None where its price or its size is not known."""
    if row.price_per_gb_hour is None or row.memory_mb is None:
        return None
    start = row.active_at or row.created_at
    seconds = max(0.0, (row.released_at or now) - start)
    if row.ttl_seconds is not None:
        seconds = min(seconds, row.ttl_seconds)  # then its provider has ended it
    return row.memory_mb / 1024 * seconds / 3600 * row.price_per_gb_hour


def cost_words(row: LeaseRow, now: float) -> str:
    known = cost(row, now)
    return NOT_KNOWN if known is None else f"{known:.4f}"


def pace_words(paces: Sequence[PaceRow]) -> str:
    """The limits that hold now, of each provider that has some, and why they are lower than configured."""
    said: list[str] = []
    for pace in paces:
        why = f", lowered: {pace.why}" if pace.why else ""
        said.append(
            f"{pace.provider}: at most {pace.max_live} at once, {pace.creates_per_second:.3g} made a second{why}"
        )
    return " · ".join(said)


def attempt_place(row: LeaseRow) -> str:
    """``g12 #3``: group and attempt, as the run's screen counts them."""
    return NOT_KNOWN if row.group_id is None else f"g{row.group_id} #{row.attempt or 0}"


def isolation_words(row: LeaseRow) -> str:
    return row.isolation or NOT_KNOWN


def host_words(host: HostRow) -> str:
    return f"{host.kind} {host.pid}"


def owner_words(view: LeaseView) -> str:
    """Who holds it: the living host, or that there is none."""
    if view.holder is not None:
        return f"alive: {host_words(view.holder)}"
    return "dead" if view.open else NOT_KNOWN
