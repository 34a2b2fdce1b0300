"""One attempt of one group: its policy, its sandbox, its seeds, and the telling of it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from engine.config.settings import Settings
from engine.episodes.contract import Episode
from engine.episodes.places import Places
from engine.episodes.runtime import AttemptPlan, AttemptResult, Deadlines, run_attempt
from engine.policy.conversation import ConversationTrace, Model, ReplyLimits
from engine.policy.first_replies import FirstReplies
from engine.policy.rendering import PolicyRenderer
from engine.policy.tokens import Sampler
from engine.recipes.contract import RunHandle
from engine.recipes.repeats import Repeats
from engine.recipes.rl.comparing import compare
from engine.recipes.rl.groups import Group
from engine.recipes.rl.order import WHOLE_GROUP, sampling_seed
from engine.recipes.rl.report import Reporter
from engine.sandboxes.for_run import RunSandboxes


class Rollout:
    """Runs attempts for a schedule; see ``AttemptPlan`` for the parts. ``sandboxes`` is None without any.

    ``first``: where the attempts of a group share the call for their first replies.
    """

    def __init__(
        self,
        *,
        handle: RunHandle,
        settings: Settings,
        reporter: Reporter,
        sampler: Sampler,
        renderer: PolicyRenderer,
        episode: type[Episode[Any, Any]],
        options: Any,
        deadlines: Deadlines,
        sandboxes: RunSandboxes | None,
        first: FirstReplies | None = None,
    ) -> None:
        self._handle, self._training, self._reporter = handle, settings.training, reporter
        self._sampler, self._first, self._renderer = sampler, first, renderer
        self._episode, self._options = episode, options
        self._deadlines, self._sandboxes = deadlines, sandboxes
        self._repeats = Repeats()
        self._limits = ReplyLimits(settings.model.max_seq_len, settings.sampling.max_tokens)

    async def attempt(self, group: Group, attempt: int, places: Places) -> AttemptResult:
        """Run attempt ``attempt`` of a group to its end, within ``places``. Raises only what ends the run (see ``run_attempt``)."""

        def log(level: str, text: str) -> None:
            news = self._repeats.news(text)
            if news is not None:
                self._handle.log(level, "episode", f"group {group.group_id} attempt {attempt}: {news}")

        def model(trace: ConversationTrace, tried: int, waiting: Callable[[bool], None]) -> Model:
            return Model(
                sampler=self._sampler_of(group, attempt, tried),
                renderer=self._renderer,
                limits=self._limits,
                trace=trace,
                seed=lambda call: sampling_seed(self._training.seed, group.group_id, attempt, tried, call),
                affinity_key=f"{self._handle.run_id}-{group.group_id}",
                waiting=waiting,
            )

        sandboxes = self._sandboxes
        plan = AttemptPlan(
            episode=self._episode,
            task=group.task,
            options=self._options,
            attempt=attempt,
            deadlines=self._deadlines,
            max_retries=self._training.max_rollout_retries,
            model=model,
            sandboxes=sandboxes.source(group.group_id, attempt, log) if sandboxes is not None else None,
            places=places,
        )
        result = await run_attempt(
            plan, changed=lambda state: self._reporter.attempt_phase(group, attempt, state), log=log
        )
        if result.episode is None:  # otherwise it is still to be compared with the others of its group
            self._reporter.attempt_ended(group, attempt, result)
        return result

    def _sampler_of(self, group: Group, attempt: int, tried: int) -> Sampler:
        if self._first is None or tried > 1:
            return self._sampler
        seed = sampling_seed(self._training.seed, group.group_id, WHOLE_GROUP, tried, 0)
        return self._first.of(group.group_id, group.size, attempt, seed, self._sampler)

    async def compare(self, group: Group) -> None:
        """A group's last attempt has ended: grade them against each other, where their episode does so."""
        if self._first is not None:
            self._first.forget(group.group_id)
        waiting = [
            (number, result) for number, result in enumerate(group.results) if result and result.episode
        ]
        if not waiting:
            return

        def log(level: str, text: str) -> None:
            self._handle.log(level, "episode", f"group {group.group_id}: {text}")

        problem = await compare(group.results, self._deadlines.grading, log)
        if problem is not None:
            log("warning", problem)
        for number, result in waiting:
            self._reporter.attempt_ended(group, number, result)
