"""What a run has used so far, against what it may use: ``[budget]`` and ``[prices]``.

Hours, tokens and sandboxes are counted over all sittings of a run: a resumed run goes on from what its row says.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from engine.config.spending import BudgetSettings, PriceSettings, amount_words
from engine.policy.first_replies import ManySampler
from engine.policy.tokens import Completion, Sampler

LOOK_SECONDS = 2.0
"""How often the meter is read; a bound is passed by this much at most, plus the step in flight."""
NEAR = 0.8
"""The share of a bound at which a run warns."""

#: Each bound of [budget], and the entry of the spend that it bounds.
BOUNDS: tuple[tuple[str, str], ...] = (
    ("max_hours", "hours"),
    ("max_sandbox_hours", "sandbox_hours"),
    ("max_tokens", "tokens"),
    ("max_cost", "cost"),
)


@dataclass(frozen=True, slots=True)
class SandboxTime:
    """How long a run's sandboxes have existed, in hours; ``gb_hours`` weighs each with its memory in GB."""

    hours: float = 0.0
    gb_hours: float = 0.0


class Clock(Protocol):
    """Seconds that do not jump."""

    def __call__(self) -> float: ...


class SpendMeter:
    """Counts what one run uses. ``sandboxes`` is asked for the totals of the lease journal, over all sittings.

    A dedicated trainer and sampler are priced by the hours of the run; a serverless one by its tokens.
    """

    def __init__(
        self,
        budget: BudgetSettings,
        prices: PriceSettings,
        *,
        before: dict[str, Any] | None = None,
        scope: str = "local",
        replicas: int = 1,
        sandboxes: Callable[[], SandboxTime] = SandboxTime,
        clock: Clock = time.monotonic,
    ) -> None:
        self._budget, self._prices = budget, prices
        self._scope, self._replicas = scope, replicas
        self._sandboxes, self._clock = sandboxes, clock
        self._began = clock()
        start = before or {}
        self._hours = float(start.get("hours", 0.0))
        self._prompt = int(start.get("prompt_tokens", 0))
        self._sampled = int(start.get("sampled_tokens", 0))
        self._trained = int(start.get("trained_tokens", 0))
        self._told: set[str] = set()
        self._told_spend: Callable[[dict[str, Any]], None] = lambda _: None
        self._warn: Callable[[str], None] = lambda _: None
        self._stop: Callable[[str], None] = lambda _: None

    def tell(
        self,
        told: Callable[[dict[str, Any]], None],
        warn: Callable[[str], None],
        stop: Callable[[str], None],
    ) -> None:
        """Who listens: ``told`` to every reading, ``warn`` to sentences, ``stop`` to the key of a bound used up."""
        self._told_spend, self._warn, self._stop = told, warn, stop

    def metered(self, sampler: Sampler) -> Sampler:
        """The same sampler, its tokens counted: those of retried and discarded replies too, for they bill."""
        return _Metered(sampler, self)

    def metered_many(self, sampler: ManySampler) -> ManySampler:
        """As :meth:`metered`; a prompt is counted once for each call, for it is read once."""
        return _MeteredMany(sampler, self)

    def sampled(self, prompt: int, reply: int) -> None:
        """Count one model call's tokens."""
        self._prompt += prompt
        self._sampled += reply

    @property
    def sampled_tokens(self) -> int:
        """Tokens of all replies so far."""
        return self._sampled

    def trained(self, tokens: int) -> None:
        """Count the tokens of a batch that the trainer was given."""
        self._trained += tokens

    def read(self) -> dict[str, Any]:
        """The spend as ``RunRow.spend`` holds it. Asks the store for the sandboxes: call it in a thread."""
        hours = self._hours + (self._clock() - self._began) / 3600.0
        sandboxes = self._sandboxes()
        spend: dict[str, Any] = {
            "hours": round(hours, 4),
            "sandbox_hours": round(sandboxes.hours, 4),
            "sandbox_gb_hours": round(sandboxes.gb_hours, 4),
            "prompt_tokens": self._prompt,
            "sampled_tokens": self._sampled,
            "trained_tokens": self._trained,
        }
        cost = self._cost(hours, sandboxes)
        if cost is not None:
            spend["cost"] = round(cost, 4)
            spend["currency"] = self._prices.currency
        near = [key for key, share in self.shares(spend).items() if share >= NEAR]
        if near:
            spend["near"] = near[0]
        return spend

    def shares(self, spend: dict[str, Any]) -> dict[str, float]:
        """How much of each bound that is set has been used; 1.0 is all of it."""
        used = {**spend, "tokens": spend["prompt_tokens"] + spend["sampled_tokens"]}
        shares: dict[str, float] = {}
        for key, name in BOUNDS:
            bound = getattr(self._budget, key)
            if bound is not None and name in used:
                shares[key] = used[name] / bound
        return shares

    def news(self, spend: dict[str, Any]) -> list[tuple[str, str, bool]]:
        """What has not been said yet: (bound, sentence, whether it is used up)."""
        said: list[tuple[str, str, bool]] = []
        used = {**spend, "tokens": spend["prompt_tokens"] + spend["sampled_tokens"]}
        for key, name in BOUNDS:
            share = self.shares(spend).get(key)
            if share is None or share < NEAR:
                continue
            full = share >= 1.0
            mark = f"{key} {'full' if full else 'near'}"
            if mark in self._told:
                continue
            self._told.add(mark)
            bound = amount_words(getattr(self._budget, key))
            amount = amount_words(used[name])
            sentence = f"[budget] {key}: {amount} of {bound} used ({share:.0%})"
            if full:
                sentence += "; the run ends after the step in hand, with a checkpoint"
            said.append((key, sentence, full))
        return said

    async def watch(self) -> None:
        """Look now and then until cancelled."""
        while True:
            await self.look()
            await asyncio.sleep(LOOK_SECONDS)

    async def look(self) -> None:
        """Read the meter and tell whoever listens; after each step, so that no further one begins out of budget."""
        spend = await asyncio.to_thread(self.read)
        self._told_spend(spend)
        for key, sentence, full in self.news(spend):
            self._warn(sentence)
            if full:
                self._stop(key)

    def _cost(self, hours: float, sandboxes: SandboxTime) -> float | None:
        """What is known of the cost; None where no price that applies here is given."""
        prices = self._prices
        parts: list[tuple[float | None, float]] = [(prices.sandbox_gb_hour, sandboxes.gb_hours)]
        if self._scope == "dedicated":
            parts += [(prices.trainer_hour, hours * self._replicas), (prices.sampler_hour, hours)]
        elif self._scope != "local":
            parts += [
                (prices.prompt_million, self._prompt / 1e6),
                (prices.sampled_million, self._sampled / 1e6),
                (prices.trained_million, self._trained / 1e6),
            ]
        known = [price * amount for price, amount in parts if price is not None]
        return sum(known) if known else None


class _Metered:
    """A sampler that counts."""

    def __init__(self, sampler: Sampler, meter: SpendMeter) -> None:
        self._sampler, self._meter = sampler, meter

    async def sample(
        self, prompt: Sequence[int], *, max_tokens: int, seed: int | None, affinity_key: str | None
    ) -> Completion:
        completion = await self._sampler.sample(
            prompt, max_tokens=max_tokens, seed=seed, affinity_key=affinity_key
        )
        self._meter.sampled(len(prompt), len(completion.tokens))
        return completion


class _MeteredMany:
    """A sampler of many that counts."""

    def __init__(self, sampler: ManySampler, meter: SpendMeter) -> None:
        self._sampler, self._meter = sampler, meter

    async def sample_many(
        self,
        prompt: Sequence[int],
        count: int,
        *,
        max_tokens: int,
        seed: int | None,
        affinity_key: str | None,
    ) -> list[Completion]:
        completions = await self._sampler.sample_many(
            prompt, count, max_tokens=max_tokens, seed=seed, affinity_key=affinity_key
        )
        self._meter.sampled(len(prompt), sum(len(completion.tokens) for completion in completions))
        return completions
