"""What a host hands to a recipe, and what the recipe hands back.

The host (``engine.hosting``) claims the run, starts or finds the Loops server, opens the store, and calls
``train(project, handle)``. The recipe reports every change through the handle and returns an :class:`Outcome`, or
raises :class:`RunFailed` with one sentence for a person.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from engine.store.rows import RunState

if TYPE_CHECKING:
    from engine.recipes.control import RunControl
    from engine.store.recorder import RunRecorder
    from engine.store.rows import CheckpointRow
    from engine.store.store import Store


class RunFailed(Exception):
    """The run cannot go on. The message is one clear sentence; details belong in the log."""


@dataclass(frozen=True, slots=True)
class LoopsEndpoint:
    """Where Loops is. ``url`` None means the SDK's own default (Baseten).

    ``api_key`` never reaches a log or the store; it is left out of ``repr``.
    """

    scope: str  # "local" | "serverless" | "dedicated" | "auto" (Loops chooses)
    url: str | None
    api_key: str | None

    def __repr__(self) -> str:
        return f"LoopsEndpoint(scope={self.scope!r}, url={self.url!r})"

    @property
    def sdk_scope(self) -> str:
        """The scope in the SDK's words."""
        return {"serverless": "serverless", "dedicated": "deployment"}.get(self.scope, "default")


@dataclass(slots=True)
class RunHandle:
    """Everything a recipe needs of its host. The recorder keeps the run directory up to date as well."""

    run_id: str
    recorder: RunRecorder
    control: RunControl
    endpoint: LoopsEndpoint
    store: Store | None = None  # for the lease journal; a run with sandboxes needs it
    host_id: str | None = None
    resume_from: CheckpointRow | None = None  # go on after this checkpoint's step instead of beginning
    start_weights: str | None = None  # [model] from_checkpoint as Loops' address: weights to begin with
    info: dict[str, Any] = field(default_factory=dict)  # the run's row's, as ``note`` keeps it

    def note(self, **info: Any) -> None:
        """Add to what the run's row says about it (``RunRow.info``); other entries stay."""
        self.info.update(info)
        self.recorder.run(info=self.info)

    def log(self, level: str, source: str, text: str) -> None:
        """One line into the store's log and run.log; ``level`` is debug, info, warning or error."""
        self.recorder.log(level, source, text)


@dataclass(slots=True)
class Outcome:
    """How a run ended. ``state`` is DONE, STOPPED or ABORTED; failures are raised, not returned."""

    state: RunState
    steps: int
    reward_first: float | None = None
    reward_last: float | None = None
    loops_run_id: str | None = None
