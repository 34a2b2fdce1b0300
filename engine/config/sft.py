"""The config of supervised fine-tuning: ``recipe = "sft"``. Keys that RL has too are the same ones."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

from pydantic import Field, field_validator

from engine.config.problems import Problem
from engine.config.sections import ComputeSettings, ModelSettings, OutputSettings, Section
from engine.config.spending import BudgetSettings, PriceSettings

Schedule = Literal["constant", "linear", "cosine"]


class DataSettings(Section):
    """``[data]``: JSONL files with a conversation or tokens on each line."""

    train: list[str] = Field(
        min_length=1,
        description="JSONL files to train on, relative to the config; '*' and '**' match names. Each line is a "
        "conversation in OpenAI's fine-tuning format (messages, tools, a weight of 0 on turns that are not trained), or "
        "input_ids with weights. One text instead of a list works too. Required.",
    )
    validation: list[str] = Field(
        default_factory=list,
        description="JSONL files of the same formats that are only scored. Empty by default: no validation loss.",
    )
    max_refused: float = Field(
        0.1,
        ge=0,
        le=1,
        description="Share of the rows that may be refused (malformed, empty, untrainable, too long) before a run is. "
        "Refused rows are left out, counted and listed.",
    )

    @field_validator("train", "validation", mode="before")
    @classmethod
    def _one_is_a_list(cls, value: Any) -> Any:
        return [value] if isinstance(value, str | Path) else value

    @field_validator("train", "validation")
    @classmethod
    def _no_empty_names(cls, value: list[str]) -> list[str]:
        if any(not name.strip() for name in value):
            raise ValueError("must not hold an empty name")
        return value


class SftTrainingSettings(Section):
    """``[training]`` of supervised fine-tuning."""

    epochs: int = Field(1, ge=1, le=10_000, description="Passes over the training samples.")
    max_steps: int | None = Field(
        None,
        ge=1,
        description="Optimizer steps after which the run is done, even in mid-epoch. Default: all epochs.",
    )
    batch_size: int = Field(
        16,
        ge=1,
        le=100_000,
        description="Samples of one optimizer step. The last step of an epoch may have fewer.",
    )
    batch_tokens: int | None = Field(
        None,
        ge=1,
        description="Instead of batch_size: samples are added to a step until their tokens would exceed this; a longer "
        "one makes a step of its own. Default: batch_size counts.",
    )
    accumulation: int = Field(
        1,
        ge=1,
        le=1024,
        description="Requests that one step's samples are sent in; the gradients add up, so the result is the same.",
    )
    learning_rate: float = Field(1e-4, gt=0, le=1, description="Adam's highest step size.")
    schedule: Schedule = Field(
        "linear",
        description="How the learning rate goes on after the warm-up: 'constant', or down to min_learning_rate by a "
        "'linear' or 'cosine' curve over the steps of the run.",
    )
    warmup_steps: int = Field(
        0, ge=0, description="Steps over which the learning rate rises linearly to learning_rate."
    )
    min_learning_rate: float = Field(
        0.0, ge=0, le=1, description="Where the 'linear' and 'cosine' schedules end."
    )
    loss_aggregation: Literal["token_mean", "sum"] = Field(
        "token_mean",
        description="'token_mean': a step's loss is the mean over its trained tokens; 'sum': their sum.",
    )
    beta1: float = Field(0.9, ge=0, lt=1, description="Adam's decay of the gradient's mean.")
    beta2: float = Field(0.95, ge=0, lt=1, description="Adam's decay of the gradient's square.")
    eps: float = Field(1e-12, gt=0, le=1e-2, description="Adam's guard against division by zero.")
    weight_decay: float = Field(0.0, ge=0, le=1, description="Decoupled weight decay of the adapter.")
    grad_clip_norm: float = Field(
        1.0, ge=0, description="Gradients with a larger norm are scaled down to it; 0 turns clipping off."
    )
    seed: int = Field(0, ge=0, le=2**31 - 1, description="Seed of the order of the samples.")
    shuffle: bool = Field(
        True, description="Whether each epoch has its own seeded order; false keeps the files' order."
    )
    validate_every: int | None = Field(
        None,
        ge=1,
        description="Steps between validation losses; there is one before the first step and one at the end as well. "
        "Default: once an epoch.",
    )
    early_stop_after: int | None = Field(
        None,
        ge=1,
        description="Validations in a row without a better loss after which the run ends. Default: never.",
    )
    early_stop_delta: float = Field(
        0.0, ge=0, description="By how much a validation loss must fall to count as better."
    )


class SftSettings(Section):
    """An SFT config. Paths are absolute and ``output.name`` is filled once ``engine.config.load`` made it."""

    recipe: Literal["sft"] = Field(
        description="What the config is for: 'sft' (supervised fine-tuning). Required."
    )
    data: DataSettings = Field(description="What is trained on.")
    model: ModelSettings = Field(description="The model and its tokenizer.")
    training: SftTrainingSettings = Field(
        default_factory=lambda: SftTrainingSettings.model_validate({}),
        description="Steps, batches and optimizer.",
    )
    compute: ComputeSettings = Field(
        default_factory=lambda: ComputeSettings.model_validate({}), description="Where the trainer runs."
    )
    output: OutputSettings = Field(
        default_factory=lambda: OutputSettings.model_validate({}), description="What is written, and where."
    )
    budget: BudgetSettings = Field(
        default_factory=lambda: BudgetSettings.model_validate({}),
        description="Bounds that end a run cleanly.",
    )
    prices: PriceSettings = Field(
        default_factory=lambda: PriceSettings.model_validate({}),
        description="What things cost, for display and for [budget] max_cost.",
    )


def sft_rule_problems(settings: SftSettings) -> Iterator[Problem]:
    """What no single key shows: keys that contradict each other."""
    training = settings.training
    if training.batch_tokens is not None and "batch_size" in training.model_fields_set:
        yield Problem(
            "[training] batch_size and batch_tokens are both set, and only one can size a step",
            key="training.batch_size",
            remedy="Remove one of them",
        )
    if training.min_learning_rate > training.learning_rate:
        yield Problem(
            f"[training] min_learning_rate is {training.min_learning_rate:g}, above learning_rate = "
            f"{training.learning_rate:g}",
            key="training.min_learning_rate",
            remedy="Set it to learning_rate or less",
        )
    if training.min_learning_rate > 0 and training.schedule == "constant":
        yield Problem(
            "[training] min_learning_rate is set, but a constant schedule never goes there",
            key="training.min_learning_rate",
            remedy="Remove it, or set schedule = 'linear' or 'cosine'",
        )
    if training.max_steps is not None and training.warmup_steps >= training.max_steps:
        yield Problem(
            f"[training] warmup_steps is {training.warmup_steps}, and the run has only {training.max_steps} steps",
            key="training.warmup_steps",
            remedy="Set it below max_steps",
        )
    if not settings.data.validation:
        for key in ("validate_every", "early_stop_after"):
            if getattr(training, key) is not None:
                yield Problem(
                    f"[training] {key} is set, but there is no [data] validation to score",
                    key=f"training.{key}",
                    remedy="Name validation files, or remove it",
                )
