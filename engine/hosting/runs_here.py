"""Runs that live in this process beside a screen: the engine's loop and thread, and what the app asks of them."""

from __future__ import annotations

import asyncio
import concurrent.futures
import logging
import threading
from collections.abc import Collection, Coroutine, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from engine.hosting.cleanup import release_left_behind
from engine.hosting.detach import detach_run
from engine.hosting.engine_loop import EngineLoop
from engine.hosting.errors import HostingError
from engine.hosting.host import RunHost, Train
from engine.hosting.local_server import LocalServer
from engine.hosting.prepare import check_config, require_sound
from engine.hosting.resuming import load_run, require_resumable
from engine.store.rows import RunState
from engine.store.store import Store

if TYPE_CHECKING:
    from engine.config.report import CheckReport
    from engine.hosting.cleanup import CleanupReport
    from engine.project import Project

log = logging.getLogger(__name__)

BEGIN_SECONDS = 300.0
"""How long loading, checking and claiming may take; a tokenizer may have to be downloaded."""
CLEANUP_SECONDS = 600.0
"""How long releasing may take: each sandbox is tried a few times, sixteen at once."""
CLOSE_SECONDS = 60.0


class RunsHere:
    """Hosts runs of one project directory. Every method may be called from any thread; only ``live`` never blocks."""

    can_hand_over = True

    def __init__(self, project_dir: Path, *, train: Train | None = None) -> None:
        self._project_dir = project_dir
        self._train = train
        self._loop = EngineLoop()
        self._server = LocalServer(project_dir)
        self._changed = threading.Condition()
        self._hosts: dict[str, RunHost] = {}

    def start(self, config: Path | str, overrides: Sequence[str] = ()) -> str:
        """Load, check and begin a run; returns its id once the store has it. Blocks for seconds.

        Raises ConfigError, CheckFailed, HostingError or StoreError.
        """
        return self._begin(config, overrides, None)

    def resume(self, ref: str, overrides: Sequence[str] = ()) -> str:
        """Go on with a run that has ended, from its last checkpoint; returns its id. Blocks for seconds.

        Raises as ``start``, and HostingError where it cannot go on, with one sentence.
        """
        return self._begin(None, overrides, ref)

    def _begin(self, config: Path | str | None, overrides: Sequence[str], resume: str | None) -> str:
        began: concurrent.futures.Future[str] = concurrent.futures.Future()
        self._loop.submit(self._host(config, tuple(overrides), resume, began))
        return began.result(BEGIN_SECONDS)

    def check(
        self, config: Path | str, overrides: Sequence[str] = (), text: str | None = None
    ) -> CheckReport:
        """Load and check a config, or the ``text`` that an editor holds of it, and store the report.

        Blocks for seconds. Raises HostingError, StoreError or TimeoutError.
        """
        work = check_config(config, tuple(overrides), self._project_dir, text)
        return self._loop.submit(work).result(BEGIN_SECONDS)

    def clean_up(self, names: Collection[str] = (), *, force: bool = False) -> CleanupReport:
        """Release these sandboxes, or all that no living process holds; ``force`` also where one does.

        Blocks until each is confirmed. Raises HostingError, StoreError or TimeoutError.
        """
        work = release_left_behind(self._project_dir, names=names, force=force)
        return self._loop.submit(work).result(CLEANUP_SECONDS)

    def carry_out[T](self, work: Coroutine[Any, Any, T]) -> T:
        """Do something else of the engine's (on Loops, say) on its loop, and wait for it. Raises what it raises."""
        return self._loop.submit(work).result()

    def live(self) -> list[str]:
        """Ids of the runs that are still going here."""
        with self._changed:
            return list(self._hosts)

    def hand_over(self, run_id: str, seconds: float) -> None:
        """Move a run into a process of its own: saved after the step in hand, ended here, resumed there.

        Blocks, at most for about ``seconds`` and the start of that process. Raises HostingError or StoreError; where
        the step takes longer, the run ends after it and can be resumed then.
        """
        with self._changed:
            host = self._hosts.get(run_id)
            if host is None:
                raise HostingError(f"run {run_id} does not live in this process")
            host.control.hand_over("app")
            if not self._changed.wait_for(lambda: run_id not in self._hosts, seconds):
                raise HostingError(
                    f"the step in hand did not end within {seconds:.0f} s; the run stops after it, and "
                    f"`loops-tui run --resume {run_id} --detach` takes it up again"
                )
        with Store.open(self._project_dir) as store:
            run = store.reader().run(run_id)
            checkpoint = store.reader().last_checkpoint(run_id)
        if run.state is not RunState.STOPPED:
            why = f": {run.error}" if run.error else ""
            raise HostingError(f"run {run_id} is {run.state}{why}; there is nothing to hand over")
        if run.step > (checkpoint.step if checkpoint is not None else 0):
            raise HostingError(
                f"run {run_id} has stopped after step {run.step}, but that step could not be saved; its log says why"
            )
        detach_run(None, (), self._project_dir, resume=run_id)

    def stop(self) -> None:
        """Ask every run here to end after its step."""
        for host in self._running():
            host.control.stop_after_step("app")

    def abort(self) -> None:
        """Ask every run here to end now."""
        for host in self._running():
            host.control.abort("app")

    def wait(self, seconds: float) -> bool:
        """Wait for the runs here to end; True when none is left."""
        with self._changed:
            return self._changed.wait_for(lambda: not self._hosts, seconds)

    def close(self) -> None:
        """End what still runs, the engine's loop and the local server. Bounded."""
        if not self._loop.close(CLOSE_SECONDS):
            log.error("the engine did not end within %.0f s", CLOSE_SECONDS)
        self._server.close()

    async def _host(
        self,
        config: Path | str | None,
        overrides: tuple[str, ...],
        resume: str | None,
        began: concurrent.futures.Future[str],
    ) -> None:
        project: Project | None = None
        try:
            try:
                project, resumption = await asyncio.to_thread(
                    load_run, config, overrides, self._project_dir, resume
                )
                await require_sound(project, self._project_dir, self._server)
                if resumption is not None:
                    await require_resumable(project, resumption, self._project_dir)
                host = RunHost(
                    project,
                    self._project_dir,
                    self._server,
                    kind="app",
                    train=self._train,
                    resumption=resumption,
                )
                run_id = await asyncio.to_thread(host.begin)
            except (SystemExit, KeyboardInterrupt) as error:
                began.set_exception(
                    HostingError(f"the config's own code tried to end the process: {error!r}")
                )
                return
            except BaseException as error:
                began.set_exception(error)  # whoever called start() is told
                if isinstance(error, Exception):
                    return
                raise
            with self._changed:
                self._hosts[run_id] = host
            began.set_result(run_id)
            try:
                await host.run()
            except Exception:
                log.exception("run %s ended by an error of its host", run_id)
            finally:
                with self._changed:
                    del self._hosts[run_id]
                    self._changed.notify_all()
        finally:
            if project is not None:
                project.close()

    def _running(self) -> list[RunHost]:
        with self._changed:
            return list(self._hosts.values())
