"""Going on with a run that has ended: what it goes on from, what may be changed, and what would make its curve lie."""

from __future__ import annotations

import asyncio
import hashlib
import json
import time
import tomllib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path
from typing import TYPE_CHECKING, Any

from engine.hosting.checkpoint_lookup import saved_checkpoints
from engine.hosting.cleanup import release_left_behind
from engine.hosting.errors import ResumeRefused
from engine.hosting.loops_access import asking_loops
from engine.hosting.prepare import load_project
from engine.loops.kept import NoLongerKept, kept_checkpoint
from engine.recipes.registry import RECIPES
from engine.store.hosts import going_on
from engine.store.redact import REMOVED
from engine.store.rows import CheckpointRow, RunRow, RunState
from engine.store.store import Store

if TYPE_CHECKING:
    from engine.config.comparing import Change
    from engine.project import Project
    from engine.store.resume import TakeUp

MAY_CHANGE = (
    "training.max_steps",
    "training.max_concurrent_rollouts",
    "training.max_concurrent_grading",
    "training.setups_ahead",
    "training.max_rollout_retries",
    "training.max_consecutive_unusable_groups",
    "training.learning_rate",
    "training.epochs",
    "training.validate_every",
    "training.early_stop_*",
    "runtime.config.*_timeout_seconds",
    "runtime.config.sandbox.ttl",
    "compute.keep_run",
    "compute.request_timeout_seconds",
    "output.checkpoint_every",
    "output.progress_every_seconds",
    "output.trace",
    "budget.*",
    "prices.*",
    "eval",
    "eval.*",
    "providers.*",
)
"""Settings that a resumed run may have other than before. All others decide what it is trained on, and how."""
WITH_WARNING = ("training.learning_rate", "training.epochs")
"""Those of them that bend the curve; changing one is told in the run's log."""


@dataclass(slots=True)
class Resumption:
    """A run that goes on: ``run`` as it was, and the checkpoint it goes on from (None: from its beginning)."""

    run: RunRow
    checkpoint: CheckpointRow | None
    told: list[str] = field(default_factory=list)  # what differs from before, in sentences
    warnings: list[str] = field(default_factory=list)  # what of that bends the curve

    def describe(self) -> list[str]:
        """For the run's log."""
        if self.checkpoint is not None:
            start = f"from its checkpoint {self.checkpoint.name}, after step {self.checkpoint.step}"
        else:
            start = "from its beginning with a fresh adapter: it has no saved checkpoint"
        return [f"Resumed {start}; it was {self.run.state} after step {self.run.step}", *self.told]

    def take_up(self, project: Project) -> TakeUp:
        """What the store changes when the run is taken up."""
        from engine.recipes.registry import take_up

        run = self.run
        loops_runs = [*run.info.get("loops_runs", []), *([run.loops_run_id] if run.loops_run_id else [])]
        sitting = {
            "at": time.time(),
            "step": self.checkpoint.step if self.checkpoint is not None else 0,
            "checkpoint": self.checkpoint.name if self.checkpoint is not None else None,
            "was": str(run.state),
        }
        changes = {
            "config_toml": project.config_toml,
            "max_steps": project.config.training.max_steps or run.max_steps,
            "info": {
                **{name: told for name, told in run.info.items() if name != "ended_by"},
                "loops_runs": list(dict.fromkeys(loops_runs)),
                "resumed": [*run.info.get("resumed", []), sitting],
            },
        }
        return take_up(run, self.checkpoint, changes)


def config_digest(path: Path) -> str | None:
    """Tells whether a config's file was changed since; None where it cannot be read."""
    try:
        return hashlib.sha256(path.read_bytes()).hexdigest()
    except OSError:
        return None


def load_run(
    config: Path | str | None, overrides: Sequence[str], project_dir: Path, resume: str | None
) -> tuple[Project, Resumption | None]:
    """What is to be run: a config, or a run that goes on. Blocks. Raises as ``load_resumed``."""
    if resume is not None:
        return load_resumed(resume, overrides, project_dir)
    if config is None:
        raise ResumeRefused("neither a config nor a run to resume was named")
    return load_project(config, overrides, project_dir), None


def load_resumed(ref: str, overrides: Sequence[str], project_dir: Path) -> tuple[Project, Resumption]:
    """The run that ``ref`` means, with the config it was started with and these overrides. Blocks.

    Raises ConfigError, StoreError (an unknown run) or ResumeRefused where it cannot go on, with one sentence.
    """
    run, checkpoint = _ended_run(ref, project_dir)
    project = project_as_run(run, overrides, project_dir)
    try:
        return project, _resumption(run, checkpoint, project)
    except BaseException:
        project.close()
        raise


