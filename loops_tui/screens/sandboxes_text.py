"""What the Sandboxes screen says about a lease: pure functions from rows to lines."""

from __future__ import annotations

from collections.abc import Sequence

from engine.store.leases import LeaseView
from engine.store.rows import LeaseRow, LeaseState, PaceRow
from loops_tui.lease_words import (
    attempt_place,
    coarse,
    cost,
    cost_words,
    counted,
    isolation_words,
    pace_words,
    ttl_left,
    ttl_words,
)
from loops_tui.theme import Tone
from loops_tui.widgets.safe_text import safe
from loops_tui.widgets.spans import Line, Span, plain
from loops_tui.widgets.virtual_table import Cells, Column
from loops_tui.widgets.wrapping import wrap

COLUMNS = (
    Column("mark", "", 1),
    Column("name", "sandbox", 27, flex=1, most=36),
    Column("state", "state", 11),
    Column("isolation", "isolation", 10, flex=1, most=14, drop=5),
    Column("run", "run", 14, flex=2, most=28, drop=3),
    Column("attempt", "attempt", 8, drop=4),
    Column("age", "age", 5, right=True),
    Column("ttl", "ttl left", 8, right=True, drop=2),
    Column("owner", "owner", 11, flex=1, most=18, drop=1),
)

AGE_STEP = 5.0  # seconds: a list of ages that all tick costs a slow connection more than it tells

LEASE_STATES: dict[LeaseState, tuple[str, str, Tone]] = {
    LeaseState.INTENDED: ("◌", "intended", Tone.INFO),
    LeaseState.ACTIVE: ("●", "active", Tone.GOOD),
    LeaseState.RELEASING: ("◒", "releasing", Tone.WARN),
    LeaseState.RELEASED: ("✓", "released", Tone.DIM),
    LeaseState.LOST: ("×", "lost", Tone.BAD),
}


def lease_state(view: LeaseView) -> Line:
    glyph, word, tone = LEASE_STATES[view.lease.state]
    if view.left_behind and tone is Tone.GOOD:
        tone = Tone.WARN  # nothing is good about a sandbox that nobody uses
    return ((f"{glyph} {word}", tone),)


def owner(view: LeaseView, own_pid: int) -> Line:
    if view.holder is not None:
        words = "this app" if view.holder.pid == own_pid else f"pid {view.holder.pid}"
        return plain(safe(words, 40), Tone.PLAIN)
    return plain("dead", Tone.BAD) if view.open else plain("–", Tone.DIM)


def _unisolated(view: LeaseView) -> bool:
    return view.open and view.lease.isolation == "none"


def _mark(view: LeaseView, marked: bool) -> Line:
    """The column of isolation is the first to give way; that there is none is seen at any width."""
    if marked:
        return plain("+", Tone.ACCENT)
    return plain("!", Tone.WARN) if _unisolated(view) else plain(" ")


def unisolated_words(views: Sequence[LeaseView]) -> str:
    """What the mark means, under the table that has any."""
    number = sum(_unisolated(view) for view in views)
    return f"! isolated by nothing ({number}): commands run as you" if number else ""


def lease_cells(view: LeaseView, now: float, own_pid: int, marked: bool) -> Cells:
    row = view.lease
    quiet = Tone.PLAIN if view.open else Tone.DIM
    soon = (left := ttl_left(row, now)) is not None and left < 60
    age = (row.released_at or now) - row.created_at
    return (
        _mark(view, marked),
        plain(safe(row.name, 60), Tone.STRONG if view.open else Tone.DIM),
        lease_state(view),
        plain(safe(isolation_words(row), 20), Tone.WARN if row.isolation == "none" else quiet),
        plain(safe(view.run_name or row.run_id or "–", 60), quiet),
        plain(attempt_place(row), quiet),
        plain(coarse(age - age % AGE_STEP), quiet),
        plain(ttl_words(row, now), Tone.WARN if soon and view.open else Tone.DIM),
        owner(view, own_pid),
    )


def cost_spans(row: LeaseRow, now: float) -> Line:
    """What it has cost, where a price is known."""
    if cost(row, now) is None:
        return ()
    return (("   cost ", Tone.DIM), (cost_words(row, now), Tone.PLAIN))


