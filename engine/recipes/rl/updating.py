"""One update: train on a step's groups, publish, see that the new policy serves, and tell how old the samples were."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from engine.config.settings import Settings
from engine.loops.canary import Canary
from engine.loops.policy_gradient import TrainResult
from engine.loops.session import LoopsSession
from engine.recipes.contract import RunFailed
from engine.recipes.rl.batch import loss_config, pack
from engine.recipes.rl.groups import Group
from engine.recipes.rl.schedule import Schedule


@dataclass(frozen=True, slots=True)
class Updated:
    """What an update took, in seconds, and what it told. ``held``: waiting for attempts before the publish."""

    result: TrainResult
    metrics: dict[str, float]
    train: float
    held: float
    publish: float


class Updater:
    """Gives the trainer a step's groups and the sampler the weights that come of it."""

    def __init__(
        self,
        settings: Settings,
        session: LoopsSession,
        schedule: Schedule,
        canary: Canary,
        *,
        phase: Callable[[str], None],
        warn: Callable[[str], None],
    ) -> None:
        self._settings, self._session, self._schedule = settings, session, schedule
        self._canary, self._phase, self._warn = canary, phase, warn

    async def update(self, groups: Sequence[Group], step: int) -> Updated:
        """Make optimizer step ``step`` of these groups and publish it; the schedule goes on from there.

        Raises:
            RunFailed: the sampler answered with weights that are too old.
            LoopsUnavailable: the trainer or the sampler is gone.
        """
        training, session = self._settings.training, self._session
        behind = step - 1  # the weights that are trained now
        for group in groups:
            problem = version_problem(group, behind, self._settings.max_policy_delta_in_trajectory)
            if problem is not None:
                raise RunFailed(problem)
        ordered = sorted(groups, key=lambda group: group.group_id)
        lags = [behind - group.policy_version for group in ordered]
        off_policy = self._settings.max_steps_off_policy > 0
        begun = time.monotonic()
        batches = await asyncio.to_thread(pack, ordered)  # a large batch takes its time
        first = next((datum for batch in batches for datum in batch), None)
        if first is not None:
            await self._canary.before_first(first.tokens)
        result = await session.train(
            batches,
            loss=training.loss,
            loss_config=loss_config(training.loss_config, training.loss_aggregation),
            adam={
                "learning_rate": training.learning_rate,
                "beta1": training.beta1,
                "beta2": training.beta2,
                "eps": training.eps,
                "weight_decay": training.weight_decay,
                "grad_clip_norm": training.grad_clip_norm,
            },
            behind=behind if off_policy else None,
        )
        trained = time.monotonic()
        self._phase("waiting to publish")
        await self._schedule.may_publish()
        allowed = time.monotonic()
        self._phase("publishing")
        await session.publish(step, self._warn)
        # Asked first, so that it is not queued behind the groups that begin now; they need not wait for its answer.
        gradient = result.metrics.get("optim/grad_norm")
        looking = asyncio.create_task(self._canary.after_publish(step, gradient), name="canary")
        self._schedule.published()
        metrics = await looking
        published = time.monotonic()
        if off_policy:
            metrics |= lag_metrics(lags)
        return Updated(result, metrics, trained - begun, allowed - trained, published - allowed)


def lag_metrics(lags: Sequence[int]) -> dict[str, float]:
    """``lag/…``: how many updates the policies of the trained groups were behind the weights that were trained."""
    return {
        "lag/mean": sum(lags) / len(lags),
        "lag/max": float(max(lags)),
        **{f"lag/groups/{lag}": float(count) for lag, count in sorted(Counter(lags).items())},
    }


def version_problem(group: Group, behind: int, delta: int) -> str | None:
    """Why a group's replies must not be trained on: one sentence, or None.

    ``behind``: the version that is trained. ``delta``: versions that one attempt may cross.
    """
    for attempt, result in enumerate(group.results):
        versions = result.trace.versions if result is not None else []
        if not versions:
            continue
        low, high = min(versions), max(versions)
        if low < group.policy_version or high > behind or high - low > delta:
            seen = f"version {low}" if low == high else f"versions {low} to {high}"
            return (
                f"the sampler answered attempt {attempt} of group {group.group_id} with policy {seen}; from "
                f"{group.policy_version} to {behind} were asked for, {delta} updates apart at most: it serves weights "
                "that training must not use"
            )
    return None
