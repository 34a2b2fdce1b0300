"""Releasing sandboxes from the app: in the engine's thread, told in the banner while it lasts and in a toast after it."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import TYPE_CHECKING

from loops_tui.lease_words import counted
from loops_tui.ports import CleanupFailed
from loops_tui.widgets.safe_text import safe

if TYPE_CHECKING:
    from engine.hosting.cleanup import CleanupReport
    from loops_tui.app import LoopsApp

_NAMED = 3  # failures told by name; the rows have all of them
_TOLD_SECONDS = 12.0


class Cleaning:
    """One cleanup at a time."""

    def __init__(self, app: LoopsApp) -> None:
        self._app = app
        self.under_way = False

    def begin(self, names: Sequence[str], *, force: bool = False) -> None:
        """Start; a second one while the first lasts is not begun. ``names`` must not be empty."""
        if self.under_way or not names:
            return
        self.under_way = True
        notice = f"releasing {counted(len(names), 'sandbox')} …"
        if self._app.notice is None:
            self._app.notice = notice
        self._app.spawn(self._clean_up(tuple(names), force, notice))

    async def _clean_up(self, names: tuple[str, ...], force: bool, notice: str) -> None:
        app = self._app
        try:
            report = await asyncio.to_thread(lambda: app.hosting.clean_up(names, force=force))
        except CleanupFailed as error:
            app.notify(safe(str(error), 600), title="Not released", severity="error", markup=False)
        else:
            app.notify(
                said(report),
                title="Released" if report.ok else "Not all released",
                severity="information" if report.ok else "error",
                timeout=_TOLD_SECONDS,
                markup=False,
            )
        finally:
            self.under_way = False
            if app.notice == notice:  # another part of the app may have something more urgent to say
                app.notice = None
            app.screen.refresh_bindings()
            app.poke()


def said(report: CleanupReport) -> str:
    """What a cleanup did, with counts; failures with their reasons."""
    if not (report.released or report.already_gone or report.skipped_live or report.failed):
        return "Nothing was left to release: its run has let go of it meanwhile."
    parts = [f"{counted(len(report.released), 'sandbox')} released"]
    if report.already_gone:
        parts.append(f"{len(report.already_gone)} gone already")
    if report.skipped_live:
        parts.append(f"{len(report.skipped_live)} left alone: a living process holds them")
    if report.failed:
        parts.append(f"{len(report.failed)} failed")
    lines = [", ".join(parts)]
    for entry in report.failed[:_NAMED]:
        lines.append(safe(f"{entry.name or entry.provider}: {entry.detail}", 300))
    if len(report.failed) > _NAMED:
        lines.append(f"and {len(report.failed) - _NAMED} more; the list says why")
    return "\n".join(lines)
