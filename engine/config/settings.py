"""The config as a whole, and the rules between its keys."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

from pydantic import Field

from engine.config.durations import parse_duration
from engine.config.losses import loss_config_problems
from engine.config.problems import Problem
from engine.config.sampling import SamplingSettings
from engine.config.sections import (
    ComputeSettings,
    ModelSettings,
    OutputSettings,
    RuntimeSettings,
    SandboxTable,
    Scope,
    Section,
    TrainingSettings,
)
from engine.config.spending import BudgetSettings, EvalSettings, PriceSettings, ProviderSettings

#: Set-ups ahead where the config does not say: enough to hide them, few enough to hold little.
MOST_AHEAD = 64

EffectiveScope = Literal["local", "serverless", "dedicated", "auto"]


class Settings(Section):
    """An RL config. Paths are absolute and ``output.name`` is filled once ``engine.config.load`` made it."""

    recipe: Literal["rl"] = Field(
        description="What the config is for: 'rl' (reinforcement learning). Required."
    )
    runtime: RuntimeSettings = Field(description="What runs the episodes, and on which tasks.")
    model: ModelSettings = Field(description="The model and its tokenizer.")
    training: TrainingSettings = Field(description="Groups, steps, loss and optimizer.")
    sampling: SamplingSettings = Field(
        default_factory=lambda: SamplingSettings.model_validate({}), description="How replies are sampled."
    )
    compute: ComputeSettings = Field(
        default_factory=lambda: ComputeSettings.model_validate({}),
        description="Where the trainer and the sampler run.",
    )
    output: OutputSettings = Field(
        default_factory=lambda: OutputSettings.model_validate({}), description="What is written, and where."
    )

    eval: EvalSettings | None = Field(
        None, description="Evaluation on held-out tasks. Without this table there is none."
    )
    budget: BudgetSettings = Field(
        default_factory=lambda: BudgetSettings.model_validate({}),
        description="Bounds that end a run cleanly.",
    )
    prices: PriceSettings = Field(
        default_factory=lambda: PriceSettings.model_validate({}),
        description="What things cost, for display and for [budget] max_cost.",
    )
    providers: ProviderSettings = Field(
        default_factory=lambda: ProviderSettings.model_validate({}),
        description="Settings of sandbox providers.",
    )

    @property
    def max_concurrent_rollouts(self) -> int:
        """The limit that holds: the configured one, or one step's attempts."""
        return self.training.max_concurrent_rollouts or (
            self.training.group_size * self.training.groups_per_step
        )

    @property
    def max_concurrent_grading(self) -> int:
        """The limit that holds: the configured one, or as many as may sample."""
        return self.training.max_concurrent_grading or self.max_concurrent_rollouts

    @property
    def setups_ahead(self) -> int:
        """Attempts that may be set up ahead. Where a provider limits its sandboxes, those of attempts that sample or
        are graded come first; a configured number leaves room for one attempt, and for what it is graded in."""
        training, table, slots = self.training, self.runtime.config.sandbox, self.max_concurrent_rollouts
        if training.setups_ahead is not None:
            wanted, others = training.setups_ahead, 2
        else:
            wanted = min(slots, training.group_size * training.groups_per_step, MOST_AHEAD)
            others = slots + self.max_concurrent_grading
            ttl = None if table is None or table.ttl is None else parse_duration(table.ttl)
            if ttl is not None and ttl < self.attempt_seconds + self.ahead_seconds:
                return 0
        if table is None or table.provider != "blaxel":
            return wanted
        return max(0, min(wanted, self.providers.blaxel.max_live - others))

    @property
    def attempt_seconds(self) -> float:
        """The longest that one attempt may take, its sandbox included."""
        runtime = self.runtime.config
        phases = (
            runtime.setup_timeout_seconds + runtime.agent_timeout_seconds + runtime.grading_timeout_seconds
        )
        return phases + (runtime.provision_timeout_seconds if runtime.sandbox is not None else 0.0)

    @property
    def grading_wait_seconds(self) -> float:
        """The longest that an attempt waits to be graded where fewer are graded than sample at once: twice as many as
        sample may stand in line, for as many may still end that sample while the line is full."""
        rounds = -(-self.max_concurrent_rollouts // self.max_concurrent_grading) - 1
        return 2 * rounds * self.runtime.config.grading_timeout_seconds

    @property
    def ahead_seconds(self) -> float:
        """About the longest that an attempt that is set up ahead waits: for the attempts before it, and an update."""
        return self.attempt_seconds + self.grading_wait_seconds + 2 * self.compute.request_timeout_seconds

    @property
    def sandbox_seconds(self) -> float:
        """The longest that an attempt may need its sandbox, the waiting included."""
        ahead = self.ahead_seconds if self.setups_ahead else 0.0
        return self.attempt_seconds + self.grading_wait_seconds + ahead

    @property
    def max_steps_off_policy(self) -> int:
        """Updates by which a trained group's policy may be older; 0 in sync mode."""
        configured = self.training.max_steps_off_policy
        return configured if configured is not None else 1 if self.training.mode == "async" else 0

    @property
    def max_policy_delta_in_trajectory(self) -> int:
        """Updates that may be published while an attempt runs."""
        configured = self.training.max_policy_delta_in_trajectory
        return configured if configured is not None else self.max_steps_off_policy


def scope_of(configured: Scope | None, from_environment: str | None) -> EffectiveScope:
    """Where a run goes: the config's word beats BASETEN_LOOPS_SCOPE, which beats Loops' own choice ("auto")."""
    if configured is not None:
        return configured
    value = (from_environment or "").strip().lower()
    if value in {"", "default", "auto"}:
        return "auto"
    if value in {"deployment", "dedicated"}:
        return "dedicated"
    if value == "serverless":
        return "serverless"
    if value == "local":
        return "local"
    raise ValueError(
        f"the environment variable BASETEN_LOOPS_SCOPE is {from_environment!r}; it can be serverless, deployment or "
        "local"
    )


def rule_problems(settings: Settings) -> Iterator[Problem]:
    """What no single key of an RL config shows: keys that contradict each other."""
    if settings.runtime.config.sandbox is not None:
        yield from _sandbox_problems(settings.runtime.config.sandbox)
    training, model, sampling = settings.training, settings.model, settings.sampling
    yield from _schedule_problems(settings)
    if training.max_group_losses > training.group_size - 2:
        yield Problem(
            f"[training] max_group_losses is {training.max_group_losses}, but a group of {training.group_size} needs "
            "at least 2 attempts left to compare",
            key="training.max_group_losses",
            remedy=f"Set it to {training.group_size - 2} or less",
        )
    if sampling.max_tokens >= model.max_seq_len:
        configured = "max_tokens" in sampling.model_fields_set
        yield Problem(
            f"[sampling] max_tokens is {sampling.max_tokens}{'' if configured else ' (its default)'}, which leaves no "
            f"room for a prompt in [model] max_seq_len = {model.max_seq_len}",
            key="sampling.max_tokens" if configured else "model.max_seq_len",
            remedy="Set max_tokens below max_seq_len",
        )
    held_out = settings.eval
    if held_out is not None and held_out.max_tokens is not None and held_out.max_tokens >= model.max_seq_len:
        yield Problem(
            f"[eval] max_tokens is {held_out.max_tokens}, which leaves no room for a prompt in [model] max_seq_len = "
            f"{model.max_seq_len}",
            key="eval.max_tokens",
            remedy="Set it below max_seq_len",
        )
    yield from loss_config_problems(training.loss, training.loss_config)


def _schedule_problems(settings: Settings) -> Iterator[Problem]:
    """Bounds on old policies that do not fit the mode, or each other."""
    training = settings.training
    if training.mode == "sync":
        for key in ("max_steps_off_policy", "max_policy_delta_in_trajectory"):
            value = getattr(training, key)
            if value:
                yield Problem(
                    f"[training] {key} is {value}, but mode 'sync' never trains on an older policy",
                    key=f"training.{key}",
                    remedy="Set it to 0, or set mode = 'async'",
                )
    elif settings.max_policy_delta_in_trajectory > settings.max_steps_off_policy:
        yield Problem(
            f"[training] max_policy_delta_in_trajectory is {settings.max_policy_delta_in_trajectory}, but an attempt "
            f"never sees more than max_steps_off_policy = {settings.max_steps_off_policy} updates",
            key="training.max_policy_delta_in_trajectory",
            remedy=f"Set it to {settings.max_steps_off_policy} or less, or leave it out",
        )


_ONLY_OF = {
    "local": ("isolation", "disk_mb", "max_processes", "cpu_seconds"),
    "blaxel": ("image", "region"),
}


def _sandbox_problems(table: SandboxTable) -> Iterator[Problem]:
    """Keys that only another provider understands."""
    for provider, keys in _ONLY_OF.items():
        for key in keys:
            if (
                provider != table.provider
                and key in table.model_fields_set
                and getattr(table, key) is not None
            ):
                yield Problem(
                    f"[runtime.config.sandbox] {key} means something to {provider} sandboxes alone, and the provider "
                    f"is {table.provider!r}",
                    key=f"runtime.config.sandbox.{key}",
                    remedy=f"Remove {key}, or set provider = '{provider}'",
                )
