"""A run without a screen: in the main thread's place, with signals that drain."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from engine.hosting.host import RunHost, Train
from engine.hosting.local_server import LocalServer
from engine.hosting.prepare import require_sound
from engine.hosting.resuming import load_run, require_resumable
from engine.hosting.signals import FAILED, SignalDrain, exit_status, signals_to
from engine.recipes.control import RunControl
from engine.store.rows import RunRow


@dataclass(frozen=True, slots=True)
class HeadlessEnd:
    """How it went: the run's last row (None where none was begun) and the exit status."""

    run: RunRow | None
    status: int


async def run_headless(
    config: Path | str | None,
    overrides: Sequence[str],
    project_dir: Path,
    *,
    kind: str = "headless",
    told: Callable[[str], None] = lambda _: None,
    claimed: Callable[[str], None] = lambda _: None,
    cut_off: Callable[[HeadlessEnd], None] = lambda _: None,
    train: Train | None = None,
    resume: str | None = None,
) -> HeadlessEnd:
    """Load, check and run a config on this loop (the main thread's) until it has ended.

    With ``resume`` (a run, as a person names it) that run goes on from its last checkpoint; ``config`` is None then.

    ``told`` gets sentences for a person, ``claimed`` the run's id once it is in the store. The first SIGINT, SIGTERM
    or SIGHUP stops the run after the step in flight, the second aborts it. A third one ends the process where the
    loop is blocked and neither was seen; ``cut_off`` gets what there is to tell of the run before that.

    ``told`` and ``cut_off`` may be called from another thread.

    Raises ConfigError, CheckFailed, HostingError or StoreError before the run has begun; later everything is in the
    run's row.
    """
    control = RunControl()
    main = asyncio.current_task()
    begun = False

    loop = asyncio.get_running_loop()
    host: RunHost | None = None

    def end_before_it_begins(name: str) -> None:
        if begun:  # meanwhile
            control.stop_after_step(name, "interrupt")
        elif main is not None:
            main.cancel()

    def drain(name: str) -> None:
        if begun:
            control.stop_after_step(name, "interrupt")
            told(f"{name}: stopping after the step in hand; once more to abort")
        else:
            loop.call_soon_threadsafe(end_before_it_begins, name)
            told(f"{name}: nothing has been started yet; ending")

    def force(name: str) -> None:
        control.abort(name, "interrupt")
        told(f"{name}: aborting, releasing what the run holds")

    def give_up(name: str) -> None:
        told(
            f"{name}: the engine is blocked and cannot abort; ending the process. Sandboxes that it leaves behind are "
            "in the list of leases, and `loops-tui cleanup` releases them"
        )
        status = signals.status or FAILED
        try:
            row = (
                None
                if host is None
                else host.cut_off(f"the process was ended by {name} while it was blocked")
            )
            cut_off(HeadlessEnd(row, status))
        finally:
            os._exit(status)  # nothing less ends a process whose main thread does not come back

    signals = SignalDrain(drain, force, give_up)
    server = LocalServer(project_dir)
    with signals_to(signals, loop):
        try:
            project, resumption = await asyncio.to_thread(load_run, config, overrides, project_dir, resume)
            try:
                await require_sound(project, project_dir, server, told)
                if resumption is not None:
                    await require_resumable(project, resumption, project_dir, told)
                host = RunHost(
                    project,
                    project_dir,
                    server,
                    kind=kind,
                    control=control,
                    train=train,
                    resumption=resumption,
                )
                begun = True
                claimed(await asyncio.to_thread(host.begin))
                run = await host.run()
            finally:
                project.close()
        except asyncio.CancelledError:
            if signals.status is None or begun:
                raise
            return HeadlessEnd(None, signals.status)
        finally:
            await asyncio.shield(asyncio.to_thread(server.close))
    return HeadlessEnd(run, exit_status(run.state, signals.status))
