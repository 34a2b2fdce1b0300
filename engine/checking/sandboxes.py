"""Can the sandboxes that a config asks for be made here, how well do they hold, and is there room for all of them?"""

from __future__ import annotations

from typing import TYPE_CHECKING

from engine.config.durations import parse_duration
from engine.config.report import CheckReport, Severity
from engine.sandboxes.contract import Isolation, ProviderReport
from engine.sandboxes.errors import SandboxError
from engine.sandboxes.for_run import derived_ttl, open_provider
from engine.sandboxes.settings import SandboxSettings

if TYPE_CHECKING:
    from engine.config.sections import SandboxTable
    from engine.project import Project

_TABLE = "runtime.config.sandbox"
_ACCESS = "Check the network, and LOOPS_TUI_BLAXEL_URL or [providers.blaxel] base_url where it is set"


async def check_sandboxes(project: Project, report: CheckReport, *, apart: bool = False) -> None:
    """Nothing to do where the config has no sandboxes. A local sandbox is tried for real, and is gone afterwards; Blaxel
    is asked whether it takes the credentials, which costs nothing. ``apart``: attempts are graded in a second sandbox."""
    table = project.rl.runtime.config.sandbox
    if table is None:
        return
    _check_ttl(project, table, report)
    try:
        settings = SandboxSettings.from_table(table.model_dump())
        provider = open_provider(
            project.working_dir,
            settings,
            blaxel=project.rl.providers.blaxel,
            environ=project.loaded.environ,
        )
    except SandboxError as error:
        report.add(Severity.ERROR, project.loaded.problem(_TABLE, str(error)))
        return
    try:
        found = await provider.probe()
    except OSError as error:  # the directory of local sandboxes cannot be made
        text, remedy = f"sandboxes cannot be tried: {error}", "See to it that .loops can be written"
        report.add(Severity.ERROR, project.loaded.problem(_TABLE, text, remedy))
        return
    finally:
        await provider.aclose()
    remote = found.isolation == Isolation.REMOTE
    for problem in found.problems:
        key = "provider" if remote else "isolation"
        # Sentences about credentials and about isolation name their remedy themselves.
        remedy = _ACCESS if remote and "BL_API_KEY" not in problem else None
        report.add(Severity.ERROR, project.loaded.problem(f"{_TABLE}.{key}", problem, remedy))
    if not found.usable:
        return
    report.lines.append(_line(project, table, found))
    if remote:
        for warning in found.warnings:
            report.add(Severity.WARNING, project.loaded.problem(f"{_TABLE}.provider", warning))
        _check_room(project, report, apart=apart)
    else:
        _warn_of_isolation(project, found, report)


def _check_ttl(project: Project, table: SandboxTable, report: CheckReport) -> None:
    if table.ttl is None:
        return
    needed = project.rl.attempt_seconds
    if parse_duration(table.ttl) < needed:
        report.add(
            Severity.ERROR,
            project.loaded.problem(
                f"{_TABLE}.ttl",
                f"a sandbox's ttl of {table.ttl} is shorter than one attempt may take "
                f"({needed:g} s: provisioning, setup, agent and grading together), so sandboxes in use would be ended",
                f'Write at least ttl = "{_minutes(needed)}", or leave it out: it is derived then',
            ),
        )


def _minutes(seconds: float) -> str:
    """A duration, in whole minutes, that is at least so long."""
    return f"{int(-(-seconds // 60))}m"


def _check_room(project: Project, report: CheckReport, *, apart: bool) -> None:
    attempts, limits = project.rl.max_concurrent_rollouts, project.rl.providers.blaxel
    ahead = project.rl.training.setups_ahead or 0
    wanted = attempts * 2 if apart else attempts
    if apart and limits.max_live < 2:
        severity, key = Severity.ERROR, "providers.blaxel.max_live"
        text = (
            "an attempt has a second sandbox while it is graded, and this project may have one Blaxel sandbox"
        )
        remedy = "Set [providers.blaxel] max_live to 2 or more"
    elif wanted > limits.max_live:
        severity, key = Severity.WARNING, "providers.blaxel.max_live"
        each = ", each with two sandboxes while it is graded" if apart else ""
        text = (
            f"{attempts} attempts may run at once{each}, and this project may have {limits.max_live} Blaxel sandboxes: "
            "the others wait for room"
        )
        remedy = (
            f"Raise [providers.blaxel] max_live to {wanted} if your account allows it, or lower "
            "training.max_concurrent_rollouts"
        )
    elif wanted + ahead > limits.max_live:
        severity, key = Severity.WARNING, "training.setups_ahead"
        text = (
            f"{attempts} attempts and {ahead} set up ahead may want a sandbox, and this project may have "
            f"{limits.max_live} Blaxel sandboxes: those set up ahead would take room from those that run"
        )
        remedy = f"Set it to {limits.max_live - wanted} or less, or leave it out"
    else:
        return
    report.add(severity, project.loaded.problem(key, text, remedy))


def _line(project: Project, table: SandboxTable, found: ProviderReport) -> str:
    sizes = f"memory {table.memory_mb} MiB"
    sizes += f" a process, disk {table.disk_mb} MiB" if found.isolation != Isolation.REMOTE else ""
    ttl = table.ttl or f"{derived_ttl(project.rl.sandbox_seconds):g}s (derived from the attempt's deadlines)"
    line = f"Sandboxes: {found.provider}, isolation {found.isolation}; {sizes}; ttl {ttl}"
    if found.isolation == Isolation.REMOTE:
        limits = project.rl.providers.blaxel
        line += f"; at most {limits.max_live} at once, {limits.creates_per_second:g} made a second"
    return line


def _warn_of_isolation(project: Project, found: ProviderReport, report: CheckReport) -> None:
    remedy = None
    if found.isolation == Isolation.NONE:
        remedy = 'Use isolation = "auto" for anything but trusted code'
    elif found.isolation == Isolation.LANDLOCK:
        remedy = "Install bubblewrap (bwrap) for namespaces and a root of their own"
    loud = "NOTHING ISOLATES THE SANDBOXES: " if found.isolation == Isolation.NONE else ""
    for warning in found.warnings:
        text = f"{loud}{warning}"
        report.add(Severity.WARNING, project.loaded.problem(f"{_TABLE}.isolation", text, remedy))
        loud, remedy = "", None  # said once
