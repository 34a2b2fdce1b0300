"""What a run holds while it trains: its sandboxes and its Loops run, from opening to closing."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from engine.episodes.runtime import Deadlines
from engine.loops.earlier import end_earlier
from engine.loops.ending import deactivate
from engine.loops.errors import LoopsError
from engine.loops.session import LoopsSession, SamplingSettings, SessionSettings
from engine.policy.rendering import PolicyRenderer, load_renderer
from engine.recipes.contract import RunFailed, RunHandle
from engine.sandboxes.errors import SandboxError
from engine.sandboxes.for_run import RunSandboxes
from engine.sandboxes.settings import SandboxSettings
from engine.store.rows import RunState

if TYPE_CHECKING:
    from engine.project import Project

#: The SDK's words for where a run is.
_SDK_SCOPE = {"local": "default", "dedicated": "deployment", "serverless": "serverless", "auto": "default"}


class Connections:
    """A run's sandboxes and Loops session; each is None until it is open."""

    def __init__(self, project: Project, handle: RunHandle, phase: Callable[[str], None]) -> None:
        self._project, self._handle, self._settings = project, handle, project.config
        self._phase = phase  # told what is being waited for
        self.session: LoopsSession | None = None
        self.sandboxes: RunSandboxes | None = None

    @property
    def deadlines(self) -> Deadlines:
        runtime = self._settings.runtime.config
        return Deadlines(
            runtime.setup_timeout_seconds,
            runtime.agent_timeout_seconds,
            runtime.grading_timeout_seconds,
            runtime.provision_timeout_seconds,
        )

    async def open_sandboxes(self) -> RunSandboxes | None:
        """Get ready to lease, before Loops is provisioned: a provider that refuses must not leave a trainer billing.

        Raises:
            RunFailed: no sandbox can be created here.
        """
        runtime, handle = self._settings.runtime.config, self._handle
        if runtime.sandbox is None:
            return None
        if handle.store is None:
            raise RunFailed("this run's config has a sandbox, but its host keeps no lease journal")
        deadlines = self.deadlines
        try:
            sandboxes = self.sandboxes = await RunSandboxes.open(
                handle.store,
                self._project.working_dir,
                SandboxSettings.from_table(runtime.sandbox.model_dump()),
                attempt_seconds=deadlines.provision + deadlines.setup + deadlines.agent + deadlines.grading,
                run_id=handle.run_id,
                host_id=handle.host_id,
            )
        except SandboxError as error:
            raise RunFailed(f"no sandboxes can be created: {error}") from error
        report = sandboxes.report
        handle.log("info", "sandbox", f"Sandboxes: {report.provider}, isolation {report.isolation}")
        handle.note(isolation=str(report.isolation), sandbox_warnings=list(report.warnings))
        for warning in report.warnings:
            handle.log("warning", "sandbox", warning)
        return sandboxes

    async def connect(self) -> tuple[LoopsSession, PolicyRenderer]:
        """Provision the Loops run and load its renderer; the tokenizer's import runs beside the provisioning.

        A run that goes on after a checkpoint gets a Loops run of its own, with the trainer as it was then; what its
        earlier sittings left up is ended before.
        """
        settings, handle, endpoint = self._settings, self._handle, self._handle.endpoint
        model = settings.model
        name = f"{self._project.name}-{handle.run_id}"

        def created(loops_run_id: str) -> None:
            # With a state, so that it is committed at once: what bills must be known.
            handle.recorder.run(
                state=RunState.STARTING,
                loops_run_id=loops_run_id,
                loops_state="ACTIVE",
                loops_since=time.time(),
                loops_until=None,
            )
            handle.log("info", "loops", f"Loops run {loops_run_id}")

        source = self._project.tokenizer_source

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
            if "resumed" in handle.info:
                await self._end_earlier(name)
            session = self.session = await LoopsSession.start(
                SessionSettings(
                    base_model=str(self._project.model_dir or model.base_model)
                    if endpoint.scope == "local"
                    else model.base_model,
                    lora_rank=model.lora_rank,
                    name=name,
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
        sampling = settings.sampling
        stop = sampling.stop or renderer.stop_token_ids
        session.use_sampling(SamplingSettings(sampling.temperature, sampling.top_p, sampling.top_k, stop))
        await self._load_weights(session)
        return session, renderer

    async def _load_weights(self, session: LoopsSession) -> None:
        """Give the trainer the weights that this run begins with, and publish them."""
        handle = self._handle
        point = handle.resume_from
        if point is not None:
            assert point.trainer_path is not None
            self._phase("loading the checkpoint")
            counted = await session.load(point.trainer_path, with_optimizer=True)
            if counted != point.step:
                handle.log(
                    "warning",
                    "loops",
                    f"the trainer counts {counted} steps after loading {point.trainer_path}, the run {point.step}",
                )
            self._phase("publishing")
            await session.publish(point.step)
        elif handle.start_weights is not None:
            self._phase("loading the checkpoint")
            await session.load(handle.start_weights, with_optimizer=False)
            handle.log("info", "loops", f"Weights of {handle.start_weights}; the optimizer starts anew")
            self._phase("publishing")
            await session.publish_loaded("start")
        else:
            self._phase("publishing")
            await session.publish(0)

    async def _end_earlier(self, name: str) -> None:
        """Never two trainers for one run. Raises RunFailed where the earlier one may still be up."""
        self._phase("ending the earlier Loops run")
        try:
            ended = await end_earlier(self._handle.endpoint.url, self._handle.endpoint.api_key, name)
        except LoopsError as error:
            raise RunFailed(f"no second trainer is started beside an earlier one: {error}") from error
        if ended:
            self._handle.recorder.run(loops_state="INACTIVE", loops_until=time.time())
            self._handle.log(
                "info", "loops", f"the earlier Loops run {', '.join(ended)} is INACTIVE, its checkpoints stay"
            )

    async def close(self) -> None:
        """Release the sandboxes, close the clients and, where the config says so, end the Loops run's billing."""
        handle = self._handle
        if self.sandboxes is not None:
            lost = await self.sandboxes.close()
            if lost:
                handle.log(
                    "error", "sandbox", f"{lost} sandboxes could not be released: run loops-tui cleanup"
                )
        session = self.session
        if session is None:
            return
        await session.close()
        if self._settings.compute.keep_run:
            if handle.endpoint.scope != "local":
                handle.log(
                    "warning",
                    "loops",
                    f"the Loops run {session.loops_run_id} stays up and may bill (keep_run)",
                )
            return
        self._phase("deactivating")
        try:
            await deactivate(handle.endpoint.url, handle.endpoint.api_key, session.loops_run_id)
        except LoopsError as error:
            handle.log("error", "loops", str(error))
        else:
            handle.recorder.run(loops_state="INACTIVE", loops_until=time.time())
            handle.log("info", "loops", f"the Loops run {session.loops_run_id} is INACTIVE")
