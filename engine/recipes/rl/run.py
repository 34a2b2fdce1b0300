"""The RL loop: collect groups, train on those that teach something, publish, tell the store; until done.

Sync mode: every step samples from the policy that the last step published, so no trained token is off-policy.
"""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Any

from engine.episodes.contract import Task
from engine.episodes.runtime import Deadlines
from engine.loops.ending import deactivate
from engine.loops.errors import LoopsError, LoopsUnavailable
from engine.loops.session import LoopsSession, SamplingSettings, SessionSettings
from engine.loops.watch import until_gone
from engine.policy.rendering import PolicyRenderer, RenderingError, load_renderer
from engine.recipes.contract import Outcome, RunFailed, RunHandle
from engine.recipes.rl.batch import loss_config, pack
from engine.recipes.rl.collect import Collected, Collector, CollectSettings
from engine.recipes.rl.groups import Group
from engine.recipes.rl.metrics import reward_metrics, step_metrics
from engine.recipes.rl.order import TaskOrder
from engine.recipes.rl.report import Reporter
from engine.recipes.rl.rollout import Rollout
from engine.recipes.rl.wording import step_line
from engine.sandboxes.errors import SandboxError
from engine.sandboxes.for_run import RunSandboxes
from engine.sandboxes.settings import SandboxSettings
from engine.store.rows import RunState

if TYPE_CHECKING:
    from engine.project import Project

#: The SDK's words for where a run is.
_SDK_SCOPE = {"local": "default", "dedicated": "deployment", "serverless": "serverless", "auto": "default"}


async def train(project: Project, handle: RunHandle) -> Outcome:
    """Run an RL config to its end.

    Returns:
        The outcome: DONE, STOPPED (asked to, after the step in flight) or ABORTED.

    Raises:
        RunFailed: with one sentence; the store and the run directory hold what was done until then.
        asyncio.CancelledError: the host is going down.
    """
    run = _Run(project, handle)
    main = asyncio.create_task(run.main(), name="rl loop")
    gone = asyncio.create_task(until_gone(handle.endpoint.url, handle.endpoint.api_key), name="loops watch")
    abort = asyncio.create_task(handle.control.wait_aborted(), name="abort watch")
    progress = asyncio.create_task(run.tell_progress(), name="progress")
    try:
        await asyncio.wait({main, gone, abort}, return_when=asyncio.FIRST_COMPLETED)
        if main.done():
            return main.result()
        main.cancel()
        await asyncio.wait({main}, timeout=30.0)
        if abort.done():
            run.reporter.unfinished("aborted")
            return run.outcome(RunState.ABORTED)
        run.reporter.unfinished("failed")
        raise RunFailed(gone.result())
    except LoopsUnavailable as error:
        run.reporter.unfinished("failed")
        # A failing request may be the first sign of a dead server; the watch, a moment later, says it plainly.
        raise RunFailed(str(error)) from error
    except RenderingError as error:
        run.reporter.unfinished("failed")
        raise RunFailed(str(error)) from error
    finally:
        for task in (main, gone, abort, progress):
            task.cancel()
        await asyncio.wait({main, gone, abort, progress}, timeout=30.0)
        await asyncio.shield(run.close())


