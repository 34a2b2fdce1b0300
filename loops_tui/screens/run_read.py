"""What the Run screen reads, kept on the reading thread so that only what is new is read again."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from engine.store.rows import (
    AttemptRow,
    AttemptState,
    CommandRow,
    GroupRow,
    HostRow,
    LogRow,
    RunRow,
    StepRow,
)

if TYPE_CHECKING:
    from engine.store.queries import StoreReader

GROUPS = 400  # newest groups shown
LOG_LINES = 500


@dataclass(frozen=True, slots=True)
class RunView:
    """A run as its screen shows it."""

    run: RunRow
    host: HostRow | None
    steps: Sequence[StepRow]
    groups: Sequence[GroupRow]
    group_id: int | None
    attempts: Sequence[AttemptRow]
    counts: Mapping[AttemptState, int]
    log: Sequence[LogRow]
    command: CommandRow | None
    now: float
    sandboxes: int = 0  # that may exist right now


class RunWatch:
    """Reads one run again and again. All calls come from the reading thread."""

    def __init__(self, run_id: str) -> None:
        self.run_id = run_id
        self._steps: list[StepRow] = []
        self._log: list[LogRow] | None = None

    def read(self, reader: StoreReader, group_id: int | None) -> RunView:
        """The run now; ``group_id`` None means its newest group."""
        run = reader.run(self.run_id)
        groups = reader.groups(self.run_id, GROUPS)
        if group_id is None and groups:
            group_id = groups[0].group_id
        commands = reader.commands(self.run_id, 1)
        return RunView(
            run=run,
            host=reader.host(run.host_id),
            steps=self._read_steps(reader),
            groups=groups,
            group_id=group_id,
            attempts=[] if group_id is None else reader.attempts(self.run_id, group_id),
            counts={} if run.state.final else reader.counts(self.run_id),
            log=self._read_log(reader),
            command=commands[0] if commands else None,
            now=time.time(),
            sandboxes=reader.live_lease_counts().get(self.run_id, 0),
        )

    def _read_steps(self, reader: StoreReader) -> Sequence[StepRow]:
        # Finished steps do not change; the one in hand is read anew.
        while self._steps and self._steps[-1].state != "done":
            self._steps.pop()
        last = self._steps[-1].step if self._steps else 0
        self._steps.extend(reader.steps(self.run_id, last))
        return tuple(self._steps)

    def _read_log(self, reader: StoreReader) -> Sequence[LogRow]:
        if self._log is None:
            self._log = reader.last_log(self.run_id, LOG_LINES)
        else:
            last = self._log[-1].log_id if self._log else 0
            self._log.extend(reader.log(self.run_id, last, LOG_LINES))
            del self._log[:-LOG_LINES]
        return tuple(self._log)
