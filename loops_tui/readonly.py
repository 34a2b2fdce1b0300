"""Looking on without touching: what ``--readonly`` refuses, and a store that cannot be written.

:meth:`loops_tui.app.LoopsApp.may` is the one gate: an action named in :data:`CHANGES` is neither shown nor carried
out, whichever screen or palette asks for it. Behind the gate there is nothing to write with: a read-only app opens
the store without a writer and has no place for runs.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn, cast

from textual.actions import ActionParseResult, parse
from textual.widget import Widget

from engine.store.errors import StoreError
from loops_tui.loops_ports import ActFailed
from loops_tui.ports import CleanupFailed, HandOverFailed, NotChecked, StartRefused

if TYPE_CHECKING:
    from engine.hosting.cleanup import CleanupReport
    from engine.store.queries import StoreReader
    from engine.store.store import Store
    from loops_tui.app import LoopsApp

REFUSAL = "this app only looks on (--readonly): nothing is changed from here"

CHANGES = frozenset({
    # runs
    "run_config", "start", "pause", "resume", "resume_run", "stop", "abort", "save_checkpoint", "evaluate",
    "delete_record",
    # sandboxes
    "release", "clean_up",
    # checkpoints; what Loops says of them and of runs is stored
    "account", "refresh_list", "save_now", "deactivate", "deploy", "download", "try_it",
    # configs; a check stores its report
    "check", "save", "copy_example",
})  # fmt: skip
"""Names of the actions (``action_<name>``) that write to the store, to a file of the project or to a provider."""


def name_of(action: str | ActionParseResult) -> str:
    """``stop`` for ``screen.stop`` and for ``stop('now')``."""
    return (parse(action) if isinstance(action, str) else action)[1]


def may_act(widget: Widget) -> bool:
    """Whether a text may name keys that change something: not in an app that only looks on."""
    return not cast("LoopsApp", widget.app).options.readonly


class ReadOnly(StoreError):
    """Something got past the gate and met a store that cannot be written."""

    def __init__(self) -> None:
        super().__init__(REFUSAL)


class StoreToRead:
    """The face of ``engine.store.Store`` that an app uses, without a writer. Not one byte of the file changes."""

    def __init__(self, project_dir: Path) -> None:
        from engine.store.store import Store

        self.project_dir = project_dir.resolve()
        if not Store.exists(self.project_dir):
            raise StoreError(f"{project_dir} has no runs yet, and a read-only app makes no store")
        from engine.store.schema import require_current, store_path

        require_current(store_path(self.project_dir))
        self._readers: list[StoreReader] = []
        self._dead: set[str] = set()

    def reader(self) -> StoreReader:
        """A reader that shows runs whose host is gone as interrupted, which here nobody may write down."""
        from engine.store.schema import store_path

        reader = _truthful(store_path(self.project_dir))
        self._readers.append(reader)
        return reader

    def reconcile(self) -> list[str]:
        """Ids of the runs whose host has died since this was last asked."""
        from engine.store.rows import RunState

        reader = self._readers[0] if self._readers else self.reader()
        states = [state for state in RunState if not state.final]
        died = {run.run_id for run in reader.runs(states=states) if run.state.final}
        new, self._dead = sorted(died - self._dead), died
        return new

    def close(self) -> None:
        for reader in self._readers:
            reader.close()
        self._readers.clear()

    def __getattr__(self, name: str) -> Any:
        """Whatever else a store can do changes it."""
        if name.startswith("_"):
            raise AttributeError(name)

        def refuse(*_: object, **__: object) -> NoReturn:
            raise ReadOnly

        return refuse


def open_to_read(project_dir: Path) -> Store:
    """A read-only app's store. Raises StoreError where the project has none."""
    return cast("Store", StoreToRead(project_dir))


def _truthful(path: Path) -> StoreReader:
    from engine.store.hosts import is_alive
    from engine.store.queries import StoreReader
    from engine.store.rows import RunRow, RunState

    class TruthfulReader(StoreReader):
        """Runs as they are, where the store has not been told yet."""

        def _rows[RowT](self, row_type: type[RowT], sql: str, values: Sequence[object]) -> list[RowT]:
            rows = super()._rows(row_type, sql, values)
            return [self._judged(row) if isinstance(row, RunRow) else row for row in rows]

        def run(self, ref: str) -> RunRow:
            return self._judged(super().run(ref))

        def _judged[RowT](self, row: RowT) -> RowT:
            if not isinstance(row, RunRow) or row.state.final or row.host_id is None:
                return row
            host = self.host(row.host_id)
            if host is not None and is_alive(host, time.time()):
                return row
            heard = row.started_at if host is None else host.heartbeat_at
            return replace(
                row, state=RunState.INTERRUPTED, ended_at=heard, error="its host ended without a word"
            )

    return TruthfulReader(path)


class NoHosting:
    """No runs live in a read-only app, and nothing is released from it."""

    can_hand_over = False

    @property
    def loops(self) -> NoReturn:
        raise ActFailed(REFUSAL)

    def start(self, config: Path, overrides: Sequence[str]) -> str:
        raise StartRefused(REFUSAL)

    def resume(self, run_id: str, overrides: Sequence[str] = ()) -> str:
        raise StartRefused(REFUSAL)

    def check(self, config: Path, text: str | None) -> None:
        raise NotChecked(REFUSAL)

    def clean_up(self, names: Sequence[str], *, force: bool) -> CleanupReport:
        raise CleanupFailed(REFUSAL)

    def live(self) -> Sequence[str]:
        return ()

    def hand_over(self, run_id: str, seconds: float) -> None:
        raise HandOverFailed(REFUSAL)

    def stop(self) -> None:
        """There is nothing to stop."""

    def abort(self) -> None:
        """There is nothing to abort."""

    def wait(self, seconds: float) -> bool:
        return True

    def close(self) -> None:
        """There is nothing to close."""
