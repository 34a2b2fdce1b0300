"""The engine behind the app: the project's store, and the runs that live in this process.

Imports wait until something is asked for: the first paint must not.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import CancelledError
from pathlib import Path
from typing import TYPE_CHECKING

from loops_tui.loops_link import LoopsFromHere
from loops_tui.loops_ports import OnLoops
from loops_tui.ports import CleanupFailed, HandOverFailed, Hosting, NotChecked, StartRefused

if TYPE_CHECKING:
    from engine.hosting.cleanup import CleanupReport
    from engine.hosting.runs_here import RunsHere
    from engine.store.store import Store


def open_store(project_dir: Path) -> Store:
    """The project's store; made where there is none. Raises StoreError."""
    from engine.store.store import Store

    return Store.open(project_dir)


def make_hosting(project_dir: Path) -> Hosting:
    """A place for runs in this process; the engine is loaded when the first one starts."""
    return HereLazily(project_dir)


class HereLazily:
    """``RunsHere``, made when it is needed, its refusals turned into sentences."""

    can_hand_over = True

    def __init__(self, project_dir: Path) -> None:
        self._project_dir = project_dir
        self._runs: RunsHere | None = None
        self.loops: OnLoops = LoopsFromHere(project_dir, self._made)

    def start(self, config: Path, overrides: Sequence[str]) -> str:
        """Start a run and return its id; blocks for seconds. Raises StartRefused."""
        return self._begin(lambda runs: runs.start(config, overrides))

    def resume(self, run_id: str, overrides: Sequence[str] = ()) -> str:
        """Go on with a run that has ended and return its id; blocks for seconds. Raises StartRefused."""
        return self._begin(lambda runs: runs.resume(run_id, tuple(overrides)))

    def _begin(self, act: Callable[[RunsHere], str]) -> str:
        from engine.hosting.errors import HostingError
        from engine.project import ConfigError
        from engine.store.errors import StoreError

        try:
            return act(self._made())
        except (ConfigError, HostingError, StoreError) as error:
            first, *rest = str(error).splitlines() or ["no reason was given"]
            raise StartRefused(first, rest) from error
        except TimeoutError as error:
            raise StartRefused("the run did not begin in time; .loops/app.log may say more") from error

    def check(self, config: Path, text: str | None) -> None:
        """Check a config, or its text as edited, and store the report; blocks for seconds. Raises NotChecked."""
        from engine.hosting.errors import HostingError
        from engine.store.errors import StoreError

        try:
            self._made().check(config, (), text)
        except (HostingError, StoreError) as error:
            raise NotChecked(str(error)) from error
        except CancelledError as error:
            raise NotChecked("the engine is ending") from error
        except TimeoutError as error:
            raise NotChecked("the check did not end in time; .loops/app.log may say more") from error

    def clean_up(self, names: Sequence[str], *, force: bool) -> CleanupReport:
        """Release sandboxes; blocks until that is confirmed. Raises CleanupFailed."""
        from engine.hosting.errors import HostingError
        from engine.store.errors import StoreError

        try:
            return self._made().clean_up(names, force=force)
        except (HostingError, StoreError) as error:
            raise CleanupFailed(str(error)) from error
        except CancelledError as error:
            raise CleanupFailed("the engine is ending; what is left stays on the list") from error
        except TimeoutError as error:
            raise CleanupFailed("releasing takes too long; what is left stays on this list") from error

    def _made(self) -> RunsHere:
        from engine.importing import uncollected

        with uncollected():
            from engine.hosting.runs_here import RunsHere

        if self._runs is None:
            self._runs = RunsHere(self._project_dir)
        return self._runs

    def hand_over(self, run_id: str, seconds: float) -> None:
        """Move a run into a process of its own. Blocks, bounded. Raises HandOverFailed."""
        from engine.hosting.errors import HostingError
        from engine.store.errors import StoreError

        try:
            self._made().hand_over(run_id, seconds)
        except (HostingError, StoreError) as error:
            raise HandOverFailed(str(error)) from error

    def live(self) -> Sequence[str]:
        return () if self._runs is None else self._runs.live()

    def stop(self) -> None:
        if self._runs is not None:
            self._runs.stop()

    def abort(self) -> None:
        if self._runs is not None:
            self._runs.abort()

    def wait(self, seconds: float) -> bool:
        return True if self._runs is None else self._runs.wait(seconds)

    def close(self) -> None:
        if self._runs is not None:
            self._runs.close()
