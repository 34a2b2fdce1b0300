"""``check``, ``run`` and ``demo``: from a config to a finished run."""

from __future__ import annotations

import asyncio
import os
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from loops_tui.commands.follow import BackgroundFollower
from loops_tui.commands.output import BAD_INPUT, DONE, Output, UsageError
from loops_tui.commands.runs import lease_value, say_left
from loops_tui.lease_words import counted
from loops_tui.scores import score_value

if TYPE_CHECKING:
    from engine.config.report import CheckReport
    from engine.hosting.headless import HeadlessEnd
    from engine.store.leases import LeaseCounts
    from engine.store.rows import CheckRow, RunRow

DEMO_EXAMPLE = "in_process_direct"


def check(config: str, overrides: Sequence[str], out: Output) -> int:
    """Check a config and print the report."""
    from engine.config.loading import find_config
    from engine.config.problems import ConfigError
    from engine.config.report import CheckReport
    from engine.hosting.prepare import check_project, load_project, now_and_then

    here = Path.cwd()
    try:
        project = load_project(config, overrides, here)
    except ConfigError as error:
        path, report = find_config(config, here), CheckReport.of_refused(error.problems)
        _keep_refused(path, here, report, out)
        out.value({"config": str(path), **report.to_json()})
        raise
    for line in project.describe():  # at once: what follows may have to wait for a tokenizer or for Loops
        out.line(line)
    before = _check_before(here, project.path)
    try:
        report = asyncio.run(check_project(project, here, now_and_then(out.note)))
    finally:
        project.close()
    for line in report.describe():
        out.line(line)
    out.value({"config": str(project.path), **report.to_json()})
    if before is not None:
        _say_since(before, report, out)
    out.note(_verdict(report))
    return DONE if report.ok else BAD_INPUT


def _keep_refused(config: Path, here: Path, report: CheckReport, out: Output) -> None:
    """Store the report on a config that cannot be loaded, unless there is no such file: a name may be mistyped."""
    from engine.hosting.prepare import keep_report
    from engine.store.errors import StoreError

    if config.is_file():
        try:
            keep_report(config, os.environ, here, report)
        except StoreError as error:
            out.note(f"This report is not stored: {error}")


def _check_before(here: Path, config: Path) -> CheckRow | None:
    """The newest stored check of a config."""
    from engine.store.errors import StoreError
    from engine.store.store import Store

    try:
        if not Store.exists(here):
            return None
        with Store.open(here) as store:
            return next(iter(store.reader().checks(str(config), 1)), None)
    except StoreError:
        return None  # the check itself says what is wrong with the store


def _say_since(before: CheckRow, report: CheckReport, out: Output) -> None:
    from engine.checking.since import since

    stored = report.to_json()
    if changes := since(before, stored["findings"], stored["lines"]):
        out.note("Since the check before:")
        for change in changes:
            out.note(f"  {change}")


def _verdict(report: CheckReport) -> str:
    if not report.ok:
        return "The check found errors."
    if report.warnings:
        return f"The check found no error, and {counted(report.warnings, 'warning')}."
    return "The check found nothing wrong."


def check_failure(sentence: str) -> dict[str, Any]:
    """The JSON value of a check that could not be made."""
    nowhere = {"key": None, "line": None, "remedy": None, "file": None}
    findings = [{"severity": "error", "text": line, **nowhere} for line in sentence.splitlines()]
    return {"config": None, "ok": False, "findings": findings, "lines": [], "estimate": None}


def run(
    config: str | None,
    overrides: Sequence[str],
    out: Output,
    *,
    resume: str | None = None,
    project_dir: Path | None = None,
) -> int:
    """Run a config, or go on with the run ``resume``, here until it has ended."""
    from engine.hosting.headless import run_headless

    here = project_dir or Path.cwd()
    _say_begin(config, resume, out)
    follower = BackgroundFollower(here, after_log=_last_log(here, resume))

    def cut_off(end: HeadlessEnd) -> None:
        follower.stop()
        _tell_end(end, here, out, follower)

    try:
        end = asyncio.run(
            run_headless(
                config,
                overrides,
                here,
                told=out.note,
                claimed=follower.start,
                cut_off=cut_off,
                resume=resume,
            )
        )
    finally:
        follower.stop()
    return _tell_end(end, here, out, follower)


def _say_begin(config: str | None, resume: str | None, out: Output) -> None:
    """Raises UsageError unless exactly one of the two is named."""
    if (config is None) == (resume is None):
        raise UsageError("name either a config or, with --resume, a run that has ended")
    out.note(f"Checking {config} …" if resume is None else f"Resuming {resume} …")


def _last_log(project_dir: Path, resume: str | None) -> int:
    """Where the log of a run ends that is about to go on: what it said before is not told again."""
    from engine.store.errors import StoreError
    from engine.store.store import Store

    if resume is None or not Store.exists(project_dir):
        return 0
    try:
        with Store.open(project_dir) as store:
            reader = store.reader()
            rows = reader.last_log(reader.run(resume).run_id, 1)
    except StoreError:
        return 0  # whoever resumes it says what is wrong
    return rows[-1].log_id if rows else 0


