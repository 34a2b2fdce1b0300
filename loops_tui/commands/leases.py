"""``leases`` and ``cleanup``: which sandboxes may exist, and letting go of those that nobody holds."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from loops_tui.commands.output import (
    DONE,
    FAILED,
    STOPPED,
    Output,
    UsageError,
    columns,
    confirmed,
    open_project_store,
    person_there,
    to_stderr,
)
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
    from engine.hosting.cleanup import CleanupEntry, CleanupReport
    from engine.store.leases import LeaseView
    from engine.store.store import Store

_HEADINGS = ("NAME", "STATE", "PROVIDER", "ISOLATION", "RUN", "ATTEMPT", "AGE", "TTL LEFT", "OWNER", "COST")
_COST = len(_HEADINGS) - 1
_CONFIG_SUFFIXES = frozenset({".toml", ".json"})


# -- leases --------------------------------------------------------------------------------------------------------


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


# -- cleanup -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Asked:
    """What the arguments mean: these runs (None: everything of the project), and how to say so."""

    runs: Collection[str] | None
    words: str


def cleanup(
    target: str | None, state_dir: Path | None, out: Output, *, dry_run: bool, assume_yes: bool
) -> int:
    """Release what nobody alive holds. 0: nothing is left, 1: something could not be released."""
    from engine.hosting.cleanup import release_left_behind

    here = Path.cwd()
    asked = _meant(target, state_dir, here)
    names: Sequence[str] = ()
    if _must_ask(out, dry_run=dry_run, assume_yes=assume_yes):
        plan = asyncio.run(release_left_behind(here, runs=asked.runs, dry_run=True))
        names = [entry.name for entry in plan.released]
        if names and not _agreed(plan, asked.words):
            out.note("nothing was released")
            return STOPPED
    report = asyncio.run(release_left_behind(here, runs=asked.runs, names=names, dry_run=dry_run))
    out.value(report_value(report))
    for line in report_lines(report, asked.words):
        out.line(line)
    return DONE if report.ok else FAILED


def _meant(target: str | None, state_dir: Path | None, here: Path) -> _Asked:
    from engine.store.store import Store

    if target is None and state_dir is None:
        return _Asked(None, "this project")
    if not Store.exists(here):
        raise UsageError(
            f"{here} has no runs (no .loops/loops.db); go to the directory that the run was started in"
        )
    with Store.open(here) as store:
        wanted = None if target is None else _runs_of_target(store, target, here)
        if state_dir is None:
            assert wanted is not None
            return wanted
        from engine.hosting.cleanup import run_of_directory

        run = run_of_directory(store, state_dir, here)
        if wanted is not None and run.run_id not in (wanted.runs or ()):
            raise UsageError(
                f"{state_dir} belongs to run {run.run_id} ({run.name}), which is none of {target}"
            )
        return _Asked([run.run_id], f"run {run.run_id}")


def _runs_of_target(store: Store, target: str, here: Path) -> _Asked:
    """A path that looks like a config means that config's runs, everything else one run."""
    if Path(target).suffix in _CONFIG_SUFFIXES:
        from engine.hosting.cleanup import runs_meant

        rows = runs_meant(store, target, here)
        return _Asked([row.run_id for row in rows], f"the runs of {target}")
    run = store.reader().run(target)
    return _Asked([run.run_id], f"run {run.run_id}")


def _must_ask(out: Output, *, dry_run: bool, assume_yes: bool) -> bool:
    """A person at a terminal is shown what would go first; a script has said what it wants."""
    return not (dry_run or assume_yes) and person_there(out)


def _agreed(plan: CleanupReport, words: str) -> bool:
    to_stderr(f"{counted(len(plan.released), 'sandbox')} of {safe(words, 300)} held by nobody alive:")
    for line in _names(plan.released):
        to_stderr(safe(line))
    return confirmed("Release them?")


def report_value(report: CleanupReport) -> dict[str, Any]:
    """The JSON value of a cleanup."""

    def rows(entries: Sequence[CleanupEntry]) -> list[dict[str, Any]]:
        return [
            {
                "name": entry.name,
                "provider": entry.provider,
                "run": entry.run_id,
                "detail": entry.detail or None,
            }
            for entry in entries
        ]

    return {
        "ok": report.ok,
        "dry_run": report.dry_run,
        "released": rows(report.released),
        "already_gone": rows(report.already_gone),
        "failed": rows(report.failed),
        "held": rows(report.skipped_live),
        "not_in_journal": [entry.name for entry in report.unknown_found],
    }


def report_lines(report: CleanupReport, words: str) -> list[str]:
    """What a cleanup did, with names and counts."""
    lines: list[str] = []
    done = "Would release" if report.dry_run else "Released"
    for head, entries, with_detail in (
        (done, report.released, False),
        ("Gone already:", report.already_gone, False),
        ("Left alone:", report.skipped_live, True),
        ("Could not release", [entry for entry in report.failed if entry.name], True),
    ):
        if entries:
            lines.append(f"{head} {counted(len(entries), 'sandbox')}")
            lines.extend(_names(entries, with_detail=with_detail))
    for entry in report.failed:
        if not entry.name:
            lines.append(f"Could not look for sandboxes at {entry.provider}: {entry.detail}")
    if not (report.released or report.already_gone or report.failed):
        rest = ": what there is, living processes hold" if report.skipped_live else ""
        lines.insert(0, f"Nothing of {words} was left behind{rest}.")
    return lines


def _names(entries: Sequence[CleanupEntry], *, with_detail: bool = False) -> list[str]:
    lines: list[str] = []
    for entry in sorted(entries, key=lambda entry: (entry.run_id or "", entry.name)):
        whose = f"  run {entry.run_id}" if entry.run_id else ""
        why = f"  {entry.detail}" if with_detail and entry.detail else ""
        lines.append(f"  {entry.name or entry.provider}{whose}{why}")
    return lines
