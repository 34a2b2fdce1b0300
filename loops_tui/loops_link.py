"""Acts on Loops, filled from ``engine.hosting``; nothing of it is imported before the first one."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from concurrent.futures import CancelledError
from pathlib import Path
from typing import TYPE_CHECKING, Any

from loops_tui.loops_ports import ActFailed, OpenTrial, Part, Told

if TYPE_CHECKING:
    from engine.hosting.account import Account
    from engine.hosting.checkpoints import Deployed, Downloaded, DownloadProgress, PlannedDeployment
    from engine.hosting.runs_here import RunsHere
    from engine.hosting.trying import WeightsAsked
    from engine.loops.deploying import DeployChoice
    from engine.store.rows import CheckpointRow, EvalRow, RunRow


class LoopsFromHere:
    """``OnLoops`` of one project directory. ``made`` gives the place whose engine's loop carries the acts out."""

    def __init__(self, project_dir: Path, made: Callable[[], RunsHere]) -> None:
        self._project_dir = project_dir
        self._made = made

    def deactivate(self, ref: str, told: Told) -> list[str]:
        from engine.hosting.loops_runs import deactivate

        ended = self._carry_out(lambda: deactivate(self._project_dir, ref, told))
        failed = [one for one in ended if not one.inactive]
        if failed:
            raise ActFailed(failed[0].error or f"{failed[0].loops_run_id} may still bill")
        return [one.loops_run_id for one in ended]

    def account(self) -> Account:
        from engine.hosting.account import account_runs

        return self._carry_out(lambda: account_runs(self._project_dir))

    def refresh(self, run_id: str) -> list[CheckpointRow]:
        from engine.hosting.checkpoints import refresh_checkpoints

        return self._carry_out(lambda: refresh_checkpoints(self._project_dir, run_id))

    def evaluate(self, run_id: str, checkpoint: str | None, told: Told) -> EvalRow:
        from engine.hosting.evaluate import evaluate

        base = checkpoint is None
        return self._carry_out(
            lambda: evaluate(
                self._project_dir, run_id, checkpoint=checkpoint, base=base, told=told, progress=told
            )
        )

    def download(self, run_id: str, checkpoint: str, part: Part, directory: Path, told: Told) -> Downloaded:
        from engine.hosting.checkpoints import download_checkpoint
        from loops_tui.checkpoint_words import size_words

        def progress(now: DownloadProgress) -> None:
            told(
                f"{now.file}: {size_words(now.bytes_done)} of {size_words(now.bytes)}, "
                f"{now.files_done} of {now.files} files"
            )

        return self._carry_out(
            lambda: download_checkpoint(
                self._project_dir, run_id, checkpoint, directory, part=part, progress=progress
            )
        )

    def remembered_choice(self, run: RunRow) -> DeployChoice:
        from engine.hosting.checkpoints import remembered_choice

        return remembered_choice(self._project_dir, run)

    def plan_deployment(self, run_id: str, checkpoint: str, choice: DeployChoice) -> PlannedDeployment:
        from engine.hosting.checkpoints import plan_deployment

        return self._carry_out(lambda: plan_deployment(self._project_dir, run_id, checkpoint, choice))

    def deploy(self, run_id: str, checkpoint: str, choice: DeployChoice) -> Deployed:
        from engine.hosting.checkpoints import deploy_checkpoint

        return self._carry_out(lambda: deploy_checkpoint(self._project_dir, run_id, checkpoint, choice))

    def open_trial(
        self,
        asked: WeightsAsked,
        *,
        system: str | None,
        with_sandboxes: bool,
        told: Told,
    ) -> OpenTrial:
        from loops_tui.trial_link import TrialFromHere

        return TrialFromHere(
            self._project_dir,
            self._carry_out,
            asked,
            system=system,
            with_sandboxes=with_sandboxes,
            told=told,
        )

    def _carry_out[T](self, make: Callable[[], Coroutine[Any, Any, T]]) -> T:
        from engine.config.problems import ConfigError
        from engine.hosting.errors import HostingError
        from engine.loops.errors import LoopsError
        from engine.store.errors import StoreError

        try:
            return self._made().carry_out(make())
        except (ConfigError, HostingError, LoopsError, StoreError) as error:
            raise ActFailed(str(error)) from error
        except CancelledError as error:
            raise ActFailed("the engine is ending; what was begun may not be finished") from error
