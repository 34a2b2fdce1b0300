"""A host carries one run from its claim to a true final state, whatever happens on the way."""

from __future__ import annotations

import asyncio
import logging
import os
import secrets
import socket
import time
import traceback
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from engine.config.problems import ConfigError
from engine.config.sft import SftSettings
from engine.hosting.errors import HostingError
from engine.hosting.local_server import LocalServer
from engine.hosting.loops_access import LOCAL, remote_loops
from engine.hosting.pulse import Pulse
from engine.hosting.resuming import Resumption, config_digest
from engine.open_files import raise_limit
from engine.recipes.contract import LoopsEndpoint, Outcome, RunFailed, RunHandle
from engine.recipes.control import RunControl
from engine.store.errors import PartLost, StoreError
from engine.store.processes import process_started
from engine.store.recorder import RunRecorder
from engine.store.redact import secret_values
from engine.store.rows import HostRow, RunRow, RunState
from engine.store.rundir import new_run_id
from engine.store.schema import STORE_DIRECTORY
from engine.store.store import Store

if TYPE_CHECKING:
    from engine.config.any_recipe import AnySettings
    from engine.project import Project

log = logging.getLogger(__name__)

CANCEL_SECONDS = 60.0
"""How long a cancelled recipe may take to release what it holds."""

type Train = Callable[[Project, RunHandle], Awaitable[Outcome]]


