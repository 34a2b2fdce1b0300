"""``deactivate``: no Loops run of a run bills any more; and ``runs --account``: what there is to deactivate."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from loops_tui.commands.output import DONE, FAILED, STOPPED, Output, columns, confirmed, person_there
from loops_tui.lease_words import coarse

if TYPE_CHECKING:
    from engine.hosting.account import Account, AccountRun, AccountSampler
    from engine.hosting.loops_runs import Deactivated


def deactivate(ref: str, out: Output, *, assume_yes: bool) -> int:
    """Print the Loops run's id and watch until it is INACTIVE. 0: it is; 1: it may still bill."""
    from engine.hosting.loops_runs import deactivate as end_loops_runs

    here = Path.cwd()
    if not _agreed(ref, here, out, assume_yes=assume_yes):
        out.note("nothing was deactivated")
        return STOPPED
    ended = asyncio.run(end_loops_runs(here, ref, out.note))
    out.value({"run": ended[0].run_id, "loops_runs": [_value(one) for one in ended]})
    for one in ended:
        if one.inactive:
            out.line(one.loops_run_id)
            out.note(f"{one.loops_run_id} is INACTIVE: it no longer bills; its checkpoints remain available")
        else:
            out.error(one.error or "unknown error")
    return DONE if all(one.inactive for one in ended) else FAILED


def _agreed(ref: str, here: Path, out: Output, *, assume_yes: bool) -> bool:
    """A person at a terminal is asked before a run that is still going ends; a script has said what it wants."""
    from engine.store.errors import UnknownRun
    from engine.store.store import Store

    if assume_yes or not person_there(out) or not Store.exists(here):
        return True
    with Store.open(here) as store:
        store.reconcile()
        try:
            row = store.reader().run(ref)
        except UnknownRun:
            return True  # told of where it is looked up
    if row.state.final:
        return True
    return confirmed(
        f"Run {row.run_id} is {row.state} (step {row.step} of {row.max_steps}). It ends now, with its last finished "
        "step saved. Go on?"
    )


def _value(one: Deactivated) -> dict[str, Any]:
    return {
        "loops_run_id": one.loops_run_id,
        "state": "INACTIVE" if one.inactive else "unknown",
        "was_active": one.was_active,
        "since": one.since,
        "until": one.until,
        "error": one.error,
    }


def account(out: Output) -> int:
    """List every Loops run of the account, this project's or not."""
    from engine.hosting.account import account_runs

    found = asyncio.run(account_runs(Path.cwd()))
    runs = [_account_value("run", run, run.loops.owner) for run in found.runs]
    out.value(runs + [_account_value("sampler", one, None) for one in found.samplers])
    if not out.as_json:
        for line in _account_table(found):
            out.line(line)
    for problem in found.problems:
        out.error(problem)
    strangers = [run for run in found.runs if run.loops.active and run.run_id is None]
    for one in found.samplers:
        out.note(
            f"The sampler {one.loops.id} of {one.loops.base_model} is up for nobody's run: "
            f"`loops-tui deactivate {one.loops.id}` ends it"
        )
    if strangers:
        out.note(f"`loops-tui deactivate {strangers[0].loops.id}` ends a run that this project does not know")
    return FAILED if found.problems else DONE


def _account_value(kind: str, one: AccountRun | AccountSampler, owner: str | None) -> dict[str, Any]:
    return {
        "kind": kind,
        "id": one.loops.id,
        "state": one.loops.state,
        "created_at": one.loops.created_at,
        "model": one.loops.base_model,
        "name": one.name,
        "owner": owner,
        "where": one.where,
        "run": one.run_id,
    }


def _account_table(found: Account) -> list[str]:
    if not found.runs:
        return ["no Loops runs"]
    now = time.time()
    rows = [["LOOPS RUN", "STATE", "AGE", "MODEL", "NAME", "WHERE", "RUN"]]
    rows += [
        [
            run.loops.id,
            run.loops.state,
            coarse(now - run.loops.created_at),
            run.loops.base_model,
            run.loops.name,
            run.where,
            run.run_id or "-",
        ]
        for run in found.runs
    ]
    return columns(rows)
