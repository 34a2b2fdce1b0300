"""Weights that a person tries, held open on the engine's loop until they are closed; filled from ``engine.hosting``."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from loops_tui.loops_ports import ActFailed, Told

if TYPE_CHECKING:
    from engine.hosting.trying import Said, Trial, TrialAttempt, TrialSampling, WeightsAsked

RELEASE_SECONDS = 60.0


class CarryOut(Protocol):
    """Runs a coroutine on the engine's loop and waits for it. Raises ActFailed."""

    def __call__[T](self, make: Callable[[], Coroutine[Any, Any, T]]) -> T: ...


class TrialFromHere:
    """``OpenTrial`` of one project directory. ``told`` hears of the sampler: what it is, what it bills, its release."""

    def __init__(
        self,
        project_dir: Path,
        carry_out: CarryOut,
        asked: WeightsAsked,
        *,
        system: str | None,
        with_sandboxes: bool,
        told: Told,
    ) -> None:
        """Opens the weights; blocks until they answer. Raises ActFailed."""
        self._carry_out = carry_out
        self._opened: Future[tuple[Trial, asyncio.AbstractEventLoop, asyncio.Event]] = Future()

        async def hold() -> None:
            from engine.hosting.trying import open_trial

            async with open_trial(
                project_dir, asked, system=system, with_sandboxes=with_sandboxes, told=told
            ) as trial:
                ends = asyncio.Event()
                self._opened.set_result((trial, asyncio.get_running_loop(), ends))
                await ends.wait()

        def keep() -> None:
            try:
                carry_out(hold)
            except Exception as error:  # noqa: BLE001 - raised where the opening was asked for, or told
                if self._opened.done():
                    told(f"the sampler may not be released: {error}")
                else:
                    self._opened.set_exception(error)

        self._keeper = threading.Thread(target=keep, name="trial", daemon=True)
        self._keeper.start()
        self._trial, self._loop, self._ends = self._opened.result()

    @property
    def name(self) -> str:
        return self._trial.name

    def use(self, sampling: TrialSampling) -> None:
        async def use() -> None:
            self._trial.use(sampling)

        self._carry_out(use)

    def forget(self) -> None:
        async def forget() -> None:
            self._trial.forget()

        self._carry_out(forget)

    def say(self, text: str) -> Said:
        return self._carry_out(lambda: self._trial.say(text))

    def attempt(self, task: int, told: Told) -> TrialAttempt:
        return self._carry_out(
            lambda: self._trial.attempt(
                task,
                changed=lambda state: told(str(state)),
                log=lambda level, text: told(f"{level}: {text}"),
            )
        )

    def close(self) -> None:
        self._loop.call_soon_threadsafe(self._ends.set)
        self._keeper.join(RELEASE_SECONDS)
        if self._keeper.is_alive():
            raise ActFailed(
                "the sampler is not released yet; loops-tui runs --account lists what is still up"
            )
