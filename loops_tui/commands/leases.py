"""``leases``: which sandboxes may exist, and who holds them."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from loops_tui.commands.output import DONE, Output, columns, open_project_store
from loops_tui.lease_words import (
    attempt_place,
    coarse,
    cost,
    cost_words,
    counted,
    isolation_words,
    owner_words,
    pace_words,
    ttl_left,
    ttl_words,
)
from loops_tui.widgets.safe_text import safe

if TYPE_CHECKING:
    from engine.store.leases import LeaseView

_HEADINGS = ("NAME", "STATE", "PROVIDER", "ISOLATION", "RUN", "ATTEMPT", "AGE", "TTL LEFT", "OWNER", "COST")
_COST = len(_HEADINGS) - 1


def leases(ref: str | None, out: Output, *, everything: bool) -> int:
    """List the sandboxes that may exist; with ``everything`` also those that were released."""
    from engine.store.leases import OPEN_STATES
    from engine.store.store import Store

    here = Path.cwd()
    if ref is None and not Store.exists(here):
        out.value([])
        out.note(f"{here} has no runs yet, and so no sandboxes")
        return DONE
    with open_project_store() as store:
        store.reconcile()
        reader = store.reader()
        run_id = None if ref is None else reader.run(ref).run_id
        now = time.time()
        views = reader.lease_views(reader.leases(run_id, None if everything else OPEN_STATES), now)
        paces = [pace for pace in reader.paces() if pace.why]
    out.value([_row(view, now) for view in views])
    if out.as_json:
        return DONE
    if not views:
        out.line("no sandboxes" if everything else "no sandbox is held")
        return DONE
    shown = None if any(cost(view.lease, now) is not None for view in views) else _COST
    for line in columns([_HEADINGS[:shown], *(_cells(view, now)[:shown] for view in views)]):
        out.line(line)
    if paces:
        out.note(safe(pace_words(paces), 600))
    left = sum(view.left_behind for view in views)
    if left:
        whose = "" if run_id is None else f" {run_id}"
        out.note(f"{counted(left, 'sandbox')} held by nobody alive: `loops-tui cleanup{whose}` releases them")
    return DONE


def _cells(view: LeaseView, now: float) -> tuple[str, ...]:
    row = view.lease
    return (
        row.name,
        str(row.state),
        row.provider,
        isolation_words(row),
        row.run_id or "-",
        attempt_place(row),
        coarse(now - row.created_at),
        ttl_words(row, now),
        owner_words(view),
        cost_words(row, now),
    )


def _row(view: LeaseView, now: float) -> dict[str, Any]:
    row, holder = view.lease, view.holder
    return {
        "name": row.name,
        "state": str(row.state),
        "provider": row.provider,
        "isolation": row.isolation or None,
        "run": row.run_id,
        "run_name": view.run_name,
        "group": row.group_id,
        "attempt": row.attempt,
        "created_at": row.created_at,
        "released_at": row.released_at,
        "age_seconds": now - row.created_at,
        "ttl_seconds": row.ttl_seconds,
        "ttl_left_seconds": ttl_left(row, now),
        "owner": None
        if holder is None
        else {"pid": holder.pid, "hostname": holder.hostname, "kind": holder.kind},
        "owner_alive": holder is not None,
        "cost": cost(row, now),
        "tries": row.tries,
        "error": row.last_error,
    }
