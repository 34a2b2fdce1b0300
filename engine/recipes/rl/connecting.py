"""What an RL run holds while it trains: its sandboxes and its Loops run, from opening to closing."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING

from engine.loops.sampling import SamplingSettings
from engine.loops.session import LoopsSession
from engine.policy.rendering import PolicyRenderer
from engine.recipes.contract import RunFailed, RunHandle
from engine.recipes.loops_run import LoopsRun
from engine.recipes.rl.parts import renderer_of, sandboxes_of
from engine.sandboxes.errors import SandboxError
from engine.sandboxes.for_run import RunSandboxes

if TYPE_CHECKING:
    from engine.project import Project


class Connections:
    """A run's sandboxes and Loops session; each is None until it is open."""

    def __init__(self, project: Project, handle: RunHandle, phase: Callable[[str], None]) -> None:
        self._project, self._handle, self._settings = project, handle, project.rl
        self._loops = LoopsRun(project, handle, phase)
        self.sandboxes: RunSandboxes | None = None

    @property
    def session(self) -> LoopsSession | None:
        """The Loops session, once there is one."""
        return self._loops.session

    async def open_sandboxes(self) -> RunSandboxes | None:
        """Get ready to lease, before Loops is provisioned: a provider that refuses must not leave a trainer billing.

        Raises:
            RunFailed: no sandbox can be created here.
        """
        handle = self._handle
        if self._settings.runtime.config.sandbox is None:
            return None
        if handle.store is None:
            raise RunFailed("this run's config has a sandbox, but its host keeps no lease journal")
        try:
            sandboxes = self.sandboxes = await sandboxes_of(
                self._project,
                handle.store,
                run_id=handle.run_id,
                host_id=handle.host_id,
                tell=lambda text: handle.log("warning", "sandbox", text),
            )
        except SandboxError as error:
            raise RunFailed(f"no sandboxes can be created: {error}") from error
        assert sandboxes is not None
        report = sandboxes.report
        handle.log("info", "sandbox", f"Sandboxes: {report.provider}, isolation {report.isolation}")
        handle.note(isolation=str(report.isolation), sandbox_warnings=list(report.warnings))
        for warning in report.warnings:
            handle.log("warning", "sandbox", warning)
        return sandboxes

    async def connect(self) -> tuple[LoopsSession, PolicyRenderer]:
        """Provision the Loops run and load its renderer; the tokenizer's import runs beside the provisioning."""
        loading = asyncio.create_task(asyncio.to_thread(renderer_of, self._project))
        try:
            session = await self._loops.start(sampler=True)
            renderer = await loading
        finally:
            if not loading.done():
                await asyncio.wait({loading}, timeout=60.0)
        self._handle.log("info", "run", f"Renderer: {renderer.name} ({renderer.how})")
        sampling = self._settings.sampling
        stop = sampling.stop or renderer.stop_token_ids
        session.use_sampling(SamplingSettings(sampling.temperature, sampling.top_p, sampling.top_k, stop))
        await self._loops.load_weights(publish=True)
        return session, renderer

    async def close(self) -> None:
        """Release the sandboxes, close the clients and, where the config says so, end the Loops run's billing."""
        if self.sandboxes is not None:
            lost = await self.sandboxes.close()
            if lost:
                self._handle.log(
                    "error", "sandbox", f"{lost} sandboxes could not be released: run loops-tui cleanup"
                )
        await self._loops.close()
