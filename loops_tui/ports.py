"""What the application needs of a place where runs live, and no more.

The screens know only this protocol; :mod:`loops_tui.link` fills it from ``engine.hosting``. Every call may block and
therefore runs in a thread, never on the screen's loop.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from engine.hosting.cleanup import CleanupReport
    from loops_tui.loops_ports import OnLoops


class Hosting(Protocol):
    """Runs that live in this process, in the engine's own thread and loop."""

    can_hand_over: bool  # whether a hosted run can move into a process of its own

    @property
    def loops(self) -> OnLoops:
        """What is asked of Loops beside a run."""
        ...

    def start(self, config: Path, overrides: Sequence[str]) -> str:
        """Start a run and return its id. Raises :class:`StartRefused` with a sentence for a person."""
        ...

    def resume(self, run_id: str, overrides: Sequence[str] = ()) -> str:
        """Go on with a run that has ended, from its last checkpoint; returns its id. Raises :class:`StartRefused`."""
        ...

    def check(self, config: Path, text: str | None) -> None:
        """Check a config, or the ``text`` that the editor holds of it; the report goes to the store.

        Blocks for seconds. Raises :class:`NotChecked` with a sentence.
        """
        ...

    def clean_up(self, names: Sequence[str], *, force: bool) -> CleanupReport:
        """Release these sandboxes, or with no names all that no living process holds, and say what became of each.

        ``force``: even where a living process holds them. Raises :class:`CleanupFailed` with a sentence.
        """
        ...

    def live(self) -> Sequence[str]:
        """Ids of the runs that are still going here. Never blocks."""
        ...

    def hand_over(self, run_id: str, seconds: float) -> None:
        """Move a run into a process of its own: saved after the step in hand, ended here, resumed there.

        Blocks, at most for about ``seconds``. Raises :class:`HandOverFailed` with a sentence; ``live`` then says
        whether the run still goes on here.
        """
        ...

    def stop(self) -> None:
        """Ask every hosted run to end after its step."""
        ...

    def abort(self) -> None:
        """Ask every hosted run to end now, releasing what it holds."""
        ...

    def wait(self, seconds: float) -> bool:
        """Wait for the hosted runs to end; True when none is left."""
        ...

    def close(self) -> None:
        """End the engine's loop. Bounded."""
        ...


class CleanupFailed(Exception):
    """Nothing could be asked or released; the message is for a person."""


class NotChecked(Exception):
    """A check could not be carried out; the message is for a person."""


class HandOverFailed(Exception):
    """A run could not move into a process of its own; the message is for a person."""


class StartRefused(Exception):
    """A run could not be started. The message is for a person; ``details`` are further lines."""

    def __init__(self, message: str, details: Sequence[str] = ()) -> None:
        super().__init__(message)
        self.details = tuple(details)
