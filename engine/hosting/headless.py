"""A run without a screen: in the main thread's place, with signals that drain."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from engine.hosting.host import RunHost, Train
from engine.hosting.local_server import LocalServer
from engine.hosting.prepare import load_project, require_sound
from engine.hosting.signals import SignalDrain, exit_status, signals_to
from engine.recipes.control import RunControl
from engine.store.rows import RunRow


@dataclass(frozen=True, slots=True)
class HeadlessEnd:
    """How it went: the run's last row (None where none was begun) and the exit status."""

    run: RunRow | None
    status: int


async def run_headless(
    config: Path | str,
    overrides: Sequence[str],
    project_dir: Path,
    *,
    kind: str = "headless",
    told: Callable[[str], None] = lambda _: None,
    claimed: Callable[[str], None] = lambda _: None,
    train: Train | None = None,
) -> HeadlessEnd:
    """Load, check and run a config on this loop (the main thread's) until it has ended.

    ``told`` gets sentences for a person, ``claimed`` the run's id once it is in the store. The first SIGINT, SIGTERM
    or SIGHUP stops the run after the step in flight, the second aborts it.

    Raises ConfigError, CheckFailed, HostingError or StoreError before the run has begun; later everything is in the
    run's row.
    """
    control = RunControl()
    main = asyncio.current_task()
    begun = False

    def drain(name: str) -> None:
        if begun:
            control.stop_after_step(name)
            told(f"{name}: stopping after the step in hand; once more to abort")
        elif main is not None:
            main.cancel()
            told(f"{name}: nothing has been started yet; ending")

    def force(name: str) -> None:
        control.abort(name)
        told(f"{name}: aborting, releasing what the run holds")

    signals = SignalDrain(drain, force)
    server = LocalServer(project_dir)
    with signals_to(signals, asyncio.get_running_loop()):
        try:
            project = await asyncio.to_thread(load_project, config, overrides, project_dir)
            try:
                await require_sound(project, project_dir, server, told)
                host = RunHost(project, project_dir, server, kind=kind, control=control, train=train)
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