def _tell_end(end: HeadlessEnd, here: Path, out: Output, follower: BackgroundFollower) -> int:
    if end.run is None:
        out.value(run_failure("it was told to end before the run had begun"))
        return end.status
    held = _held(here, end.run.run_id)
    out.value(run_value(end.run, held))
    _say_end(end.run, out, follower)
    say_left(end.run, held, out)
    return end.status


def _held(project_dir: Path, run_id: str) -> LeaseCounts | None:
    """The sandboxes that a run may still have, as the store says."""
    from engine.store.store import Store

    with Store.open(project_dir) as store:
        return store.reader().lease_counts().get(run_id)


def run_detached(
    config: str | None, overrides: Sequence[str], out: Output, *, resume: str | None = None
) -> int:
    """Start a run, or go on with one, in a process of its own and return once it has begun."""
    from engine.hosting.detach import detach_run
    from engine.store.store import Store

    here = Path.cwd()
    _say_begin(config, resume, out)
    run_id = detach_run(config, overrides, here, resume=resume)
    with Store.open(here) as store:
        row = store.reader().run(run_id)
        held = store.reader().lease_counts().get(run_id)
    out.value(run_value(row, held))
    out.line(f"Run {run_id} goes on in a process of its own.")
    out.note(f"Watch it with `loops-tui watch {run_id}`, end it with `loops-tui stop {run_id}`.")
    return DONE


def demo(directory: Path | None, out: Output, *, headless: bool) -> int:
    """A bundled example that trains, in a project directory of its own."""
    from loops_tui.terminal import is_terminal

    if not headless and not is_terminal():
        raise UsageError("this is no terminal; use `loops-tui demo --headless` here")
    project_dir = Path(os.path.expanduser(directory)).resolve() if directory is not None else demo_directory()
    config = prepare_demo(project_dir)
    out.note(f"The demo's project directory is {project_dir}")
    if headless:
        status = run(str(config), (), out, project_dir=project_dir)
    else:
        from loops_tui.commands.opening import chosen_options
        from loops_tui.session import open_app

        status = open_app(project_dir, start=config, overrides=(), options=chosen_options())
    out.note(f"Config: {config}")
    out.note(f"Runs, transcripts, metrics: {project_dir / 'runs'}")
    out.note(f"Open it again with `loops-tui {project_dir}`")
    return status


def demo_directory() -> Path:
    """Where the demo lives unless told otherwise: in the user's data directory."""
    import platformdirs

    return Path(platformdirs.user_data_dir("loops-tui", appauthor=False)) / "demo"


def prepare_demo(project_dir: Path) -> Path:
    """Copy the bundled example into the directory unless it is there; returns its config. Raises UsageError."""
    from engine.config.bundled import examples_dir

    target = project_dir / DEMO_EXAMPLE
    config = target / "train.toml"
    if config.is_file():
        return config
    bundled = examples_dir()
    if bundled is None:
        raise UsageError("this installation came without its examples; install loops-tui anew")
    try:
        project_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
        shutil.copytree(
            bundled / DEMO_EXAMPLE,
            target,
            dirs_exist_ok=True,
            ignore=shutil.ignore_patterns("__pycache__", "runs"),
        )
    except OSError as error:
        raise UsageError(
            f"the demo cannot be set up in {project_dir}: {error}; give another --dir"
        ) from error
    return config


def run_value(row: RunRow, held: LeaseCounts | None = None) -> dict[str, Any]:
    """What ``run --json`` prints of a run."""
    return {
        "run": row.run_id,
        "status": str(row.state),
        "steps": row.step,
        "run_dir": row.run_dir,
        "loops_run_id": row.loops_run_id,
        **score_value(row),
        "leases": lease_value(held),
        "error": row.error,
    }


def run_failure(sentence: str) -> dict[str, Any]:
    """The same for a run that never began."""
    return {
        "run": None,
        "status": "failed",
        "steps": 0,
        "run_dir": None,
        "loops_run_id": None,
        "reward": {"first": None, "last": None},
        "leases": lease_value(None),
        "error": sentence,
    }


def _say_end(row: RunRow, out: Output, follower: BackgroundFollower) -> None:
    for name, values in score_value(row).items():
        if row.step and values["first"] is not None and values["last"] is not None:
            line = f"{values['first']:.3f} first, {values['last']:.3f} last, over {row.step} step{'s' * (row.step != 1)}"
            out.note(f"{name.capitalize()}: {line}")
    out.note(f"Run directory: {row.run_dir}")
    if row.error is not None and not follower.has_said(row.error):
        out.error(row.error)
    if row.state == "failed" and row.error is None:
        out.error("the run failed")
