"""The keys of ``[budget]``, ``[prices]``, ``[eval]`` and ``[providers]``, documented once as in ``sections``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from pydantic import Field, field_validator

from engine.config.addresses import web_address
from engine.config.sections import Section

HIGHEST = 1_000_000_000
"""A price above it is a mistake, and amounts would be no numbers any more."""


def amount_words(value: float) -> str:
    """An amount as a person reads it: no more digits than say something, and never none."""
    if float(value).is_integer():
        return f"{value:,.0f}"
    return f"{value:,.2f}" if abs(value) >= 1 else f"{value:.3g}"


class BudgetSettings(Section):
    """``[budget]``: at 80 % of any of these the run warns, at 100 % it ends after its step, with a checkpoint."""

    max_hours: float | None = Field(
        None, gt=0, description="Hours of wall time, over all sittings of a run. Default: no bound."
    )
    max_sandbox_hours: float | None = Field(
        None, gt=0, description="Hours that sandboxes may exist, summed over all of them. Default: no bound."
    )
    max_tokens: int | None = Field(
        None,
        ge=1,
        description="Tokens of all model calls together, prompts and replies; fine-tuning makes none. Default: no bound.",
    )
    max_cost: float | None = Field(
        None,
        gt=0,
        description="Money, in the currency of [prices], which must be given. Default: no bound.",
    )


class PriceSettings(Section):
    """``[prices]``: what things cost, in a currency of your own; a cost is shown only where its price is given."""

    currency: str = Field("USD", min_length=1, max_length=8, description="The currency's name, for display.")
    sandbox_gb_hour: float | None = Field(
        None, ge=0, le=HIGHEST, description="One GB of a sandbox's memory for one hour. Default: unknown."
    )
    trainer_hour: float | None = Field(
        None,
        ge=0,
        le=HIGHEST,
        description="One hour of a dedicated trainer (each replica). Default: unknown.",
    )
    sampler_hour: float | None = Field(
        None, ge=0, le=HIGHEST, description="One hour of a dedicated sampler. Default: unknown."
    )
    prompt_million: float | None = Field(
        None, ge=0, le=HIGHEST, description="A million prompt tokens, on serverless. Default: unknown."
    )
    sampled_million: float | None = Field(
        None, ge=0, le=HIGHEST, description="A million sampled tokens, on serverless. Default: unknown."
    )
    trained_million: float | None = Field(
        None, ge=0, le=HIGHEST, description="A million trained tokens, on serverless. Default: unknown."
    )

    @field_validator("currency")
    @classmethod
    def _a_name(cls, value: str) -> str:
        if not value.isprintable() or not value.strip():
            raise ValueError(f"must be a currency's name, such as 'USD', not {value!r}")
        return value


class EvalSettings(Section):
    """``[eval]``: held-out tasks, attempted by the same episode with weights that hold still; never trained on."""

    tasks: Annotated[Path, Field(strict=False)] = Field(
        description="JSONL file with held-out tasks, relative to the config, of the episode's task type. Required."
    )
    every_steps: int | None = Field(
        None, ge=1, description="Optimizer steps between evaluations. Default: none in between."
    )
    at_start: bool = Field(True, description="Whether the base model is evaluated before the first step.")
    at_end: bool = Field(True, description="Whether the last weights are evaluated when the run ends.")
    attempts_per_task: int = Field(
        1, ge=1, le=1024, description="Attempts at each task; pass@k is given for every k up to it."
    )
    pass_reward: float = Field(1.0, description="An attempt counts as passed from this reward on.")
    temperature: float = Field(1.0, ge=0, le=5, description="Sampling temperature; 0 is greedy.")
    top_p: float = Field(1.0, gt=0, le=1, description="Nucleus sampling.")
    top_k: int = Field(-1, ge=-1, description="Sample among the k likeliest tokens; -1 turns it off.")
    max_tokens: int | None = Field(
        None, ge=1, description="Tokens of one reply, at most. Default: [sampling] max_tokens."
    )
    seed: int = Field(0, ge=0, le=2**31 - 1, description="Seed of the evaluation's sampling requests.")
    max_concurrent: int | None = Field(
        None,
        ge=1,
        le=100_000,
        description="Attempts at the same time, those of training that go on beside them included. Default: as in "
        "training.",
    )


class BlaxelSettings(Section):
    """``[providers.blaxel]``: how this project uses Blaxel. Credentials are never here: BL_WORKSPACE, BL_API_KEY."""

    base_url: str | None = Field(
        None,
        description="Address of another Blaxel-compatible control plane, such as 'http://127.0.0.1:8080/v0'. The "
        "variable LOOPS_TUI_BLAXEL_URL beats it. Default: Blaxel.",
    )
    max_live: int = Field(
        64,
        ge=1,
        le=100_000,
        description="Sandboxes that may exist at the same time, over all processes of this project on this machine.",
    )
    creates_per_second: float = Field(
        10.0,
        gt=0,
        le=1000,
        description="Sandboxes created per second, over all processes of this project on this machine. Lowered by "
        "itself while Blaxel answers with rate limits or a quota.",
    )

    @field_validator("base_url")
    @classmethod
    def _a_web_address(cls, value: str | None) -> str | None:
        return web_address(value)


class ProviderSettings(Section):
    """``[providers]``: settings of whole providers, for all sandboxes of the project."""

    blaxel: BlaxelSettings = Field(
        default_factory=lambda: BlaxelSettings.model_validate({}), description="Blaxel."
    )
