"""``cleanup``: letting go of the sandboxes that nobody alive holds."""

from __future__ import annotations

import asyncio
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
    confirmed,
    person_there,
    to_stderr,
)
from loops_tui.lease_words import counted
from loops_tui.widgets.safe_text import safe

if TYPE_CHECKING:
    from engine.hosting.cleanup import CleanupEntry, CleanupReport
    from engine.store.store import Store

_CONFIG_SUFFIXES = frozenset({".toml", ".json"})


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
