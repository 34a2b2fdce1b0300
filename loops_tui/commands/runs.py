"""``runs``, ``watch`` and the commands to a run's host: everything that only needs the store."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from loops_tui.commands.follow import follow_to_end
from loops_tui.commands.output import DONE, FAILED, Output, open_project_store

if TYPE_CHECKING:
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
    out.value([_value(row, hosts.get(row.host_id or "")) for row in rows])
    if not out.as_json:
        for line in _table(rows):
            out.line(line)
    return DONE


def _value(row: RunRow, host: HostRow | None) -> dict[str, Any]:
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
        "reward": {"first": row.reward_first, "last": row.reward_last},
        "unusable_groups": row.unusable_groups,
        "created_at": row.created_at,
        "started_at": row.started_at,
        "ended_at": row.ended_at,
        "config": row.config_path,
        "run_dir": row.run_dir,
        "loops_run_id": row.loops_run_id,
        "host": None
        if host is None or row.state.final
        else {"pid": host.pid, "hostname": host.hostname, "kind": host.kind},
        "error": row.error,
    }


def _table(rows: list[RunRow]) -> list[str]:
    if not rows:
        return ["no runs yet"]
    cells = [("RUN", "STATE", "STEP", "REWARD", "MODEL", "NAME")]
    for row in rows:
        reward = "-" if row.reward_last is None else f"{row.reward_last:.3f}"
        steps = f"{row.step}/{row.max_steps}"
        cells.append((row.run_id, str(row.state), steps, reward, row.base_model, row.name))
    widths = [max(len(line[column]) for line in cells) for column in range(len(cells[0]))]
    return [
        "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip()
        for line in cells
    ]


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
    out.line(f"Run {row.run_id} is {row.state}" + (f": {row.error}" if row.error else ""))
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