def project_as_run(run: RunRow, overrides: Sequence[str], project_dir: Path) -> Project:
    """A run's config as it was started, with these overrides. Blocks. Raises ConfigError or ResumeRefused."""
    return load_project(run.config_path, [*overrides, *_secrets(run)], project_dir, text=_as_written(run))


def resumed_by(project: Project, ref: str, project_dir: Path) -> Resumption:
    """How a loaded project goes on with a run of its store. Blocks. Raises StoreError or ResumeRefused."""
    return _resumption(*_ended_run(ref, project_dir), project)


def _ended_run(ref: str, project_dir: Path) -> tuple[RunRow, CheckpointRow | None]:
    if not Store.exists(project_dir):
        raise ResumeRefused(f"there is no run {ref!r}: {project_dir} has no runs yet")
    with Store.open(project_dir) as store:
        store.reconcile()
        reader = store.reader()
        run = reader.run(ref)
        checkpoint = reader.last_checkpoint(run.run_id)
        host = reader.host(run.host_id)
    if not run.state.final:
        raise ResumeRefused(going_on(run, host))
    if run.recipe not in RECIPES:
        raise ResumeRefused(f"run {run.run_id} is of the recipe {run.recipe!r}, which cannot be resumed")
    return run, checkpoint


def _resumption(run: RunRow, checkpoint: CheckpointRow | None, project: Project) -> Resumption:
    changed = _harmless_changes(run, project)
    _require_steps_left(run, checkpoint, project)
    project.goes_on = checkpoint is not None
    bending = [change for change in changed if _matches(change.key, WITH_WARNING)]
    told = [f"{_listed([change])} from here on" for change in changed if change not in bending]
    return Resumption(
        run,
        checkpoint,
        [*told, *_file_news(run, project)],
        [
            f"{_listed([change])} from here on: the curve is no longer one of equal steps"
            for change in bending
        ],
    )


async def require_resumable(
    project: Project,
    resumption: Resumption,
    project_dir: Path,
    told: Callable[[str], None] = lambda _: None,
) -> None:
    """Look at what the run goes on with: its tasks, its model, its checkpoint and its sandboxes, which are released.

    Raises ResumeRefused, HostingError (Loops does not say whether it has the checkpoint), ConfigError or StoreError.
    Nothing of the run is changed then.
    """
    from engine.recipes.registry import identity_problem

    run = resumption.run
    if resumption.checkpoint is not None:
        problem = await asyncio.to_thread(identity_problem, run.recipe, resumption.checkpoint.cursor, project)
        if problem is not None:
            raise ResumeRefused(f"run {run.run_id} cannot be resumed: {problem}")
        await _require_kept(run, resumption.checkpoint, project_dir)
    report = await release_left_behind(project_dir, runs=[run.run_id])
    released = len(report.released)
    if released:
        told(f"{released} sandboxes that the run had left behind are released")
    if report.failed or report.skipped_live:
        # They may be those of whoever was quicker.
        await asyncio.to_thread(_ended_run, run.run_id, project_dir)
        left = len(report.failed) + len(report.skipped_live)
        raise ResumeRefused(
            f"{left} sandboxes of run {run.run_id} could not be released; see `loops-tui leases {run.run_id}`, release "
            f"them with `loops-tui cleanup {run.run_id}`, then resume it"
        )


async def _require_kept(run: RunRow, checkpoint: CheckpointRow, project_dir: Path) -> None:
    """Loops must still have what the run goes on from: asked before a trainer is provisioned for it."""
    saved = await asyncio.to_thread(_saved, run.run_id, project_dir)
    async with asking_loops(project_dir, run) as loops:
        try:
            await kept_checkpoint(loops, checkpoint, "trainer", saved)
        except NoLongerKept as gone:
            remedy = (
                f"`loops-tui checkpoints {run.run_id} --refresh` takes note of it, and a resume then goes on from "
                f"{gone.others[0]}"
                if gone.others
                else "start a new run"
            )
            raise ResumeRefused(f"run {run.run_id} cannot be resumed: {gone}; {remedy}") from gone


def _saved(run_id: str, project_dir: Path) -> list[CheckpointRow]:
    with Store.open(project_dir) as store:
        return saved_checkpoints(store.reader(), run_id)


