"""May this process have as many files open as a run's attempts need at once?"""

from __future__ import annotations

import resource
from typing import TYPE_CHECKING

from engine.config.report import CheckReport, Severity
from engine.open_files import allowed
from engine.sandboxes.settings import SandboxSettings

if TYPE_CHECKING:
    from engine.project import Project

#: Open files of the engine's process. Each sandbox keeps one (the socket to its keeper, or its connection), each attempt that
#: waits for a reply one more (its connection to Loops); a sandbox being made has three for a moment. The rest is
#: what a run has open anyway: the store, its log, the server's and the broker's pipes, loaded libraries.
FILES_PER_SANDBOX = 1
FILES_PER_REQUEST = 1
FILES_BEING_MADE = 2
FILES_OF_A_RUN = 100


def check_open_files(project: Project, report: CheckReport) -> None:
    """Whether this process may open as much as the attempts need that run at once, wherever their sandboxes are."""
    limit, (_, most) = allowed(), resource.getrlimit(resource.RLIMIT_NOFILE)  # a run raises its limit
    attempts = project.rl.max_concurrent_rollouts
    table = project.rl.runtime.config.sandbox
    alive = 2 * attempts + project.rl.setups_ahead + project.rl.max_concurrent_grading
    sandboxes = alive if table is not None else 0
    creates = min(attempts, SandboxSettings().max_concurrent_creates) if sandboxes else 0
    needed = open_files_needed(attempts, sandboxes, creates)
    if needed <= limit:
        return
    certain = attempts * FILES_PER_REQUEST >= limit
    raised = (
        "" if most != resource.RLIM_INFINITY and needed > most else f"Raise it with ulimit -n {needed}, or "
    )
    remedy = f"{raised}lower training.max_concurrent_rollouts"
    report.add(
        Severity.ERROR if certain else Severity.WARNING,
        project.loaded.problem(
            "training.max_concurrent_rollouts",
            f"{attempts} attempts at once need about {needed} open files in this process, and the limit is {limit}",
            remedy[0].upper() + remedy[1:],
        ),
    )


def open_files_needed(attempts: int, sandboxes: int, creates: int) -> int:
    """Open files of the engine's process with so many attempts sampling at once (an estimate; see the constants).

    ``sandboxes``: of attempts that sample, wait to be graded (as many), are set up ahead or graded. ``creates``:
    sandboxes being made at once.
    """
    return (
        FILES_OF_A_RUN
        + attempts * FILES_PER_REQUEST
        + sandboxes * FILES_PER_SANDBOX
        + creates * FILES_BEING_MADE
    )
