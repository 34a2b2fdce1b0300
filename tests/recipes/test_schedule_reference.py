"""The engine's schedule takes exactly as long as the work-conserving reference, on a clock that leaps over all waiting."""

from __future__ import annotations

import asyncio

import pytest

from tests.bench.schedule import Case, LeapingLoop, play
from tests.bench.schedule_reference import reference

STEPS = 12
#: Of the time that the reference takes: what of one moment comes first is not the same in both.
SAME = 0.005


@pytest.mark.parametrize("faulty", [False, True], ids=["sound", "faulty"])
@pytest.mark.parametrize("k", [0, 1, 2, 4])
@pytest.mark.parametrize("slots", [16, 64])
def test_no_time_is_lost(slots: int, k: int, faulty: bool) -> None:
    case = Case(slots, 2.0, k, 3, faulty)
    with asyncio.Runner(loop_factory=LeapingLoop) as runner:
        played = runner.run(play(case, STEPS))
    needed = reference(case.load, slots=slots, update=2.0, k=k, ahead=case.ahead, steps=STEPS)
    assert played.seconds <= needed * (1 + SAME)
    assert played.staleness <= k
    assert played.discarded == 0