def _require_steps_left(run: RunRow, checkpoint: CheckpointRow | None, project: Project) -> None:
    steps = project.config.training.max_steps
    # One whose process died between its last checkpoint and its end still has that to come: its last evaluation, say.
    cut_short = (
        run.state in (RunState.INTERRUPTED, RunState.FAILED)
        and checkpoint is not None
        and checkpoint.step == steps
    )
    if steps is not None and checkpoint is not None and checkpoint.step >= steps and not cut_short:
        raise ResumeRefused(
            f"run {run.run_id} has trained all its {checkpoint.step} steps; to go on, raise them: "
            f"--set training.max_steps={checkpoint.step * 2}"
        )
    if checkpoint is None and run.state is RunState.DONE:
        raise ResumeRefused(
            f"run {run.run_id} is done and has no saved checkpoint: resuming it would train everything again; start "
            "a new run instead"
        )


def _harmless_changes(run: RunRow, project: Project) -> list[Change]:
    """What is set other than before. Raises ResumeRefused where a change would make the curve lie."""
    from engine.config.any_recipe import settings_type
    from engine.config.comparing import changes

    if str(project.scope) != run.scope:
        raise ResumeRefused(
            f"run {run.run_id} ran on the scope {run.scope!r}, and it would go on on {str(project.scope)!r}; set "
            "BASETEN_LOOPS_SCOPE as it was"
        )
    table = tomllib.loads(run.config_toml)
    before = settings_type(table).model_validate(table).model_dump(mode="json")
    found = [
        change
        for change in changes(before, project.config.model_dump(mode="json"))
        if REMOVED not in (change.old or "") and "[secret]" not in (change.old or "")
    ]
    refused = [change for change in found if not _matches(change.key, MAY_CHANGE)]
    if refused:
        raise ResumeRefused(
            f"run {run.run_id} cannot be resumed with {_listed(refused)}: that would make one curve of two different "
            "runs; start a new run, with [model] from_checkpoint to keep the weights"
        )
    return found


def _file_news(run: RunRow, project: Project) -> list[str]:
    """Whether the config's file has other settings than the run by now; the run keeps its own."""
    from engine.config.comparing import changes
    from engine.project import ConfigError

    path = Path(run.config_path)
    digest = config_digest(path)
    if digest is None or digest == run.info.get("config_sha256"):
        return []
    try:
        now = load_project(path, (), project.working_dir)
    except ConfigError:
        return [f"{path} can no longer be loaded; the run goes on with the config it was started with"]
    own = {*run.info.get("overrides", []), *project.loaded.overrides}
    found = [
        change
        for change in changes(project.config.model_dump(mode="json"), now.config.model_dump(mode="json"))
        if change.key not in own
    ]
    now.close()
    if not found:
        return []
    return [f"{path} says {_listed(found)} by now; the run goes on with the config it was started with"]


def _matches(key: str, patterns: Sequence[str]) -> bool:
    return any(fnmatchcase(key, pattern) for pattern in patterns)


def _listed(found: Sequence[Change]) -> str:
    """``training.group_size = 8 (it was 16)``, the first few."""
    parts = [
        f"{change.key} = {change.new or 'unset'} (it was {change.old or 'unset'})" for change in found[:4]
    ]
    more = f" and {len(found) - 4} more settings" if len(found) > 4 else ""
    return ", ".join(parts) + more


def _as_written(run: RunRow) -> str:
    """The stored config, in the language that its path's suffix promises."""
    if run.config_path.lower().endswith(".json"):
        return json.dumps(tomllib.loads(run.config_toml))
    return run.config_toml


def _secrets(run: RunRow) -> list[str]:
    """Overrides for values that were secret and therefore not stored: the config's file still has them.

    Raises ResumeRefused where it does not.
    """
    from engine.config.comparing import flat
    from engine.config.parsing import read_config
    from engine.config.problems import ConfigError
    from engine.config.secrets import REDACTED

    marks = (REDACTED, REMOVED)
    missing = [
        key
        for key, value in flat(tomllib.loads(run.config_toml)).items()
        if any(mark in str(value) for mark in marks)
    ]
    if not missing:
        return []
    path = Path(run.config_path)
    try:
        written: dict[str, Any] = flat(read_config(path.resolve(), path)[1])
    except ConfigError:
        written = {}
    gone = [key for key in missing if key not in written]
    if gone:
        raise ResumeRefused(
            f"run {run.run_id} cannot be resumed: the value of {gone[0]} was secret and was not stored, and {path} no "
            "longer has it"
        )
    return [f"{key}={json.dumps(written[key])}" for key in missing]
