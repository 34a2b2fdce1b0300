"""What the live figures say of the event loop."""

from __future__ import annotations

import asyncio

import pytest

from engine.recipes.rl.pace import TICK_SECONDS, WINDOW_SECONDS, LoopLag


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


def tick(lag: LoopLag, clock: Clock, late: float = 0.0) -> None:
    due = clock.now + TICK_SECONDS
    clock.now = due + late
    lag.ticked(due)


def test_a_loop_on_time_is_not_late(clock: Clock) -> None:
    lag = LoopLag(clock)
    assert lag.read() == {}
    for _ in range(100):
        tick(lag, clock)
    assert lag.read() == {"loop_lag_p50": 0.0, "loop_lag_p99": 0.0, "loop_lag_max": 0.0}


def test_a_stand_still_counts_for_as_long_as_it_lasted(clock: Clock) -> None:
    """One tick of a thousand is late, but by two of sixteen seconds: the 99th percentile shows it."""
    lag = LoopLag(clock)
    for _ in range(280):
        tick(lag, clock)
    tick(lag, clock, late=2.0)
    figures = lag.read()
    assert figures["loop_lag_max"] == 2.0
    assert figures["loop_lag_p99"] > 1.5
    assert figures["loop_lag_p50"] == 0.0


def test_what_is_older_than_the_window_is_forgotten(clock: Clock) -> None:
    lag = LoopLag(clock)
    tick(lag, clock, late=5.0)
    clock.now += WINDOW_SECONDS + 1
    tick(lag, clock)
    assert lag.read()["loop_lag_max"] == 0.0


def test_a_process_that_was_stopped_for_hours_counts_for_the_window_alone(clock: Clock) -> None:
    lag = LoopLag(clock)
    tick(lag, clock, late=36_000.0)
    assert len(lag._late) <= WINDOW_SECONDS / TICK_SECONDS + 1
    assert lag.read()["loop_lag_max"] == WINDOW_SECONDS


def test_a_step_is_told_of_its_own_lag(clock: Clock) -> None:
    lag = LoopLag(clock)
    tick(lag, clock, late=0.5)
    assert lag.of_step() == pytest.approx(0.5, abs=TICK_SECONDS)
    assert lag.of_step() is None
    tick(lag, clock)
    assert lag.of_step() == 0.0


async def test_it_watches_the_loop_that_it_runs_on() -> None:
    came = asyncio.Event()

    class Told(LoopLag):
        def ticked(self, due: float) -> None:
            super().ticked(due)
            came.set()

    lag = Told()
    watching = asyncio.create_task(lag.watch())
    await asyncio.wait_for(came.wait(), 120)
    watching.cancel()
    assert set(lag.read()) == {"loop_lag_p50", "loop_lag_p99", "loop_lag_max"}