class _Run:
    """One run's moving parts."""

    def __init__(self, project: Project, handle: RunHandle) -> None:
        self.project, self.handle, self.settings = project, handle, project.config
        self.reporter = Reporter(handle, self.settings.output.trace)
        self.session: LoopsSession | None = None
        self.sandboxes: RunSandboxes | None = None
        self.step = 0
        self.reward_first: float | None = None
        self.reward_last: float | None = None
        self._reward_best: float | None = None

    async def main(self) -> Outcome:
        handle, training = self.handle, self.settings.training
        episode = self.project.episode()
        tasks: list[Task[Any]] = [Task(task.value, task.id, task.index) for task in self.project.tasks()]
        self.sandboxes = await self._open_sandboxes()
        handle.recorder.run(state=RunState.STARTING, phase="provisioning Loops")
        session, renderer = await self._connect()
        self.reporter.phase("publishing")
        await session.publish(0)
        handle.recorder.run(state=RunState.RUNNING, policy_version=0)

        attempts = Rollout(
            handle=handle,
            settings=self.settings,
            reporter=self.reporter,
            sampler=session,
            renderer=renderer,
            episode=episode.cls,
            options=episode.options,
            deadlines=self.deadlines,
            sandboxes=self.sandboxes,
        )
        collector = Collector(
            tasks=tasks,
            order=TaskOrder(len(tasks), training.seed, training.shuffle_tasks),
            settings=CollectSettings(
                training.group_size,
                training.groups_per_step,
                training.max_group_losses,
                training.max_consecutive_unusable_groups,
                self.settings.max_concurrent_rollouts,
            ),
            control=handle.control,
            attempt=attempts.attempt,
            started=self.reporter.group_started,
            ended=self.reporter.group_judged,
        )
        while self.step < training.max_steps:
            await handle.control.wait_if_paused()
            if handle.control.stopping:
                return self._stopped()
            row = self.reporter.step_began(self.step + 1)
            self.reporter.phase("sampling")
            collected = await collector.collect(session.version)
            handle.recorder.run(unusable_groups=collector.unusable_groups)
            if len(collected.usable) < training.groups_per_step:
                self._note_rewards(collected)
                self.reporter.unfinished("stopped")
                row.state, row.ended_at = "unfinished", time.time()
                row.metrics = reward_metrics([], collected.finished)
                self.reporter.step_changed(row)
                if collected.exhausted:
                    return self._exhausted(collected)
                return self._stopped()
            row.state = "training"
            self.reporter.step_changed(row)
            row.metrics = await self._update(session, collected)
            row.state, row.ended_at, row.policy_version = "done", time.time(), session.version
            self.reporter.step_changed(row)
        return self.outcome(RunState.DONE)

    async def tell_progress(self) -> None:
        """While a phase lasts long, say so in the log. Runs until cancelled."""
        every = self.settings.output.progress_every_seconds
        while True:
            await asyncio.sleep(every)
            line, lasted = self.reporter.progress()
            if lasted >= every:
                self.handle.log("info", "run", line)

    async def _open_sandboxes(self) -> RunSandboxes | None:
        """Get ready to lease, before Loops is provisioned: a provider that refuses must not leave a trainer billing.

        Raises:
            RunFailed: no sandbox can be created here.
        """
        runtime, handle = self.settings.runtime.config, self.handle
        if runtime.sandbox is None:
            return None
        if handle.store is None:
            raise RunFailed("this run's config has a sandbox, but its host keeps no lease journal")
        deadlines = self.deadlines
        try:
            sandboxes = await RunSandboxes.open(
                handle.store,
                self.project.working_dir,
                SandboxSettings.from_table(runtime.sandbox.model_dump()),
                attempt_seconds=deadlines.provision + deadlines.setup + deadlines.agent + deadlines.grading,
                run_id=handle.run_id,
                host_id=handle.host_id,
            )
        except SandboxError as error:
            raise RunFailed(f"no sandboxes can be created: {error}") from error
        handle.log(
            "info",
            "sandbox",
            f"Sandboxes: {sandboxes.report.provider}, isolation {sandboxes.report.isolation}",
        )
        handle.recorder.run(
            info={
                "isolation": str(sandboxes.report.isolation),
                "sandbox_warnings": list(sandboxes.report.warnings),
            }
        )
        for warning in sandboxes.report.warnings:
            handle.log("warning", "sandbox", warning)
        return sandboxes

    @property
    def deadlines(self) -> Deadlines:
        runtime = self.settings.runtime.config
        return Deadlines(
            runtime.setup_timeout_seconds,
            runtime.agent_timeout_seconds,
            runtime.grading_timeout_seconds,
            runtime.provision_timeout_seconds,
        )

    async def _connect(self) -> tuple[LoopsSession, PolicyRenderer]:
        """Provision the run and load its renderer; the tokenizer's import runs beside the provisioning."""
        settings, handle, endpoint = self.settings, self.handle, self.handle.endpoint
        model = settings.model

        def created(loops_run_id: str) -> None:
            handle.recorder.run(
                loops_run_id=loops_run_id, loops_state="ACTIVE", loops_since=time.time(), loops_until=None
            )
            handle.log("info", "loops", f"Loops run {loops_run_id}")

        source = self.project.tokenizer_source

        def load() -> PolicyRenderer:
            return load_renderer(
                model_name=model.base_model,
                tokenizer_source=source,
                renderer=model.renderer,
                template_kwargs=model.renderer_chat_template_kwargs,
            )

        loading = asyncio.create_task(asyncio.to_thread(load))
        try:
            # On Baseten this call starts what bills: the run's name and config are in the store before it.
            await handle.recorder.flush()
            session = self.session = await LoopsSession.start(
                SessionSettings(
                    base_model=str(self.project.model_dir or model.base_model)
                    if endpoint.scope == "local"
                    else model.base_model,
                    lora_rank=model.lora_rank,
                    name=f"{self.project.name}-{handle.run_id}",
                    scope=_SDK_SCOPE[endpoint.scope],
                    seed=model.seed,
                    max_seq_len=model.max_seq_len,
                    replicas=settings.compute.replicas or 1,
                    spot=bool(settings.compute.spot),
                    request_seconds=settings.compute.request_timeout_seconds,
                ),
                url=endpoint.url,
                api_key=endpoint.api_key,
                created=created,
            )
            renderer = await loading
        finally:
            if not loading.done():
                await asyncio.wait({loading}, timeout=60.0)
        handle.log("info", "run", f"Renderer: {renderer.name} ({renderer.how})")
        stop = settings.sampling.stop or renderer.stop_token_ids
        session.use_sampling(
            SamplingSettings(
                settings.sampling.temperature, settings.sampling.top_p, settings.sampling.top_k, stop
            )
        )
        return session, renderer

    async def _update(self, session: LoopsSession, collected: Collected) -> dict[str, float]:
        """Train on a step's groups and publish. Returns the step's metrics."""
        training, handle = self.settings.training, self.handle
        self.reporter.phase("training")
        begun = time.monotonic()
        result = await session.train(
            pack(collected.usable),
            loss=training.loss,
            loss_config=loss_config(training.loss_config, training.loss_aggregation),
            adam={
                "learning_rate": training.learning_rate,
                "beta1": training.beta1,
                "beta2": training.beta2,
                "eps": training.eps,
                "weight_decay": training.weight_decay,
                "grad_clip_norm": training.grad_clip_norm,
            },
        )
        trained = time.monotonic()
        self.reporter.phase("publishing")
        await session.publish(self.step + 1)
        published = time.monotonic()

        self.step += 1
        for group in collected.usable:
            self.reporter.group_trained(group, self.step)
        self._note_rewards(collected)
        metrics = step_metrics(
            collected.usable,
            collected.finished,
            result,
            (collected.seconds, trained - begun, published - trained),
        )
        handle.recorder.run(
            step=self.step,
            policy_version=session.version,
            reward_first=self.reward_first,
            reward_last=self.reward_last,
        )
        handle.log("info", "run", step_line(self.step, training.max_steps, metrics))
        return metrics

    def _note_rewards(self, collected: Collected) -> None:
        """First and last mean reward of a run are over all graded attempts of a step, rejected groups included."""
        mean = reward_metrics([], collected.finished).get("reward/mean_with_unusable")
        if mean is None:
            return
        if self.reward_first is None:
            self.reward_first = mean
        self.reward_last = mean
        best = max(reward for group in collected.finished for reward in _rewards(group))
        self._reward_best = best if self._reward_best is None else max(self._reward_best, best)
        self.handle.recorder.run(reward_first=self.reward_first, reward_last=self.reward_last)

    def _exhausted(self, collected: Collected) -> Outcome:
        """Too many groups in a row taught nothing: solved, if all of them earn the best reward ever seen here."""
        count = self.settings.training.max_consecutive_unusable_groups
        rewards = [reward for group in collected.finished for reward in _rewards(group)]
        if self.step > 0 and rewards and self._reward_best is not None and min(rewards) >= self._reward_best:
            self.handle.log(
                "info",
                "run",
                f"every attempt of the last {count} groups earned {self._reward_best:g}, the best reward seen: "
                "these tasks have nothing left to teach",
            )
            return self.outcome(RunState.DONE)
        reasons = {group.verdict.reason for group in collected.finished if group.verdict}
        if reasons == {"no_variance"}:
            why = "in each, every attempt scored alike; make the tasks harder or easier, or raise group_size"
        elif reasons == {"too_many_losses"}:
            why = f"attempts were lost to failures, the last one: {_last_error(collected) or 'unknown'}"
        else:
            why = f"attempts scored alike or were lost, the last failure: {_last_error(collected) or 'none'}"
        raise RunFailed(
            f"{count} groups in a row taught nothing ([training] max_consecutive_unusable_groups): {why}"
        )

    def _stopped(self) -> Outcome:
        return self.outcome(RunState.ABORTED if self.handle.control.aborted else RunState.STOPPED)

    def outcome(self, state: RunState) -> Outcome:
        return Outcome(
            state,
            self.step,
            self.reward_first,
            self.reward_last,
            self.session.loops_run_id if self.session else None,
        )

    async def close(self) -> None:
        """Release the sandboxes, close the clients and, where the config says so, end the Loops run's billing."""
        if self.sandboxes is not None:
            lost = await self.sandboxes.close()
            if lost:
                self.handle.log(
                    "error", "sandbox", f"{lost} sandboxes could not be released: run loops-tui cleanup"
                )
        session = self.session
        if session is None:
            return
        await session.close()
        if self.settings.compute.keep_run:
            if self.handle.endpoint.scope != "local":
                self.handle.log(
                    "warning",
                    "loops",
                    f"the Loops run {session.loops_run_id} stays up and may bill (keep_run)",
                )
            return
        self.reporter.phase("deactivating")
        try:
            await deactivate(self.handle.endpoint.url, self.handle.endpoint.api_key, session.loops_run_id)
        except LoopsError as error:
            self.handle.log("error", "loops", str(error))
        else:
            self.handle.recorder.run(loops_state="INACTIVE", loops_until=time.time())
            self.handle.log("info", "loops", f"the Loops run {session.loops_run_id} is INACTIVE")


def _rewards(group: Group) -> list[float]:
    return list(group.verdict.rewards.values()) if group.verdict else []


def _last_error(collected: Collected) -> str | None:
    errors = [result.error for group in collected.finished for result in group.finished if result.error]
    return errors[-1] if errors else None
