"""A recipe's own Loops run, from provisioning to closing: new, taken up from a checkpoint, or from another's weights."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from engine.loops.earlier import end_earlier
from engine.loops.ending import deactivate
from engine.loops.errors import LoopsError
from engine.loops.session import LoopsSession, SessionSettings
from engine.recipes.contract import RunFailed, RunHandle
from engine.store.rows import RunState

if TYPE_CHECKING:
    from engine.project import Project


class LoopsRun:
    """``session`` is None until :meth:`start` has returned."""

    def __init__(self, project: Project, handle: RunHandle, phase: Callable[[str], None]) -> None:
        self._project, self._handle, self._settings = project, handle, project.config
        self._phase = phase  # told what is being waited for
        self.session: LoopsSession | None = None

    async def start(self, *, sampler: bool) -> LoopsSession:
        """Provision trainer and, where wanted, the paired sampler.

        A run that goes on after a checkpoint gets a Loops run of its own; what its earlier sittings left up is ended
        before. ``load_weights`` comes next.

        Raises:
            LoopsUnavailable: with one sentence.
            RunFailed: an earlier Loops run of this run could not be ended.
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

        # On Baseten this call starts what bills: the run's name and config are in the store before it.
        await handle.recorder.flush()
        if "resumed" in handle.info:
            await self._end_earlier(name)
        self.session = await LoopsSession.start(
            SessionSettings(
                base_model=str(self._project.model_dir or model.base_model)
                if endpoint.scope == "local"
                else model.base_model,
                lora_rank=model.lora_rank,
                name=name,
                scope=endpoint.sdk_scope,
                seed=model.seed,
                max_seq_len=model.max_seq_len,
                replicas=settings.compute.replicas or 1,
                spot=bool(settings.compute.spot),
                request_seconds=settings.compute.request_timeout_seconds,
                sampler=sampler,
            ),
            url=endpoint.url,
            api_key=endpoint.api_key,
            created=created,
        )
        return self.session

    async def load_weights(self, *, publish: bool) -> None:
        """Give the trainer the weights that this run begins with, and the sampler too where there is one.

        Raises:
            LoopsUnavailable: they are gone, or do not fit.
        """
        handle, session = self._handle, self.session
        assert session is not None
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
        elif handle.start_weights is not None:
            self._phase("loading the checkpoint")
            await session.load(handle.start_weights, with_optimizer=False)
            handle.log("info", "loops", f"Weights of {handle.start_weights}; the optimizer starts anew")
        if not publish:
            return
        self._phase("publishing")
        if point is None and handle.start_weights is not None:
            await session.publish_loaded("start")
        else:
            await session.publish(0 if point is None else point.step)

    async def close(self) -> None:
        """Close the clients and, where the config says so, end the Loops run's billing."""
        handle, session = self._handle, self.session
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
