"""How much a run will take: attempts, model calls, tokens, sandbox-hours, wall time, cost.

From the config alone before a first run, where limits give upper bounds; from what earlier runs of the config
measured afterwards.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from engine.config.report import CheckReport, Severity
from engine.config.settings import Settings
from engine.config.spending import amount_words
from engine.config.values import LARGEST
from engine.store.measured import Measured

if TYPE_CHECKING:
    from engine.project import Project

#: Names under which an episode's options bound its turns.
_TURN_LIMITS = ("max_turns", "max_steps", "max_calls", "turns")
#: Standard deviations to either side that hold nine values in ten.
NINE_IN_TEN = 1.645
#: A range that reaches this much further than the estimate is told.
TOLD = 0.05


@dataclass(frozen=True, slots=True)
class Estimate:
    """What a run to ``max_steps`` will take. ``measured`` False: the amounts are upper bounds from limits.

    ``attempts`` of an unmeasured estimate is a lower bound: groups that teach nothing are sampled again. How often is
    chance, and late in a run that learns its tasks to the end it is most of what a run takes: ``attempts_low`` and
    ``attempts_high`` are where nine runs in ten end, as far as the earlier ones show it. Times are in seconds:
    ``wall_low`` with the configured concurrency packed without a gap and the quickest update, ``wall_high`` one attempt
    after another; measured ones are made from the two ends of the attempts. None: the config does not bound it.
    Evaluations and what comes before the first step are in none of them.
    """

    measured: bool
    runs: int  # earlier runs that it is made from
    same_groups: bool  # False: groups of another size, so how many teach nothing is not known
    measured_steps: int  # of all of them together
    steps: int
    attempts: int
    attempts_low: int
    attempts_high: int | None
    calls: int | None
    prompt_tokens: int | None
    sampled_tokens: int | None
    sandbox_hours: float
    wall_low: float
    wall_high: float
    cost: float | None
    currency: str

    def to_json(self) -> dict[str, Any]:
        """For ``check --json``."""
        return asdict(self)


def estimate(
    settings: Settings, scope: str, options: Any, clock_seconds: float, measured: Measured | None
) -> Estimate:
    """What a run of these settings takes; ``clock_seconds`` is the longest that one attempt may last."""
    training = settings.training
    batch, slots = training.group_size * training.groups_per_step, settings.max_concurrent_rollouts
    sandboxed = settings.runtime.config.sandbox is not None
    steps = training.max_steps
    if measured is not None:
        measured = measured.with_batch(batch)
        attempts = measured.attempts_per_step * steps
        fewest, most = _range(steps, training.group_size, measured)
        calls: float | None = attempts * measured.calls_per_attempt
        prompts: float | None = attempts * measured.prompt_tokens_per_attempt
        sampled: float | None = attempts * measured.sampled_tokens_per_attempt
        sandbox_hours = attempts * measured.sandbox_seconds / 3600.0
        bounded = partial(
            shortest,
            steps=steps,
            slots=slots,
            off_policy=settings.max_steps_off_policy,
            attempt=measured.slot_seconds,
        )
        packed = bounded(attempts=attempts, update=measured.update_seconds)
        low = bounded(attempts=fewest, update=measured.quickest_update)
        high = most * measured.attempt_seconds + steps * measured.update_seconds
    else:
        attempts = float(steps * batch)
        turns = turn_limit(options)
        calls = None if turns is None else attempts * turns
        sampled = None if calls is None else calls * settings.sampling.max_tokens
        prompts = None if calls is None else calls * settings.model.max_seq_len
        sandbox_hours = attempts * clock_seconds / 3600.0 if sandboxed else 0.0
        low, high = steps * math.ceil(batch / slots) * clock_seconds, attempts * clock_seconds
        fewest, most, packed = attempts, None, low
    return Estimate(
        measured=measured is not None,
        runs=measured.runs if measured is not None else 0,
        same_groups=measured is None or measured.same_groups,
        measured_steps=measured.steps if measured is not None else 0,
        steps=steps,
        attempts=round(attempts),
        attempts_low=round(fewest),
        attempts_high=_whole(most),
        calls=_whole(calls),
        prompt_tokens=_whole(prompts),
        sampled_tokens=_whole(sampled),
        sandbox_hours=sandbox_hours,
        wall_low=low,
        wall_high=high,
        cost=_cost(
            settings, scope, prompts=prompts, sampled=sampled, sandbox_hours=sandbox_hours, seconds=packed
        ),
        currency=settings.prices.currency,
    )


def _range(steps: int, group: int, measured: Measured) -> tuple[float, float]:
    """The fewest and the most attempts of nine runs in ten, in whole groups of ``group`` attempts.

    A step's groups are what it takes at least; it is how many are rejected that varies. Their number in another run
    differs from the mean of the earlier ones by the chance of both. It is never negative and its large values lie far
    out, so it is taken for log-normal; and for one more than was seen, as few or none may have been luck.
    """
    longer = steps / measured.steps
    least = measured.batch * steps
    again = (measured.attempts_per_step - measured.batch) * steps / group + longer
    variance = (measured.attempts_variance * measured.steps / group**2 + 1.0) * longer * (1.0 + longer)
    factor = math.exp(NINE_IN_TEN * math.sqrt(math.log1p(variance / again**2)))
    return least + group * math.floor(again / factor), least + group * math.ceil(again * factor)


def shortest(
    *, steps: int, attempts: float, slots: int, off_policy: int, attempt: float, update: float
) -> float:
    """Seconds below which no schedule gets: whatever waits for something else is packed without a gap.

    ``attempt`` and ``update`` are the seconds of one. In sync mode (``off_policy`` 0) sampling and updates take turns.
    Where samples may be k updates old, they overlap, and three things bound a run: all updates after the first attempt;
    all that samples before the last update; and, k + 1 steps apart, an attempt that has to wait for an update that had
    to wait for an attempt.
    """
    sampling = attempts * attempt / slots
    chained = steps / (off_policy + 1) * (attempt + update)
    if off_policy == 0:
        return max(chained, sampling + steps * update)
    return max(chained, sampling + update, steps * update + attempt)


def turn_limit(options: Any) -> int | None:
    """The turns that an episode's options allow, by the usual names; None where none of them is set."""
    for name in _TURN_LIMITS:
        value = getattr(options, name, None)
        if isinstance(value, int) and not isinstance(value, bool) and 0 < value <= LARGEST:
            return value
    return None