class RunHost:
    """One run in this process: ``begin``, then ``await run()``. ``control`` may be used from any thread.

    ``train`` replaces the config's recipe (tests; recipes of other packages). With a ``resumption`` the run goes on
    where that says, under its own id and in its own directory.
    """

    def __init__(
        self,
        project: Project,
        project_dir: Path,
        server: LocalServer,
        *,
        kind: str,
        control: RunControl | None = None,
        train: Train | None = None,
        resumption: Resumption | None = None,
    ) -> None:
        self._project = project
        self._project_dir = project_dir
        self._server = server
        self._kind = kind
        self._train_function = train
        self._resumption = resumption
        self.control = control or RunControl()
        self.run_id = ""
        self.host_id = f"{socket.gethostname()}-{os.getpid()}-{secrets.token_hex(3)}"
        self._opened: Store | None = None
        self._row: RunRow | None = None
        self._recorder: RunRecorder | None = None
        self._store_error: StoreError | None = None
        self._lost: str | None = None
        self._pulse: Pulse | None = None

    @property
    def _store(self) -> Store:
        if self._opened is None:
            raise RuntimeError("begin() comes first")
        return self._opened

    # -- before -------------------------------------------------------------------------------------------------

    def begin(self) -> str:
        """Store the run and claim it; returns its id. Blocks briefly. Raises StoreError."""
        raise_limit()
        self._opened = Store.open(self._project_dir)
        try:
            return self._begin()
        except BaseException:
            self._opened.close()
            raise

    def _begin(self) -> str:
        self._store.redactor.add(secret_values(self._project.environ))
        now, pid = time.time(), os.getpid()
        host = HostRow(
            self.host_id, pid, process_started(pid) or now, socket.gethostname(), self._kind, now, time.time()
        )
        resumption = self._resumption
        if resumption is None:
            run = self._new_run(now)
            self._store.create_run(run)
            self._row = self._store.claim(run.run_id, host)
        else:
            self._row = self._store.take_up(host, resumption.take_up(self._project))
        self.run_id = self._row.run_id
        self._recorder = self._store.recorder(self.run_id, host_id=self.host_id)
        for line in self._project.describe():
            self._recorder.log("info", "run", line)
        if resumption is not None:
            for line in resumption.describe():
                self._recorder.log("info", "run", line)
            for line in resumption.warnings:
                self._recorder.log("warning", "run", line)
        return self.run_id

    def _new_run(self, now: float) -> RunRow:
        project = self._project
        config = project.config
        run_id = new_run_id(now)
        return RunRow(
            run_id=run_id,
            name=project.name,
            recipe=str(config.recipe),
            state=RunState.CREATED,
            created_at=now,
            config_path=str(project.path),
            config_toml=project.config_toml,
            run_dir=str(project.runs_dir / run_id),
            base_model=config.model.base_model,
            max_steps=config.training.max_steps or 0,  # 0: not known before the data is read
            **_of_recipe(config),
            scope=str(project.scope),
            info={
                "config_sha256": config_digest(project.source),
                "overrides": sorted(project.loaded.overrides),
            },
        )

    # -- the run ------------------------------------------------------------------------------------------------

    async def run(self) -> RunRow:
        """Carry the run to its end and return its final row. Raises only what ends the process (cancellation)."""
        recorder = self._recorder
        if recorder is None:
            raise RuntimeError("begin() comes before run()")
        self._store.on_error(self._store_failed)
        pulse = Pulse(self._store, recorder, self.host_id, self.control, self._taken_over)
        self._pulse = pulse
        pulse.start()
        state, error = RunState.ABORTED, "the host was told to end"
        try:
            state, error = await self._guarded(recorder)
        finally:
            ending = asyncio.create_task(asyncio.to_thread(self._end, pulse, recorder, state, error))
            # The end is told even while this task is being cancelled.
            while not ending.done():
                try:
                    await asyncio.shield(ending)
                except asyncio.CancelledError:
                    continue
        return await ending

    async def _guarded(self, recorder: RunRecorder) -> tuple[RunState, str | None]:
        """Train; what goes wrong becomes a state and a sentence."""
        try:
            outcome = await self._train(recorder)
        except RunFailed as error:
            return RunState.FAILED, str(error)
        except (ConfigError, HostingError, StoreError) as error:
            return RunState.FAILED, str(self._store_error or error)
        except Exception as error:  # noqa: BLE001 - a defect; the run's row and crash.log tell of it
            return RunState.FAILED, self._crashed(error)
        if self._store_error is not None:
            return RunState.FAILED, str(self._store_error)
        if outcome.loops_run_id is not None:
            recorder.run(loops_run_id=outcome.loops_run_id)
        return outcome.state, None

    async def _train(self, recorder: RunRecorder) -> Outcome:
        endpoint = await self._endpoint(recorder)
        assert self._row is not None
        handle = RunHandle(
            self.run_id,
            recorder,
            self.control,
            endpoint,
            store=self._store,
            host_id=self.host_id,
            resume_from=self._resumption.checkpoint if self._resumption is not None else None,
            start_weights=self._start_weights(),
            info=dict(self._row.info),
        )
        training = asyncio.ensure_future(_no_exit(self._recipe()(self._project, handle)))
        watching = asyncio.create_task(self._server.until_dead() if endpoint.scope == LOCAL else _never())
        try:
            await asyncio.wait({training, watching}, return_when=asyncio.FIRST_COMPLETED)
            if not training.done():
                raise RunFailed(watching.result())
            if (
                not training.cancelled()
                and isinstance(training.exception(), RunFailed)
                and self._server_died(endpoint)
            ):
                raise RunFailed(self._server.epitaph()) from training.exception()
            return training.result()
        finally:
            watching.cancel()
            if not training.done():
                training.cancel()
                await asyncio.wait({training}, timeout=CANCEL_SECONDS)
                if training.done() and not training.cancelled() and training.exception() is not None:
                    log.warning("the run ended with another error as well: %s", training.exception())

    def _server_died(self, endpoint: LoopsEndpoint) -> bool:
        return endpoint.scope == LOCAL and self._server.dead

    async def _endpoint(self, recorder: RunRecorder) -> LoopsEndpoint:
        """Where Loops is; starts the local server where the config wants that one. Raises HostingError."""
        scope = str(self._project.scope)
        if scope == LOCAL:
            recorder.run(phase="starting the local Loops server")
            address = await asyncio.to_thread(self._server.start)
            self._store.redactor.add([address.key])
            recorder.run(loops_url=address.url)
            recorder.log("info", "host", f"Local Loops server: {address.url} (process {address.pid})")
            return LoopsEndpoint(scope, address.url, address.key)
        endpoint = remote_loops(self._project.environ, scope)
        recorder.run(loops_url=endpoint.url)
        return endpoint

    def _start_weights(self) -> str | None:
        """[model] from_checkpoint as Loops' address. Raises StoreError where this project has no such checkpoint."""
        wanted = self._project.config.model.from_checkpoint
        if self._project.goes_on:
            return None
        if wanted is None or wanted.startswith("bt://"):
            return wanted
        return self._store.reader().checkpoint(wanted).trainer_path

    def _recipe(self) -> Train:
        if self._train_function is not None:
            return self._train_function
        from engine.recipes.registry import train_of

        return train_of(str(self._project.config.recipe))  # the SDK and the tokenizer come with it

    # -- the end ------------------------------------------------------------------------------------------------

    def _end(self, pulse: Pulse, recorder: RunRecorder, state: RunState, error: str | None) -> RunRow:
        """Tell the store how it ended. Blocks, bounded; a store that cannot be told is told of in the log."""
        assert self._row is not None
        self._row.state, self._row.error, self._row.ended_at = state, error, time.time()
        pulse.stop()
        try:
            self._tell_end(recorder, state, error)
        except StoreError as trouble:
            self._end_untold(state, trouble)
        try:
            self._store.close()
        except StoreError as trouble:
            self._end_untold(state, trouble)
        if self._lost is not None:
            self._row.state, self._row.error = RunState.ABORTED, self._lost
        return self._row

    def cut_off(self, why: str) -> RunRow | None:
        """Tell the store that the run ends with this process, from a thread, while its loop is blocked. Bounded.

        Returns the run's last row; None where no run has begun.
        """
        if self._recorder is None or self._row is None:
            return None
        # Claimed, but not started yet: there is nothing that could write over the end.
        if self._pulse is None:
            with suppress(StoreError):
                self._tell_end(self._recorder, RunState.ABORTED, why)
            return self._row
        return self._end(self._pulse, self._recorder, RunState.ABORTED, why)

    def _tell_end(self, recorder: RunRecorder, state: RunState, error: str | None) -> None:
        how = str(state) if error is None else f"{state}: {error}"
        # What a command asks is in the log when it asks; a signal, the app and the budget are told of here.
        if error is None and state in (RunState.STOPPED, RunState.ABORTED):
            how += "" if self.control.why in ("", "command") else f" (asked for by {self.control.why})"
        recorder.log("info" if error is None else "error", "host", f"Run {self.run_id} {how}")
        recorder.flush_blocking()
        self._store.end_run(self.run_id, self.host_id, state, error)
        recorder.close()
        self._row = self._store.reader().get_run(self.run_id) or self._row

    def _end_untold(self, state: RunState, trouble: StoreError) -> None:
        """The store does not know how the run ended; whoever waits for this host does."""
        log.error("the end of run %s (%s) could not be stored: %s", self.run_id, state, trouble)
        if self._row is not None:
            self._row.state, self._row.error = RunState.FAILED, str(trouble)

    def _store_failed(self, error: StoreError) -> None:
        """The writer cannot write: a run whose story cannot be told ends now, and says why."""
        if isinstance(error, PartLost):
            if self._recorder is not None:
                self._recorder.log("warning", "store", str(error))
            return
        self._store_error = error
        log.error("%s", error)
        self.control.abort("store", lost=True)

    def _taken_over(self, why: str) -> None:
        self._lost = why
        self.control.abort(why, lost=True)

    def _crashed(self, error: Exception) -> str:
        """An error nobody foresaw: one sentence, and the traceback where a developer finds it."""
        path = write_crash(self._store.project_dir, self._store.redactor.text, error)
        text = self._store.redactor.text(f"{type(error).__name__}: {error}".strip())
        return f"internal error: {' '.join(text.split())[:300]} (details in {path})"


