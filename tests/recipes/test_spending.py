"""What a run has used is counted over all its sittings, priced where prices are known, and bounded."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from engine.config.spending import BudgetSettings, PriceSettings, amount_words
from engine.policy.tokens import Completion
from engine.recipes.spending import SandboxTime, SpendMeter


def budget(**bounds: float) -> BudgetSettings:
    return BudgetSettings.model_validate(bounds)


def prices(**each: float) -> PriceSettings:
    return PriceSettings.model_validate(each)


class Clock:
    def __init__(self) -> None:
        self.seconds = 0.0

    def __call__(self) -> float:
        return self.seconds


class Sampler:
    async def sample(self, prompt: Any, **_: Any) -> Completion:
        return Completion([1, 2, 3], [0.0] * 3, "stop", 0)


async def test_every_call_of_the_sampler_is_counted_and_a_resumed_run_goes_on_from_its_row() -> None:
    clock = Clock()
    before = {"hours": 1.5, "prompt_tokens": 100, "sampled_tokens": 10, "trained_tokens": 7}
    meter = SpendMeter(budget(), prices(), before=before, clock=clock)
    sampler = meter.metered(Sampler())
    for _ in range(4):
        await sampler.sample([0] * 5, max_tokens=9, seed=None, affinity_key=None)
    meter.trained(12)
    clock.seconds = 1800.0
    spend = meter.read()
    assert (spend["hours"], spend["prompt_tokens"], spend["sampled_tokens"]) == (2.0, 120, 22)
    assert spend["trained_tokens"] == 19
    assert "cost" not in spend
    assert "near" not in spend


@pytest.mark.parametrize(
    ("scope", "cost"),
    [
        ("local", 0.1 * 8.0),
        ("dedicated", 0.1 * 8.0 + 2.0 * (2 * 4.0 + 1.0)),
        ("serverless", 0.1 * 8.0 + 1.0 * 2.0 + 0.5 * 3.0 + 0.25 * 4.0),
    ],
)
def test_a_cost_is_the_sum_of_what_applies_where_the_run_goes(scope: str, cost: float) -> None:
    clock = Clock()
    given = prices(
        sandbox_gb_hour=0.1, trainer_hour=4.0, sampler_hour=1.0, prompt_million=2.0, sampled_million=3.0,
        trained_million=4.0,
    )  # fmt: skip
    meter = SpendMeter(
        budget(), given, scope=scope, replicas=2, sandboxes=lambda: SandboxTime(2.0, 8.0), clock=clock
    )
    meter.sampled(1_000_000, 500_000)
    meter.trained(250_000)
    clock.seconds = 2 * 3600.0
    assert meter.read()["cost"] == pytest.approx(cost)


def test_a_bound_warns_at_80_percent_and_stops_at_100_each_once() -> None:
    clock = Clock()
    meter = SpendMeter(budget(max_hours=1.0, max_tokens=1000), prices(), clock=clock)
    assert meter.news(meter.read()) == []
    clock.seconds = 0.85 * 3600
    spend = meter.read()
    assert spend["near"] == "max_hours"
    [(key, sentence, full)] = meter.news(spend)
    assert (key, full) == ("max_hours", False)
    assert "max_hours: 0.85 of 1 used (85%)" in sentence
    assert meter.news(meter.read()) == []
    meter.sampled(900, 100)
    [(key, sentence, full)] = meter.news(meter.read())
    assert (key, full) == ("max_tokens", True)
    assert "1,000 of 1,000 used" in sentence
    assert "ends after the step in hand, with a checkpoint" in sentence
    assert meter.news(meter.read()) == []


def test_amounts_of_any_size_can_be_read() -> None:
    told = [amount_words(value) for value in (0.0006, 0.85, 1.0, 1234.5, 30_400.0, 2e4, 1e15)]
    assert told == ["0.0006", "0.85", "1", "1,234.50", "30,400", "20,000", "1,000,000,000,000,000"]


async def test_the_watch_tells_every_reading_and_stops_the_run_at_its_bound() -> None:
    meter = SpendMeter(budget(max_sandbox_hours=1.0), prices(), sandboxes=lambda: SandboxTime(1.25, 2.5))
    told: list[dict[str, Any]] = []
    warned: list[str] = []
    stopped = asyncio.Event()
    meter.tell(told.append, warned.append, lambda _: stopped.set())
    watch = asyncio.create_task(meter.watch())
    try:
        await asyncio.wait_for(stopped.wait(), 120)
    finally:
        watch.cancel()
    assert told[0]["sandbox_hours"] == 1.25
    assert len(warned) == 1