def _cost(
    settings: Settings,
    scope: str,
    *,
    prompts: float | None,
    sampled: float | None,
    sandbox_hours: float,
    seconds: float,
) -> float | None:
    """What the known prices add up to at the shorter wall time; None where no price that applies is given."""
    prices, sandbox = settings.prices, settings.runtime.config.sandbox
    gb = sandbox.memory_mb / 1024.0 if sandbox is not None else 0.0
    parts: list[tuple[float | None, float | None]] = [(prices.sandbox_gb_hour, sandbox_hours * gb)]
    if scope == "dedicated":
        hours = seconds / 3600.0
        parts += [
            (prices.trainer_hour, hours * (settings.compute.replicas or 1)),
            (prices.sampler_hour, hours),
        ]
    elif scope != "local":
        parts += [
            (prices.prompt_million, None if prompts is None else prompts / 1e6),
            (prices.sampled_million, None if sampled is None else sampled / 1e6),
            (prices.trained_million, None if sampled is None else sampled / 1e6),
        ]
    known = [price * amount for price, amount in parts if price is not None and amount is not None]
    return sum(known) if known else None


def lines(found: Estimate, settings: Settings) -> Iterator[str]:
    """The estimate in words."""
    training = settings.training
    batch = f"{found.steps:,} steps × {training.groups_per_step} × {training.group_size}"
    most = "" if found.measured else "at most "
    if found.measured:
        again = found.attempts / (found.steps * training.groups_per_step * training.group_size)
        if again > 1.01:
            batch = f"{again:.2f} × {batch}: groups that taught nothing were sampled again"
        yield f"Estimate, from what {_source(found)}: {found.attempts:,} attempts{_likely(found)} ({batch})"
    else:
        yield (
            f"Estimate, from the config alone: {batch} = {found.attempts:,} attempts, and more where groups teach "
            "nothing or attempts are tried again; for these:"
        )
    if found.calls is None:
        yield "  model calls: as many as the episode makes; its options name no limit such as max_turns"
    else:
        prompts, sampled = found.prompt_tokens or 0, found.sampled_tokens or 0
        yield (
            f"  model calls: {most}{found.calls:,}; tokens: {most}{_short(prompts)} prompt, {most}{_short(sampled)} "
            "sampled"
        )
    together = f"{settings.max_concurrent_rollouts} at once"
    if found.measured:
        how = "without a gap" if settings.max_steps_off_policy == 0 else "sampling while it trains"
        wall = f"from {_time(found.wall_low)} ({together}, {how}) to {_time(found.wall_high)} (one by one)"
        yield f"  wall time, updates included: {wall}"
    else:
        wall = f"at most {_time(found.wall_low)} ({together}) or {_time(found.wall_high)} (one by one)"
        yield f"  wall time by the rollout clock, updates not included: {wall}"
    if settings.runtime.config.sandbox is not None:
        yield f"  sandbox-hours: {most}{found.sandbox_hours:.2f}"
    if found.cost is not None:
        yield f"  cost at the given prices: {most}{found.cost:.2f} {found.currency}"