def _of_recipe(config: AnySettings) -> dict[str, Any]:
    """What a run's row says of its recipe's own settings."""
    if isinstance(config, SftSettings):
        return {"mode": ""}
    training = config.training
    return {
        "mode": str(training.mode),
        "group_size": training.group_size,
        "groups_per_step": training.groups_per_step,
    }


async def _no_exit(training: Awaitable[Outcome]) -> Outcome:
    """asyncio lets a task's SystemExit through to the end of its loop, and with that of the run's true end."""
    try:
        return await training
    except SystemExit as error:
        raise RunFailed(f"the config's own code called sys.exit({error.code!r})") from error


async def _never() -> str:
    await asyncio.Event().wait()
    return ""


def write_crash(project_dir: Path, clean: Callable[[str], str], error: BaseException) -> Path:
    """Append a traceback, without secrets, to ``.loops/crash.log`` (0600); returns its path."""
    path = project_dir / STORE_DIRECTORY / "crash.log"
    text = "".join(traceback.format_exception(error))
    stamp = time.strftime("%Y-%m-%dT%H:%M:%S")
    try:
        path.parent.mkdir(mode=0o700, exist_ok=True)
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        with os.fdopen(descriptor, "w", encoding="utf-8", errors="backslashreplace") as file:
            file.write(f"--- {stamp} process {os.getpid()}\n{clean(text)}\n")
    except OSError as trouble:
        log.error("the traceback could not be written to %s: %s\n%s", path, trouble, clean(text))
    return path
