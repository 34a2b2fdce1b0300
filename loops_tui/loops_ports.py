"""What the application asks of Loops beside a run: ending it, its checkpoints' evaluation, files and deployment.

Every call blocks, some of them for minutes, and runs in a thread; ``told`` is called from there. All raise
:class:`ActFailed` with a sentence for a person.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Literal, Protocol

if TYPE_CHECKING:
    from engine.hosting.account import Account
    from engine.hosting.checkpoints import Deployed, Downloaded, PlannedDeployment
    from engine.hosting.trying import Said, TrialAttempt, TrialSampling, WeightsAsked
    from engine.loops.deploying import DeployChoice
    from engine.store.rows import CheckpointRow, EvalRow, RunRow

type Told = Callable[[str], None]
type Part = Literal["sampler", "trainer"]


class OpenTrial(Protocol):
    """Weights that can be talked to and set to a task, until they are closed. One call at a time."""

    @property
    def name(self) -> str:
        """Whose weights these are, in words."""
        ...

    def use(self, sampling: TrialSampling) -> None:
        """Sample so from the next reply on."""
        ...

    def forget(self) -> None:
        """Begin a new conversation."""
        ...

    def say(self, text: str) -> Said:
        """Say something and wait for the reply; where it fails, the conversation is as before."""
        ...

    def attempt(self, task: int, told: Told) -> TrialAttempt:
        """Let the weights attempt task number ``task`` (from 0) of the config's tasks."""
        ...

    def close(self) -> None:
        """Release the sampler, and wait until it is."""
        ...


class OnLoops(Protocol):
    """Acts on Loops, carried out on the engine's loop."""

    def deactivate(self, ref: str, told: Told) -> list[str]:
        """End every Loops run of a run, or one of the account by its id, and watch until each is INACTIVE; their ids."""
        ...

    def account(self) -> Account:
        """What the account holds on Loops, this project's or not; what it says of our runs is stored."""
        ...

    def refresh(self, run_id: str) -> list[CheckpointRow]:
        """Ask which of a run's checkpoints there still are and store it; all of them, the newest first."""
        ...

    def evaluate(self, run_id: str, checkpoint: str | None, told: Told) -> EvalRow:
        """Evaluate a checkpoint, or the base model (None), on the run's held-out tasks."""
        ...

    def download(self, run_id: str, checkpoint: str, part: Part, directory: Path, told: Told) -> Downloaded:
        """Bring a checkpoint's files into a directory; the same call again goes on where one was cut short."""
        ...

    def remembered_choice(self, run: RunRow) -> DeployChoice:
        """What was chosen for the last deployment of this project."""
        ...

    def plan_deployment(self, run_id: str, checkpoint: str, choice: DeployChoice) -> PlannedDeployment:
        """The request that would be sent, and the machines to choose from. Makes nothing."""
        ...

    def deploy(self, run_id: str, checkpoint: str, choice: DeployChoice) -> Deployed:
        """Have a checkpoint served. Bills; never to be repeated by itself."""
        ...

    def open_trial(
        self,
        asked: WeightsAsked,
        *,
        system: str | None,
        with_sandboxes: bool,
        told: Told,
    ) -> OpenTrial:
        """Start a sampler of a checkpoint's or of a base model's weights. It bills until ``close``."""
        ...


class ActFailed(Exception):
    """It was not done, or nobody knows; the message is for a person."""
