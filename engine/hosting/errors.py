"""Why a run could not be hosted."""

from __future__ import annotations

from typing import TYPE_CHECKING

from engine.config.problems import ConfigError
from engine.store.errors import RunTaken, UnknownCheckpoint, UnknownRun

if TYPE_CHECKING:
    from engine.config.report import CheckReport


class HostingError(Exception):
    """One clear sentence: a run, a server or a process could not be started."""


class BadRequest(HostingError):
    """What was asked for cannot be, as it was asked for; nothing was started or changed."""


class ResumeRefused(BadRequest):
    """A run cannot go on, or not with what was asked for."""


class CheckFailed(HostingError):
    """The check before the run found errors; nothing was started. ``report`` has all of them."""

    def __init__(self, report: CheckReport) -> None:
        self.report = report
        errors = [str(finding) for finding in report.findings if finding.severity == "error"]
        super().__init__("\n".join(errors) or "the check failed")


def in_what_was_given(error: Exception) -> bool:
    """Whether an error lies in what was asked for, rather than in what it met: a command ends with status 2 then."""
    return isinstance(
        error, ConfigError | BadRequest | CheckFailed | UnknownRun | UnknownCheckpoint | RunTaken
    )