def limits_words(views: Sequence[LeaseView], paces: Sequence[PaceRow]) -> str:
    """The limits of the providers that the list is about, and of those that are lower than configured."""
    shown = {view.lease.provider for view in views}
    return safe(pace_words([pace for pace in paces if pace.why or pace.provider in shown]), 200)


def lease_details(view: LeaseView | None, now: float, own_pid: int, width: int) -> list[Line]:
    """The sandbox under the cursor: whose it is, how it holds, how long it lives, and what went wrong."""
    if view is None:
        return []
    row, holder = view.lease, view.holder
    gap: Span = ("   ", Tone.PLAIN)
    memory = "" if row.memory_mb is None else f", {row.memory_mb} MiB"
    place = "" if row.group_id is None else f"   group {row.group_id}, attempt {row.attempt or 0}"
    who: Line
    if holder is not None:
        here = "this app" if holder.pid == own_pid else f"process {holder.pid} on {safe(holder.hostname, 40)}"
        who = plain(f"held by {here} ({safe(holder.kind, 20)})")
    elif view.open:
        given_up = row.state is LeaseState.LOST
        who = plain(
            "its process could not release it and has given it up" if given_up else "its process is gone",
            Tone.BAD,
        )
    else:
        who = plain(f"released after {counted(max(1, row.tries), 'try')}".replace("trys", "tries"), Tone.DIM)
    lines: list[Line] = [
        (*lease_state(view), gap, (safe(row.name, 60), Tone.STRONG)),
        (
            ("run ", Tone.DIM),
            (safe(f"{view.run_name or '–'}  {row.run_id or ''}", 90), Tone.PLAIN),
            (safe(place, 60), Tone.PLAIN),
        ),
        (
            ("where ", Tone.DIM),
            (f"{safe(row.provider, 20)} {safe(isolation_words(row), 20)}{memory}", Tone.PLAIN),
            gap,
            ("age ", Tone.DIM),
            (coarse((row.released_at or now) - row.created_at), Tone.PLAIN),
            gap,
            ("ttl left ", Tone.DIM),
            (ttl_words(row, now), Tone.PLAIN),
            (f" of {coarse(row.ttl_seconds)}" if row.ttl_seconds is not None else "", Tone.DIM),
            *cost_spans(row, now),
        ),
        who,
    ]
    if row.last_error:
        tries = f" (try {row.tries})" if row.tries else ""
        text = safe(f"{row.last_error}{tries}", 600)
        tone = Tone.DIM if row.state is LeaseState.RELEASED else Tone.BAD
        lines.extend(((piece, tone),) for piece in list(wrap(f"last error: {text}", max(20, width)))[:3])
    return lines


def orphan_lines(views: Sequence[LeaseView], width: int, *, acts: bool = True) -> list[Line]:
    """Why some are apart, and what to do about them. ``acts``: whether keys may change anything."""
    number = len(views)
    if not number:
        return []
    one = number == 1
    cost = "take room" if all(view.lease.provider == "local" for view in views) else "run and bill"
    text = (
        f"{counted(number, 'sandbox')} left behind: nobody alive holds {'it' if one else 'them'}, and "
        f"{'it may' if one else 'they may'} still {cost}."
    ) + (" c cleans up." if acts else "")
    pieces = list(wrap(text, max(20, width - 4)))
    return [
        ((" ! " if place == 0 else "   ", Tone.BAD), (piece, Tone.BAD)) for place, piece in enumerate(pieces)
    ]


def nothing_held(with_released: bool) -> Sequence[Line]:
    """For a project without sandboxes."""
    if with_released:
        return (
            plain("No sandbox was ever made in this project.", Tone.STRONG),
            (),
            plain("A run makes them where its config has [runtime.config.sandbox].", Tone.DIM),
        )
    return (
        plain("Nothing is held.", Tone.STRONG),
        (),
        plain("No sandbox of this project runs, and none was left behind. Sandboxes", Tone.DIM),
        plain("appear here as soon as a run asks for them.", Tone.DIM),
        (),
        (("a ", Tone.ACCENT), ("shows those that were released", Tone.DIM)),
    )
