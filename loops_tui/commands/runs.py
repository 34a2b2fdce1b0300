"""``runs``, ``watch`` and the commands to a run's host: everything that only needs the store."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from loops_tui.commands.follow import follow_to_end
from loops_tui.commands.output import DONE, FAILED, Output, columns, open_project_store
from loops_tui.lease_words import coarse, counted
from loops_tui.scores import score_value, score_words

if TYPE_CHECKING:
    from engine.store.leases import LeaseCounts
    from engine.store.queries import StoreReader
    from engine.store.rows import HostRow, RunRow

_LAST_LINES = 20


def runs(out: Output, *, limit: int) -> int:
    """List the runs of the working directory, live ones first."""
    from engine.store.store import Store

    here = Path.cwd()
    if not Store.exists(here):
        out.value([])
        out.note(f"{here} has no runs yet; start one with `loops-tui run CONFIG`")
        return DONE
    with Store.open(here) as store:
        store.reconcile()
        reader = store.reader()
        rows = reader.runs(limit)
        hosts = reader.live_hosts(time.time())
        held = reader.lease_counts()
    out.value([_value(row, hosts.get(row.host_id or ""), held.get(row.run_id)) for row in rows])
    if not out.as_json:
        for line in _table(rows, held):
            out.line(line)
    for row in rows:
        say_left(row, held.get(row.run_id), out)
        _say_bills(row, out)
    return DONE


def _say_bills(row: RunRow, out: Output) -> None:
    """That a run which has ended still has its Loops run up."""
    from engine.store.history_queries import still_bills

    if row.state.final and still_bills(row):
        since = "" if row.loops_since is None else f" for {coarse(time.time() - row.loops_since)}"
        out.note(
            f"The Loops run of {row.run_id} has been up{since} and may bill: `loops-tui deactivate {row.run_id}` ends it"
        )


def lease_value(counts: LeaseCounts | None) -> dict[str, int]:
    """A run's sandboxes that may exist, for JSON."""
    return {"live": 0, "lost": 0} if counts is None else {"live": counts.live, "lost": counts.lost}


def say_left(row: RunRow, counts: LeaseCounts | None, out: Output) -> None:
    """What a run that has ended left behind, and how to let go of it."""
    if counts is None or not row.state.final:
        return
    number = counts.live + counts.lost
    out.note(
        f"Run {row.run_id} ({row.state}) left {counted(number, 'sandbox')} behind: "
        f"`loops-tui cleanup {row.run_id}` releases {'it' if number == 1 else 'them'}"
    )


def _value(row: RunRow, host: HostRow | None, counts: LeaseCounts | None) -> dict[str, Any]:
    return {
        "run": row.run_id,
        "name": row.name,
        "recipe": row.recipe,
        "status": str(row.state),
        "phase": row.phase,
        "steps": row.step,
        "max_steps": row.max_steps,
        "model": row.base_model,
        "scope": row.scope,
        **score_value(row),
        "unusable_groups": row.unusable_groups,
        "created_at": row.created_at,
        "started_at": row.started_at,
        "ended_at": row.ended_at,
        "seconds": row.seconds(time.time()),
        "config": row.config_path,
        "run_dir": row.run_dir,
        "loops_run_id": row.loops_run_id,
        "loops_state": row.loops_state,
        "loops_since": row.loops_since,
        "loops_until": row.loops_until,
        "host": None
        if host is None or row.state.final
        else {"pid": host.pid, "hostname": host.hostname, "kind": host.kind},
        "leases": lease_value(counts),
        "error": row.error,
    }


def _table(rows: list[RunRow], held: dict[str | None, LeaseCounts]) -> list[str]:
    if not rows:
        return ["no runs yet"]
    with_sandboxes = any(row.run_id in held for row in rows)  # a column of zeros tells nothing
    sandboxes = ["SANDBOXES"] if with_sandboxes else []
    cells = [["RUN", "STATE", "STEP", "REWARD", *sandboxes, "ELAPSED", "MODEL", "NAME"]]
    for row in rows:
        reward = score_words(row) or "-"
        steps = f"{row.step}/{row.max_steps}"
        counts = held.get(row.run_id)
        number = [str(counts.live + counts.lost if counts else 0)] if with_sandboxes else []
        taken = row.seconds(time.time())
        time_taken = "-" if taken is None else coarse(taken)
        cells.append(
            [row.run_id, str(row.state), steps, reward, *number, time_taken, row.base_model, row.name]
        )
    return columns(cells)


def watch(ref: str | None, out: Output) -> int:
    """Follow a run until it ends; the newest live run, or else the newest, where none is named."""
    from engine.hosting.signals import exit_status

    with open_project_store() as store:
        store.reconcile()
        reader: StoreReader = store.reader()
        if ref is None:
            newest = reader.runs(1)
            if not newest:
                out.line("no runs yet")
                return DONE
            row = newest[0]
        else:
            row = reader.run(ref)
        out.line(
            f"Run {row.run_id} ({row.name}, {row.base_model}): {row.state}, step {row.step}/{row.max_steps}"
        )
        last = reader.last_log(row.run_id, _LAST_LINES)
        row = follow_to_end(store, row.run_id, last[0].log_id - 1 if last else 0)
        held = reader.lease_counts().get(row.run_id)
    out.line(f"Run {row.run_id} is {row.state}" + (f": {row.error}" if row.error else ""))
    say_left(row, held, out)
    return exit_status(row.state)


def ask(ref: str, kind: str, out: Output) -> int:
    """Ask a run's host for something and print its answer."""
    from engine.hosting.requests import request
    from engine.store.rows import CommandState

    with open_project_store() as store:
        row = request(store, ref, kind)
    out.value({"run": row.run_id, "command": row.kind, "state": str(row.state), "answer": row.answer})
    if row.state is CommandState.DONE:
        out.line(f"{row.run_id}: {row.answer}")
        return DONE
    if row.state in (CommandState.QUEUED, CommandState.ACCEPTED):
        out.error(
            f"the host of {row.run_id} has not answered yet; the command stands and will be carried out"
        )
    else:
        out.error(f"{row.run_id}: {kind} was {row.state}: {row.answer}")
    return FAILED
