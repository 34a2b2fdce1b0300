"""What a config's evaluations are: tasks, episode, sampling, and whose weights."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from engine.config.spending import EvalSettings
from engine.config.tasks import load_tasks
from engine.episodes.contract import Episode, Task
from engine.episodes.runtime import Deadlines
from engine.loops.sampling import SamplingSettings
from engine.policy.conversation import ReplyLimits
from engine.policy.rendering import PolicyRenderer
from engine.sandboxes.for_run import RunSandboxes

if TYPE_CHECKING:
    from engine.config.settings import Settings


def held_out_tasks(settings: EvalSettings, task_type: Any) -> list[Task[Any]]:
    """The tasks of ``[eval] tasks``, validated. Raises ConfigError with all bad lines."""
    return [Task(task.value, task.id, task.index) for task in load_tasks(settings.tasks, task_type)]


@dataclass(frozen=True, slots=True)
class Weights:
    """Whose attempts are evaluated. ``name`` is what the evaluation is called, before it is made unique."""

    name: str
    target: str  # "live", "checkpoint" or "base"
    step: int | None = None
    checkpoint: str | None = None

    @classmethod
    def live(cls, step: int) -> Weights:
        """A run's own weights after ``step`` optimizer steps."""
        return cls(f"step-{step:06d}", "live", step)

    @classmethod
    def base(cls) -> Weights:
        return cls("base", "base")


@dataclass(frozen=True, slots=True)
class EvalPlan:
    """All that is fixed about a config's evaluations. ``sandboxes`` is None for an episode without one."""

    settings: EvalSettings
    tasks: list[Task[Any]]
    episode: type[Episode[Any, Any]]
    options: Any
    deadlines: Deadlines
    max_retries: int
    renderer: PolicyRenderer
    limits: ReplyLimits
    stop: list[str]  # strings that end a reply; none: the model's own tokens
    concurrent: int
    trace: str
    sandboxes: RunSandboxes | None

    @classmethod
    def of(
        cls,
        config: Settings,
        *,
        tasks: list[Task[Any]],
        episode: type[Episode[Any, Any]],
        options: Any,
        deadlines: Deadlines,
        renderer: PolicyRenderer,
        sandboxes: RunSandboxes | None,
    ) -> EvalPlan:
        """The plan of a config with ``[eval]``, for these tasks of its."""
        chosen = config.eval
        assert chosen is not None
        return cls(
            chosen,
            tasks,
            episode,
            options,
            deadlines,
            config.training.max_rollout_retries,
            renderer,
            ReplyLimits(config.model.max_seq_len, chosen.max_tokens or config.sampling.max_tokens),
            list(config.sampling.stop),
            chosen.max_concurrent or config.max_concurrent_rollouts,
            config.output.trace,
            sandboxes,
        )

    @property
    def sampling(self) -> SamplingSettings:
        """How the policy is sampled in evaluations."""
        chosen = self.settings
        return SamplingSettings(
            chosen.temperature, chosen.top_p, chosen.top_k, self.stop or self.renderer.stop_token_ids
        )

    @property
    def samples_plainly(self) -> bool:
        """Whether a sampled token's log-probability is the model's own: nothing is cut off or sharpened."""
        chosen = self.settings
        return chosen.temperature == 1.0 and chosen.top_p == 1.0 and chosen.top_k < 1

    @property
    def sampling_words(self) -> dict[str, Any]:
        """The same as an evaluation's row says it."""
        return {
            "temperature": self.settings.temperature,
            "top_p": self.settings.top_p,
            "top_k": self.settings.top_k,
            "max_tokens": self.limits.max_tokens,
            "seed": self.settings.seed,
            "pass_reward": self.settings.pass_reward,
        }