def _source(found: Estimate) -> str:
    """Whose figures they are, and of how many steps where those runs were shorter."""
    runs = "an earlier run" if found.runs == 1 else f"{found.runs} earlier runs"
    if not found.same_groups:
        runs += " with groups of another size"
    if found.measured_steps >= found.runs * found.steps:
        return f"{runs} measured"
    steps = "1 step" if found.measured_steps == 1 else f"{found.measured_steps:,} steps"
    return f"{runs} measured in {steps}"


def _likely(found: Estimate) -> str:
    high = found.attempts_high or 0
    if not found.same_groups:
        return ", or quite another number: fewer large groups teach nothing than small ones"
    return f", likely {found.attempts_low:,} to {high:,}" if high > found.attempts * (1 + TOLD) else ""


def check_estimate(
    project: Project, options: Any, clock_seconds: float, measured: Measured | None, report: CheckReport
) -> None:
    """Add the estimate to the report, and a warning for each bound of [budget] that it passes."""
    settings = project.rl
    found = estimate(settings, str(project.scope), options, clock_seconds, measured)
    report.estimate = found.to_json()
    report.lines += lines(found, settings)
    for key, amount in _amounts(found):
        bound = getattr(settings.budget, key)
        if bound is None or amount is None or amount <= bound:
            continue
        if found.measured:
            said = f"the estimate passes [budget] {key}: {amount_words(amount)} of {amount_words(bound)}; the run would end before its"
            said += f" last step, after about step {int(found.steps * bound / amount)} of {found.steps}"
        else:
            said = f"the limits of the config allow more than [budget] {key}: {amount_words(amount)} of {amount_words(bound)}"
        remedy = "Raise it, or lower [training] max_steps or the batch"
        report.add(Severity.WARNING, project.loaded.problem(f"budget.{key}", said, remedy))


def _amounts(found: Estimate) -> Iterator[tuple[str, float | None]]:
    tokens = None
    if found.prompt_tokens is not None and found.sampled_tokens is not None:
        tokens = float(found.prompt_tokens + found.sampled_tokens)
    yield "max_hours", found.wall_low / 3600.0
    yield "max_sandbox_hours", found.sandbox_hours
    yield "max_tokens", tokens
    yield "max_cost", found.cost


def _whole(amount: float | None) -> int | None:
    return None if amount is None else round(amount)


def _short(number: float) -> str:
    for size, unit in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if number >= size:
            return f"{number / size:.3g}{unit}"
    return f"{number:.0f}"


def _time(seconds: float) -> str:
    if seconds < 120:
        return f"{seconds:.0f} s"
    if seconds < 7200:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.1f} h"
